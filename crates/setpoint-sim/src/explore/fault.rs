//! One thing that goes wrong in a run.

use std::fmt::{self, Write};
use std::time::Duration;

use serde_json::Value;

use crate::faults::{Act, Effect, Match, Refusal};

/// One thing that goes wrong in a run. A list of them is a run that can be told again: see [`replay`](crate::replay).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "nearly all faults are of the large kind, and there are few")]
pub enum Fault {
    /// It happens to a request.
    On(Match, Effect),
    /// When everything has come to rest, somebody does this to the object of this path.
    AtRest(Act, String),
    /// When everything has come to rest, somebody writes this into the object of this path: what was there before.
    Revert(String, Value),
    /// A finalizer of somebody else is on the object of this path from its beginning, until all faults end.
    Finalizer(String),
    /// When everything has come to rest, this client crashes, and finds a server whose cache of this resource is at this
    /// revision. Only lists that ask for any version see it.
    OldCache(String, String, u64),
    /// Tasks run in the order that this seed chooses.
    Order(u64),
    /// The clock of this client runs at so many percent of the others' rate.
    ClockRate(String, u32),
}

impl Fault {
    /// As a line of a test.
    pub(crate) fn code(&self) -> String {
        match self {
            Fault::On(matching, effect) => format!("Fault::On({}, {})", matching.code(), effect_code(effect)),
            Fault::AtRest(act, path) => format!("Fault::AtRest(Act::{act:?}, {path:?}.into())"),
            Fault::Revert(path, value) => format!("Fault::Revert({path:?}.into(), json!({value}))"),
            Fault::Finalizer(path) => format!("Fault::Finalizer({path:?}.into())"),
            Fault::Order(seed) => format!("Fault::Order({seed})"),
            Fault::ClockRate(client, percent) => format!("Fault::ClockRate({client:?}.into(), {percent})"),
            Fault::OldCache(client, resource, revision) => {
                format!("Fault::OldCache({client:?}.into(), {resource:?}.into(), {revision})")
            }
        }
    }
}

fn effect_code(effect: &Effect) -> String {
    match effect {
        Effect::Refuse(refusal) => format!("Effect::Refuse({})", refusal_code(*refusal)),
        Effect::ErrorAfterEvents(n, refusal) => {
            format!("Effect::ErrorAfterEvents({n}, {})", refusal_code(*refusal))
        }
        Effect::StallAfterEvents(n, time) => format!("Effect::StallAfterEvents({n}, {})", time_code(*time)),
        Effect::PauseAfterAnswer(time) => format!("Effect::PauseAfterAnswer({})", time_code(*time)),
        Effect::DelayRequest(time) => format!("Effect::DelayRequest({})", time_code(*time)),
        Effect::DelayResponse(time) => format!("Effect::DelayResponse({})", time_code(*time)),
        Effect::Interfere(interference) => {
            let object = match &interference.object {
                Some(path) => format!("Some({path:?}.into())"),
                None => "None".to_owned(),
            };
            format!(
                "Effect::Interfere(Interference {{ act: Act::{:?}, object: {object} }})",
                interference.act
            )
        }
        other => format!("Effect::{other:?}"),
    }
}

fn refusal_code(refusal: Refusal) -> String {
    match refusal {
        Refusal::TooManyRequests { retry_after } => {
            format!("Refusal::TooManyRequests {{ retry_after: {} }}", time_code(retry_after))
        }
        other => format!("Refusal::{other:?}"),
    }
}

fn time_code(time: Duration) -> String {
    format!("Duration::from_millis({})", time.as_millis())
}

/// As a failure report tells it.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::On(matching, effect) => {
                f.write_str(&words(effect))?;
                f.write_char(' ')?;
                matching.fmt(f)
            }
            Fault::AtRest(Act::Delete, path) => write!(f, "somebody deletes {path} when all is at rest"),
            Fault::AtRest(act, path) => write!(f, "somebody does to {path} when all is at rest: {act:?}"),
            Fault::Revert(path, _) => {
                write!(f, "somebody sets {path} back to what it was, when all is at rest")
            }
            Fault::Finalizer(path) => write!(f, "a foreign finalizer is on {path}"),
            Fault::Order(seed) => write!(f, "tasks run in the order of seed {seed}"),
            Fault::ClockRate(client, percent) => {
                write!(f, "the clock of {client} runs at {percent} % of the others' rate")
            }
            Fault::OldCache(client, resource, revision) => write!(
                f,
                "crash of {client} when all is at rest, and a restart onto a cache of {resource} of revision {revision}"
            ),
        }
    }
}

/// The effect, so that the request can follow.
fn words(effect: &Effect) -> String {
    match effect {
        Effect::CrashBefore => "crash before".to_owned(),
        Effect::CrashAfterCommit => "crash after the commit and before the answer of".to_owned(),
        Effect::CrashAfterAnswer => "crash after the answer to".to_owned(),
        Effect::PauseAfterAnswer(time) => format!("pause of {time:?} after the answer to"),
        Effect::LoseResponse => "answer lost of".to_owned(),
        Effect::Refuse(refusal) => format!("{refusal} in answer to"),
        Effect::RestartServer => "restart of the server after".to_owned(),
        Effect::Interfere(interference) => {
            let object = interference.object.as_deref().unwrap_or("the object");
            match interference.act {
                Act::Touch => format!("somebody writes to {object} just before"),
                Act::Delete => format!("somebody deletes {object} just before"),
                Act::Recreate => format!("somebody deletes {object} and creates it again just before"),
            }
        }
        Effect::CutAfterEvents(n) => format!("cut after event {n} of"),
        Effect::ErrorAfterEvents(n, refusal) => format!("{refusal} after event {n} of"),
        Effect::StallAfterEvents(n, time) => format!("silence of {time:?} after event {n} of"),
        Effect::HoldAfterEvents(n) => format!("silence until all faults end after event {n} of"),
        Effect::LagAfterEvents(n, k) => format!("lag of {k} events after event {n} of"),
        Effect::LoseLease => "no lease is reached after the answer to".to_owned(),
        Effect::HideAfterEvents(n) => {
            format!("silence until all faults end, then expiry, after event {n} of")
        }
        other => format!("{other:?} to"),
    }
}
