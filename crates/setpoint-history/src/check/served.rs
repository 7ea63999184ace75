//! Calls that are always valid are not refused, and watches neither.

use super::Found;
use crate::history::History;
use crate::operation::{Call, Fresh, Operation, Outcome};
use crate::violation::Promise;
use crate::watch::Ended;

/// Too many requests: whoever is busy may say so at any time.
const BUSY: u16 = 429;

pub(super) fn check(history: &History, found: &mut Found) {
    for operation in &history.operations {
        if let Some(why) = wrong(operation) {
            found.add(Promise::Served, why, [operation.to_string()]);
        }
    }
    for watch in &history.watches {
        // What a server answers with 500 and more is counted: it may be about to end.
        if let Ended::Failed(code) = watch.ended
            && code != BUSY
            && code < 500
        {
            let why = format!("a watch that is valid ends with {code}");
            found.add(Promise::Served, why, [watch.to_string()]);
        }
    }
}

/// Why no state of the objects can lead to this answer.
fn wrong(operation: &Operation) -> Option<String> {
    let call = &operation.call;
    let is_made = matches!(call, Call::Create { .. } | Call::Apply { .. }) || call.listing().is_some();
    Some(match operation.outcome {
        Outcome::Refused(code) if code != BUSY => {
            format!("a call that is always valid is refused with {code}")
        }
        Outcome::Conflict if !call.is_conditional() => {
            "a call that names no version meets a conflict".to_owned()
        }
        Outcome::AlreadyExists if !matches!(call, Call::Create { .. }) => {
            "a call that is no create meets an object that is there already".to_owned()
        }
        Outcome::NotFound if is_made => "a call that needs no object finds none".to_owned(),
        Outcome::Expired if !may_expire(call) => {
            "a call that names no old version is told that it is gone".to_owned()
        }
        _ => return None,
    })
}

fn may_expire(call: &Call) -> bool {
    matches!(call, Call::List { fresh: Fresh::Exact(_), .. } | Call::List { from: Some(_), .. })
}
