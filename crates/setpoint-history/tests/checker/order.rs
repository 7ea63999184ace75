//! Reads, refusals and writes in real time.

use std::time::Duration;

use setpoint_env::Env;
use setpoint_history::{Call, Event, Fresh, From, Outcome, Promise};

use crate::story::{A, B, Story, again, get, item, list, listed};

#[test]
fn a_read_sees_what_was_written_before_it() {
    Story::updated().then((5, 6), get(A), Outcome::Found(item(A, 11, 2))).holds();
}

#[test]
fn a_read_that_overlaps_a_write_sees_either_state() {
    for item in [item(A, 10, 1), item(A, 11, 2)] {
        Story::updated().then((3, 5), get(A), Outcome::Found(item)).holds();
    }
}

#[test]
fn a_read_of_an_old_state_after_the_write_is_stale() {
    Story::updated()
        .then((5, 6), get(A), Outcome::Found(item(A, 10, 1)))
        .breaks(Promise::Linearizable, "version 11 was done by 0.000004 ms");
}

#[test]
fn a_read_of_any_state_may_be_stale() {
    let any = Call::Get { key: A, fresh: Fresh::Any };
    Story::updated().then((5, 6), any, Outcome::Found(item(A, 10, 1))).holds();
}

#[test]
fn two_reads_do_not_go_back_in_time() {
    // The update takes from 3 to 20: each read alone is right.
    let story = |first, second| {
        let update = Call::Update { key: A, expect: None };
        Story::created()
            .then((3, 20), update, Outcome::Written(item(A, 11, 2)))
            .then((5, 6), get(A), Outcome::Found(first))
            .then((7, 8), get(A), Outcome::Found(second))
    };
    story(item(A, 10, 1), item(A, 11, 2)).holds();
    story(item(A, 11, 2), item(A, 10, 1)).breaks(Promise::Linearizable, "c0-4: get o000");
}

#[test]
fn a_read_sees_nothing_from_the_future() {
    Story::created()
        .then((3, 4), get(A), Outcome::Found(item(A, 11, 3)))
        .then((5, 6), Call::MergePatch { key: A }, Outcome::Written(item(A, 11, 3)))
        .breaks(Promise::Linearizable, "c0-2: get o000");
}

#[test]
fn versions_of_different_objects_follow_real_time_too() {
    let create = |key| Call::Create { key };
    Story::default()
        .then((1, 2), create(A), Outcome::Written(item(A, 20, 1)))
        .then((3, 4), create(B), Outcome::Written(again(B, 19, 2, 2)))
        .breaks(Promise::Linearizable, "create o001");
}

#[test]
fn a_list_is_as_new_as_the_writes_before_it() {
    Story::updated().then((5, 6), list(Fresh::Latest), listed(11, &[item(A, 11, 2)])).holds();
    Story::updated()
        .then((5, 6), list(Fresh::Latest), listed(10, &[item(A, 10, 1)]))
        .breaks(Promise::Linearizable, "list; from");
    Story::updated().then((5, 6), list(Fresh::Any), listed(10, &[item(A, 10, 1)])).holds();
}

#[test]
fn what_is_there_is_found() {
    Story::created().then((3, 4), get(A), Outcome::NotFound).breaks(Promise::Linearizable, "not found");
    Story::created().then((2, 4), get(B), Outcome::NotFound).holds();
    Story::default()
        .then((1, 3), Call::Create { key: A }, Outcome::Written(item(A, 10, 1)))
        .then((2, 4), get(A), Outcome::NotFound)
        .holds();
}

#[test]
fn what_is_not_there_does_not_exist_already() {
    let create = Call::Create { key: A };
    Story::created().then((3, 4), create, Outcome::AlreadyExists).holds();
    Story::default()
        .then((1, 2), create, Outcome::AlreadyExists)
        .breaks(Promise::Linearizable, "already exists");
}

#[test]
fn a_conflict_needs_another_version() {
    let update = |expect| Call::Update { key: A, expect: Some(expect) };
    Story::updated().then((5, 6), update(10), Outcome::Conflict).holds();
    Story::updated()
        .then((5, 6), update(11), Outcome::Conflict)
        .breaks(Promise::Linearizable, "if it is at 11");
}

#[test]
fn what_was_seen_is_not_missing_later() {
    // Delete and create take from 4 to 20: who has seen the new object does not find it gone afterwards.
    let events =
        [Event::Added(item(A, 10, 1)), Event::Deleted(item(A, 11, 1)), Event::Added(again(A, 12, 3, 2))];
    let gaps = |first: (u64, u64), second: (u64, u64)| {
        let delete = Call::Delete { key: A, expect: None };
        Story::default()
            .then((1, 2), Call::Create { key: A }, Outcome::Written(item(A, 10, 1)))
            .then((3, 20), delete, Outcome::Deleted(1))
            .then((4, 21), Call::Create { key: A }, Outcome::Written(again(A, 12, 3, 2)))
            .then(first, get(A), Outcome::Found(again(A, 12, 3, 2)))
            .then(second, get(A), Outcome::NotFound)
            .watch(From::Version(9), &events)
    };
    gaps((9, 10), (5, 6)).holds();
    gaps((5, 6), (9, 10)).breaks(Promise::Linearizable, "not found");
}

#[test]
fn an_answered_delete_may_be_at_a_version_that_nobody_saw() {
    let delete = Call::Delete { key: A, expect: None };
    let deleted = || Story::created().then((3, 4), delete, Outcome::Deleted(1));
    deleted().then((5, 6), get(A), Outcome::NotFound).holds();
    deleted().then((2, 6), get(A), Outcome::Found(item(A, 10, 1))).holds();
    deleted()
        .then((5, 6), get(A), Outcome::Found(item(A, 10, 1)))
        .breaks(Promise::Linearizable, "read that was deleted before");
    // But only once for each object.
    deleted()
        .then((5, 6), Call::Create { key: A }, Outcome::Written(again(A, 12, 3, 2)))
        .then((7, 8), get(A), Outcome::NotFound)
        .breaks(Promise::Linearizable, "not found");
}

/// Update `n` makes version 100 + n between 10n - 8 and 10n + 9. It overlaps an update that names just this version, and is
/// refused: before version 100 + n was there, or after the next one.
fn refusals(count: u32, first_ends: u64) -> Story {
    let version = |link: u32| 100 + u64::from(link);
    let created = Outcome::Written(item(A, 100, 1));
    let mut story = Story::default().then((1, 2), Call::Create { key: A }, created);
    for link in 1..=count + 1 {
        let at = u64::from(link) * 10;
        let end = if link == 1 { first_ends } else { at + 9 };
        let written = Outcome::Written(item(A, version(link), link * 2));
        story = story.then((at - 8, end), Call::Update { key: A, expect: None }, written);
        if link <= count {
            let refused = Call::Update { key: A, expect: Some(version(link)) };
            story = story.then((at, at + 4), refused, Outcome::Conflict);
        }
    }
    story
}

/// The last of them cannot have been after the next version: a read shows that. So the one before cannot, and so on.
fn chain(count: u32, first_ends: u64) -> Story {
    let (at, version) = (u64::from(count) * 10, 100 + u64::from(count));
    let read = Outcome::Found(item(A, version, count * 2));
    refusals(count, first_ends).then((at + 5, at + 9), get(A), read)
}

#[test]
fn what_a_read_shows_decides_about_refusals_before_it() {
    for count in [1, 2, 3, 10] {
        refusals(count, 19).holds();
        refusals(count, 9).holds();
        chain(count, 19).holds();
        chain(count, 9).breaks(Promise::Linearizable, "if it is at 101; from 0.000010 to 0.000014 ms");
    }
}

#[test]
fn a_chain_of_refusals_takes_no_longer_than_as_many_others() {
    let begun = Env::system().instant();
    chain(20_000, 19).holds();
    chain(20_000, 9).breaks(Promise::Linearizable, "if it is at 101; from 0.000010 to 0.000014 ms");
    // Choosing anew for all refusals, link by link, takes minutes.
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}
