//! Writes that are done once, or never, on what they say they found.

use setpoint_history::{Call, Event, From, Outcome, Promise};

use crate::story::{A, B, Story, again, get, item, made_from};

const JSON: Call = Call::JsonPatch { key: A };

#[test]
fn a_lost_answer_may_be_done_or_not() {
    let update = Call::Update { key: A, expect: None };
    let lost = || Story::created().then((3, 4), update, Outcome::Unknown);
    lost().then((5, 6), get(A), Outcome::Found(item(A, 10, 1))).holds();
    lost().then((5, 6), get(A), Outcome::Found(item(A, 11, 2))).holds();
    // It may also be done much later.
    lost()
        .then((5, 6), get(A), Outcome::Found(item(A, 10, 1)))
        .then((7, 8), get(A), Outcome::Found(item(A, 11, 2)))
        .holds();
}

#[test]
fn a_lost_answer_that_was_done_stays_done() {
    let update = Call::Update { key: A, expect: None };
    Story::created()
        .then((3, 4), update, Outcome::Unknown)
        .then((5, 6), get(A), Outcome::Found(item(A, 11, 2)))
        .then((7, 8), get(A), Outcome::Found(item(A, 10, 1)))
        .breaks(Promise::Linearizable, "c0-4");
}

#[test]
fn a_write_that_was_refused_is_never_done() {
    let update = Call::Update { key: A, expect: None };
    Story::created()
        .then((3, 4), update, Outcome::Refused(429))
        .then((5, 6), get(A), Outcome::Found(item(A, 11, 2)))
        .breaks(Promise::Once, "a write that was refused is done");
}

#[test]
fn a_write_is_not_done_twice() {
    Story::updated()
        .then((5, 6), Call::MergePatch { key: A }, Outcome::Written(item(A, 12, 3)))
        .then((7, 8), get(A), Outcome::Found(item(A, 13, 2)))
        .breaks(Promise::Once, "done twice, at 11 and 13");
}

#[test]
fn nothing_is_there_that_nobody_wrote() {
    Story::created()
        .then((3, 4), get(A), Outcome::Found(item(A, 11, 9)))
        .breaks(Promise::Once, "nobody has written");
}

#[test]
fn a_version_is_one_state() {
    Story::updated()
        .then((3, 6), get(A), Outcome::Found(made_from(item(A, 11, 2), 1)))
        .breaks(Promise::OneState, "version 11 is two states");
    Story::default()
        .then((1, 5), Call::Create { key: A }, Outcome::Written(item(A, 10, 1)))
        .then((1, 5), Call::Create { key: B }, Outcome::Written(again(B, 10, 2, 2)))
        .breaks(Promise::OneState, "version 10 is two states");
}

#[test]
fn an_update_finds_the_version_that_it_names() {
    Story::updated()
        .then((5, 6), Call::Update { key: A, expect: Some(10) }, Outcome::Written(item(A, 12, 3)))
        .breaks(Promise::Follows, "an update is lost");
}

#[test]
fn an_update_may_name_a_version_that_nobody_else_saw() {
    let update = |expect| Call::Update { key: A, expect };
    Story::created()
        .then((3, 4), update(None), Outcome::Unknown)
        .then((5, 6), update(Some(11)), Outcome::Written(item(A, 12, 3)))
        .holds();
}

#[test]
fn a_patch_finds_the_state_before_it() {
    let patch =
        |found: u32| Story::updated().then((5, 6), JSON, Outcome::Written(made_from(item(A, 12, 3), found)));
    patch(2).holds();
    patch(1).breaks(Promise::Follows, "another state than the one before it");
    patch(3).breaks(Promise::Follows, "a patch is applied twice");
}

#[test]
fn a_merge_patch_keeps_what_it_does_not_name() {
    let patched = || Story::created().then((3, 4), JSON, Outcome::Written(made_from(item(A, 11, 2), 1)));
    let merge = Call::MergePatch { key: A };
    patched().then((5, 6), merge, Outcome::Written(made_from(item(A, 12, 3), 1))).holds();
    patched().then((5, 6), merge, Outcome::Written(item(A, 12, 3))).breaks(Promise::Follows, "merge patch");
}

#[test]
fn a_patch_may_find_what_nobody_saw() {
    let update = Call::Update { key: A, expect: None };
    let story = |outcome| {
        Story::created().then((3, 4), update, outcome).then(
            (5, 6),
            JSON,
            Outcome::Written(made_from(item(A, 12, 3), 2)),
        )
    };
    story(Outcome::Unknown).holds();
    story(Outcome::Refused(429)).breaks(Promise::Follows, "another state");
    // A watch that told of all versions leaves no room for it.
    let events = [Event::Added(item(A, 10, 1)), Event::Modified(made_from(item(A, 12, 3), 2))];
    story(Outcome::Unknown).watch(From::Version(9), &events).breaks(Promise::Follows, "another state");
}

#[test]
fn an_object_is_deleted_once_and_by_somebody() {
    let delete = Call::Delete { key: A, expect: None };
    let deleted = Event::Deleted(item(A, 11, 1));
    Story::created().then((3, 4), delete, Outcome::Deleted(1)).watch(From::Version(10), &[deleted]).holds();
    Story::created().then((3, 4), delete, Outcome::Unknown).watch(From::Version(10), &[deleted]).holds();
    Story::created().watch(From::Version(10), &[deleted]).breaks(Promise::Once, "nobody has deleted");
    Story::created()
        .then((3, 4), delete, Outcome::Deleted(1))
        .then((3, 4), delete, Outcome::Deleted(1))
        .breaks(Promise::Once, "one object is deleted twice");
}

#[test]
fn nothing_is_changed_after_it_was_deleted() {
    let delete = Call::Delete { key: A, expect: None };
    Story::created()
        .then((3, 4), delete, Outcome::Deleted(1))
        .then((5, 6), Call::MergePatch { key: A }, Outcome::Written(item(A, 12, 3)))
        .watch(From::Version(10), &[Event::Deleted(item(A, 11, 1))])
        .breaks(Promise::Follows, "changed that is not there");
}

#[test]
fn nothing_is_created_twice() {
    Story::created()
        .then((3, 4), Call::Create { key: A }, Outcome::Written(again(A, 11, 2, 2)))
        .breaks(Promise::Follows, "created while another has its name");
}
