//! The guarantees of watch.

use setpoint_history::{Call, Ended, Event, From, Item, Outcome, Promise, Select};

use crate::story::{A, B, Story, again, item};

fn a(version: u64, number: u32) -> Item {
    item(A, version, number)
}

/// A at 10, 11 and 12.
fn story() -> Story {
    Story::updated().then((5, 6), Call::MergePatch { key: A }, Outcome::Written(a(12, 3)))
}

const START: From = From::Version(9);

#[test]
fn a_watch_tells_everything_in_order() {
    let events =
        [Event::Added(a(10, 1)), Event::Modified(a(11, 2)), Event::Modified(a(12, 3)), Event::Bookmark(15)];
    story().watch(START, &events).holds();
    story().watch(START, &events[..1]).watch(From::Version(10), &events[1..]).holds();
    story().watch(START, &[]).holds();
}

#[test]
fn ordered() {
    let events = [Event::Added(a(10, 1)), Event::Modified(a(12, 3)), Event::Modified(a(11, 2))];
    let (order, gap) = (Promise::Ordered, Promise::Reliable);
    let verdict = story().watch(START, &events);
    verdict.breaks_all(&[gap, order]);
}

#[test]
fn unique() {
    let events = [Event::Added(a(10, 1)), Event::Modified(a(11, 2)), Event::Modified(a(11, 2))];
    story().watch(START, &events).breaks(Promise::Unique, "an event comes twice");
}

#[test]
fn reliable() {
    let events = [Event::Added(a(10, 1)), Event::Modified(a(12, 3))];
    story().watch(START, &events).breaks(Promise::Reliable, "a version was not told: 11 of o000");
}

#[test]
fn reliable_to_the_end() {
    let stuck = Ended::Stuck(12);
    let events = [Event::Added(a(10, 1)), Event::Modified(a(11, 2))];
    story()
        .watch_of(Select::All, START, &events, stuck.clone())
        .breaks(Promise::Reliable, "did not tell of it in time");
    let all = [events[0], events[1], Event::Modified(a(12, 3))];
    story().watch_of(Select::All, START, &all, stuck).holds();
}

#[test]
fn atomic() {
    let events = [Event::Added(a(10, 1)), Event::Added(a(11, 2))];
    story().watch(START, &events).breaks(Promise::Atomic, "added that was there");
    // The delete between the two was not told, and nobody else has seen it.
    let (delete, create) = (Call::Delete { key: A, expect: None }, Call::Create { key: A });
    let (first, second) = (Event::Added(a(10, 1)), Event::Added(again(A, 12, 3, 2)));
    let deleted = || {
        Story::created().then((3, 4), delete, Outcome::Deleted(1)).then(
            (5, 6),
            create,
            Outcome::Written(again(A, 12, 3, 2)),
        )
    };
    deleted().watch(START, &[first, second]).breaks_all(&[
        Promise::Follows,
        Promise::Reliable,
        Promise::Atomic,
    ]);
    deleted().watch(START, &[first, Event::Deleted(a(11, 1)), second]).holds();
}

#[test]
fn resumable() {
    let from = From::Version(10);
    story().watch(from, &[Event::Modified(a(12, 3))]).breaks(Promise::Resumable, "was not told: 11 of o000");
    let again = [Event::Added(a(10, 1)), Event::Modified(a(11, 2))];
    story().watch(from, &again).breaks(Promise::Resumable, "before the version of the watch");
}

#[test]
fn bookmarkable() {
    let events = [Event::Added(a(10, 1)), Event::Bookmark(11), Event::Modified(a(12, 3))];
    story().watch(START, &events).breaks(Promise::Bookmarkable, "covers a version that was not told: 11");
    let late =
        [Event::Added(a(10, 1)), Event::Modified(a(11, 2)), Event::Bookmark(13), Event::Modified(a(12, 3))];
    story().watch(START, &late).breaks(Promise::Bookmarkable, "bookmark");
}

#[test]
fn initial_events_add_up_to_the_state_at_their_bookmark() {
    let end = Event::InitialEnd(12);
    story().watch(From::Now, &[Event::Added(a(12, 3)), end]).holds();
    story().watch(From::Now, &[Event::Added(a(11, 2)), Event::Modified(a(12, 3)), end]).holds();
    story().watch(From::Now, &[Event::Added(a(11, 2)), end]).breaks(Promise::Atomic, "o000 was at 12");
    story().watch(From::Now, &[end]).breaks(Promise::Atomic, "o000 was there");
    // They are as new as the writes before the request.
    story()
        .watch(From::Now, &[Event::Added(a(11, 2)), Event::InitialEnd(11)])
        .breaks(Promise::Linearizable, "version 12 was done by 0.000006 ms");
}

#[test]
fn an_event_does_not_come_before_its_write() {
    Story::created()
        .then((200, 300), Call::MergePatch { key: A }, Outcome::Written(a(11, 2)))
        .watch(From::Version(10), &[Event::Modified(a(11, 2))])
        .breaks(Promise::Linearizable, "event 0");
}

#[test]
fn a_watch_of_one_object_owes_nothing_about_others() {
    let b = again(B, 13, 4, 2);
    let two = || story().then((7, 8), Call::Create { key: B }, Outcome::Written(b));
    let events = [Event::Modified(a(11, 2)), Event::Modified(a(12, 3)), Event::Bookmark(14)];
    two().watch_of(Select::Name(A), From::Version(10), &events, Ended::Closed).holds();
    two().watch_of(Select::Name(B), From::Version(10), &[Event::Added(b)], Ended::Closed).holds();
    two().watch(From::Version(10), &events).breaks(Promise::Bookmarkable, "13 of o001");
}
