//! What enters and leaves the selection of a watch.
//!
//! An object that is changed so that the selector takes it is told as ADDED; one that it takes no more, as DELETED, in the
//! state that it was last taken in and at the version of the change. What is changed outside of the selection is not told.

use super::Found;
use super::timeline::{Point, Timeline, tell_event};
use crate::object::Item;
use crate::violation::Promise;
use crate::watch::{Event, Watch};

/// Whether a watch has to tell of a version by its event `at`, unless that is about it.
pub(super) fn owes(timeline: &Timeline<'_>, watch: &Watch, point: &Point, at: usize) -> bool {
    let takes = |point: &Point| watch.select.takes(point.key, point.change.state());
    if point.change.is_put() && takes(point) {
        return true;
    }
    // It left with this version, unless it did so before, at one that nobody has seen.
    let Some(before) = timeline.before(point).filter(|before| before.change.is_put()) else {
        // Nobody has seen it come: what is gone was in the state that is told.
        return !point.change.is_put() && !watch.select.is_left() && takes(point);
    };
    let by = watch.told[at].0;
    takes(before)
        && (!watch.select.is_left() || !timeline.may_hide(point.key, before.version, point.version, by))
}

/// Checks an event of a watch whose objects enter and leave it.
pub(super) fn check(timeline: &Timeline<'_>, watch: &Watch, at: usize, item: &Item, found: &mut Found) {
    let (moment, event) = &watch.told[at];
    let mut blame = |why: &str, point: Option<&Point>| {
        let seen = point.map(|point| timeline.tell_point(point));
        found.add(Promise::Atomic, why, seen.into_iter().chain([tell_event(watch, at)]));
    };
    if !watch.select.takes(item.key, &item.state) {
        return blame("an object is told that the selector does not take", None);
    }
    let Some(point) = timeline.index(item.version).map(|index| &timeline.points[index]) else { return };
    let is_deleted = matches!(event, Event::Deleted(_));
    if is_deleted && point.change.is_put() && watch.select.takes(point.key, point.change.state()) {
        return blame("an object is told as deleted that is still taken", Some(point));
    }
    let before = timeline.before(point);
    let since = before.map_or(0, |before| before.version);
    // A state between the two, or one before the first, that nobody has seen.
    if before.is_none() || timeline.may_hide(point.key, since, point.version, *moment) {
        return;
    }
    let taken = before
        .filter(|before| before.change.is_put() && watch.select.takes(before.key, before.change.state()));
    match (event, taken) {
        (Event::Added(_), Some(_)) => blame("an object is added that was taken before", before),
        (Event::Modified(_), None) => {
            blame("an object that enters the selection is told as modified", before)
        }
        (Event::Deleted(_), None) => blame("an object is told as deleted that was not taken", before),
        (Event::Deleted(_), Some(there)) if *there.change.state() != item.state => {
            blame("a delete shows another last state", before);
        }
        _ => {}
    }
}
