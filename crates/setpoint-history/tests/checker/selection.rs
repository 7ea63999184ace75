//! What enters and leaves the selection of a watch. The label of a write is its number modulo three.

use setpoint_history::{Call, Ended, Event, Fields, From, Item, Outcome, Promise, Select};

use crate::story::{A, Story, item};

fn a(version: u64, number: u32) -> Item {
    item(A, version, number)
}

/// A at 10 with t1, at 11 with t2 and at 12 with t0.
fn story() -> Story {
    Story::updated().then((5, 6), Call::MergePatch { key: A }, Outcome::Written(a(12, 3)))
}

fn told(select: Select, from: u64, events: &[Event]) -> Story {
    story().watch_of(select, From::Version(from), events, Ended::Closed)
}

#[test]
fn what_enters_is_added_and_what_leaves_is_deleted() {
    told(Select::Team(2), 9, &[Event::Added(a(11, 2)), Event::Deleted(a(12, 2)), Event::Bookmark(15)])
        .holds();
    told(Select::Team(1), 10, &[Event::Deleted(a(11, 1)), Event::Bookmark(15)]).holds();
    told(Select::NotTeam(1), 9, &[Event::Added(a(11, 2)), Event::Modified(a(12, 3))]).holds();
    // What does not concern it is not owed.
    told(Select::Team(1), 11, &[Event::Bookmark(15)]).holds();
}

#[test]
fn an_object_that_enters_is_not_modified() {
    told(Select::Team(2), 9, &[Event::Modified(a(11, 2)), Event::Deleted(a(12, 2))])
        .breaks(Promise::Atomic, "enters the selection is told as modified");
}

#[test]
fn an_object_that_stays_is_neither_added_nor_deleted() {
    told(Select::NotTeam(1), 9, &[Event::Added(a(11, 2)), Event::Added(a(12, 3))])
        .breaks(Promise::Atomic, "added that was taken before");
    told(Select::NotTeam(1), 9, &[Event::Added(a(11, 2)), Event::Deleted(a(12, 2))])
        .breaks(Promise::Atomic, "still taken");
}

#[test]
fn an_object_that_enters_is_told() {
    told(Select::Team(2), 9, &[Event::Bookmark(11)]).breaks(Promise::Bookmarkable, "not told: 11 of o000");
    told(Select::NotTeam(1), 9, &[Event::Modified(a(12, 3))])
        .breaks(Promise::Resumable, "was not told: 11 of o000");
}

#[test]
fn an_object_that_leaves_is_told() {
    told(Select::Team(2), 9, &[Event::Added(a(11, 2)), Event::Bookmark(15)])
        .breaks(Promise::Bookmarkable, "not told: 12 of o000");
    told(Select::Team(1), 10, &[Event::Bookmark(15)]).breaks(Promise::Bookmarkable, "not told: 11 of o000");
}

#[test]
fn an_object_that_leaves_is_told_as_it_was_taken_last() {
    told(Select::Team(2), 9, &[Event::Added(a(11, 2)), Event::Deleted(a(12, 3))])
        .breaks(Promise::Atomic, "that the selector does not take");
    let other = Item { state: setpoint_history::State { uid: 7, ..a(12, 2).state }, ..a(12, 2) };
    told(Select::Team(2), 9, &[Event::Added(a(11, 2)), Event::Deleted(other)])
        .breaks(Promise::Atomic, "another last state");
}

#[test]
fn what_was_never_taken_is_not_told() {
    told(Select::Team(2), 10, &[Event::Modified(a(12, 3))])
        .breaks_all(&[Promise::Atomic, Promise::Resumable]);
    let delete = Call::Delete { key: A, expect: None };
    Story::created()
        .then((3, 4), delete, Outcome::Deleted(1))
        .watch(From::Version(9), &[Event::Added(a(10, 1)), Event::Deleted(a(11, 1))])
        .watch_of(Select::Team(2), From::Version(9), &[Event::Deleted(a(11, 2))], Ended::Closed)
        .breaks(Promise::Atomic, "deleted that was not taken");
}

#[test]
fn a_delete_is_told_to_those_who_took_the_object() {
    let delete = Call::Delete { key: A, expect: None };
    let all = [Event::Added(a(10, 1)), Event::Deleted(a(11, 1))];
    let deleted = || Story::created().then((3, 4), delete, Outcome::Deleted(1)).watch(From::Version(9), &all);
    let watch = |team, events: &[Event]| {
        deleted().watch_of(Select::Team(team), From::Version(10), events, Ended::Closed)
    };
    watch(1, &all[1..]).holds();
    watch(1, &[Event::Bookmark(15)]).breaks(Promise::Bookmarkable, "not told: 11 of o000");
    watch(2, &[Event::Bookmark(15)]).holds();
}

#[test]
fn what_left_unseen_is_held_against_nobody() {
    let update = Call::Update { key: A, expect: None };
    let lost = || {
        Story::created().then((3, 4), update, Outcome::Unknown).then(
            (5, 6),
            Call::MergePatch { key: A },
            Outcome::Written(a(12, 3)),
        )
    };
    let team = |team, events: &[Event]| {
        lost().watch_of(Select::Team(team), From::Version(10), events, Ended::Closed)
    };
    team(1, &[Event::Deleted(a(12, 1)), Event::Bookmark(15)]).holds();
    team(1, &[Event::Deleted(a(11, 1)), Event::Bookmark(15)]).holds();
    team(2, &[Event::Added(a(11, 2)), Event::Deleted(a(12, 2))]).holds();
}

#[test]
fn initial_events_are_what_is_taken() {
    let initial = |select, events: &[Event]| story().watch_of(select, From::Now, events, Ended::Closed);
    let end = Event::InitialEnd(12);
    initial(Select::Team(0), &[Event::Added(a(12, 3)), end]).holds();
    initial(Select::Team(2), &[end]).holds();
    initial(Select::Team(0), &[end]).breaks(Promise::Atomic, "o000 was there");
    initial(Select::Team(2), &[Event::Added(a(11, 2)), end]).breaks(Promise::Atomic, "o000 was at 12");
}

#[test]
fn a_field_selects_and_stays_unless_it_is_written() {
    let on = |item: Item, node, is_running| Item {
        state: setpoint_history::State {
            fields: Fields { node, is_running, ..Fields::default() },
            ..item.state
        },
        ..item
    };
    let created = on(a(10, 1), Some(0), false);
    let pod = |call, written: Item| {
        Story::default().then((1, 2), Call::Create { key: A }, Outcome::Written(created)).then(
            (3, 4),
            call,
            Outcome::Written(written),
        )
    };
    let (merge, status) = (Call::MergePatch { key: A }, Call::StatusPatch { key: A });
    let running = on(a(11, 2), Some(0), true);
    let left = Event::Deleted(Item { version: 11, ..created });
    pod(status, running)
        .watch_of(Select::Running(false), From::Version(9), &[Event::Added(created), left], Ended::Closed)
        .watch_of(Select::Running(true), From::Version(9), &[Event::Added(running)], Ended::Closed)
        .watch_of(Select::Node(Some(0)), From::Version(10), &[Event::Modified(running)], Ended::Closed)
        .watch_of(Select::Node(None), From::Version(9), &[Event::Bookmark(15)], Ended::Closed)
        .holds();
    pod(merge, on(a(11, 2), Some(0), false)).holds();
    pod(merge, running).breaks(Promise::Follows, "a field is not as it was");
    pod(status, on(a(11, 2), Some(1), true)).breaks(Promise::Follows, "a field is not as it was");
}
