//! Each version follows from the one before it: what a write says it found was there.

use super::Found;
use super::timeline::{Change, Point, Source, Timeline};
use crate::object::{Fields, Moment, State, Version};
use crate::operation::Call;
use crate::violation::Promise;

pub(super) fn check(timeline: &Timeline<'_>, found: &mut Found) {
    for point in &timeline.points {
        let before = timeline.before(point);
        let Some(why) = wrong(timeline, point, before) else { continue };
        // What nobody saw may lie between the two.
        let since = before.map_or(0, |before| before.version);
        let by = point.writer.map_or(Moment::MAX, |writer| timeline.history.operations[writer].end);
        if why.is_certain || !timeline.may_hide(point.key, since, point.version, by) {
            let seen = before.map(|before| timeline.tell_point(before));
            let mut evidence: Vec<_> = seen.into_iter().chain([timeline.tell_point(point)]).collect();
            if point.writer.is_some_and(|writer| point.source != Source::Operation(writer)) {
                evidence.push(timeline.tell(point.source));
            }
            found.add(Promise::Follows, why.text, evidence);
        }
    }
}

struct Wrong {
    text: &'static str,
    /// Whether it is wrong whatever nobody has seen.
    is_certain: bool,
}

/// What is wrong with a version, if nothing lies between it and the one before.
fn wrong(timeline: &Timeline<'_>, point: &Point, before: Option<&Point>) -> Option<Wrong> {
    let certain = |text| Some(Wrong { text, is_certain: true });
    let perhaps = |text| Some(Wrong { text, is_certain: false });
    let there = before.filter(|before| before.change.is_put()).map(|before| before.change.state());
    let state = match &point.change {
        Change::Delete(last) => {
            return match there {
                None => perhaps("an object is deleted that is not there"),
                Some(there) if there != last => perhaps("a delete shows another last state"),
                Some(_) => None,
            };
        }
        Change::Put(state) => state,
    };
    if state.previous == Some(state.mark) {
        return certain("a patch is applied twice");
    }
    let is_same = there.is_some_and(|there| there.uid == state.uid);
    match timeline.history.operations[point.writer?].call {
        Call::Create { .. } if is_same => certain("an object is created that is there"),
        Call::Create { .. } if there.is_some() => perhaps("an object is created while another has its name"),
        Call::Create { .. } => made_of_nothing(state),
        Call::Apply { .. } if there.is_none() => made_of_nothing(state),
        _ if !is_same => perhaps("an object is changed that is not there"),
        Call::Update { expect, .. } => lost_update(expect, before).or_else(|| made_of_nothing(state)),
        ref call if state.fields != kept(call, state, there?) => {
            perhaps("a field is not as it was that the write does not name")
        }
        Call::JsonPatch { .. } if state.previous != Some(there?.mark) => {
            perhaps("a patch is applied to another state than the one before it")
        }
        Call::JsonPatch { .. } => None,
        _ if state.previous != there?.previous => {
            perhaps("a patch that sets the mark is applied to another state than the one before it")
        }
        _ => None,
    }
}

/// The fields after a write to an object that is there.
fn kept(call: &Call, state: &State, there: &State) -> Fields {
    match call {
        Call::StatusPatch { .. } => Fields { is_running: state.mark.is_running(), ..there.fields },
        _ => there.fields,
    }
}

fn made_of_nothing(state: &State) -> Option<Wrong> {
    let text = "a whole object was sent, and a part of an older one is in it";
    state.previous.map(|_| Wrong { text, is_certain: true })
}

fn lost_update(expect: Option<Version>, before: Option<&Point>) -> Option<Wrong> {
    let (expect, before) = (expect?, before?.version);
    let text = "an update is lost: another version lies between the one that an update names and its own";
    // A version that it names and nobody has seen may be the one before it.
    (before != expect).then_some(Wrong { text, is_certain: before > expect })
}
