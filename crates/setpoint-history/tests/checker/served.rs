//! Calls that are always valid are not refused, and each kind of call is counted by what came of it.

use setpoint_history::{Call, Ended, Fresh, From, Outcome, Promise, Select};

use crate::story::{A, Story, get, item, list};

const MERGE: Call = Call::MergePatch { key: A };

fn answered(call: Call, outcome: Outcome) -> Story {
    Story::created().then((3, 4), call, outcome)
}

#[test]
fn a_valid_call_is_not_refused() {
    for call in
        [MERGE, Call::Apply { key: A }, Call::Update { key: A, expect: None }, get(A), list(Fresh::Latest)]
    {
        answered(call, Outcome::Refused(422)).breaks(Promise::Served, "is refused with 422");
        // Whoever is busy may say so.
        answered(call, Outcome::Refused(429)).holds();
        answered(call, Outcome::Failed(503)).holds();
    }
}

#[test]
fn a_call_that_names_no_version_meets_no_conflict() {
    let delete = Call::Delete { key: A, expect: None };
    let calls = [
        MERGE,
        Call::JsonPatch { key: A },
        Call::StrategicPatch { key: A },
        Call::Apply { key: A },
        Call::Update { key: A, expect: None },
        Call::DeleteCollection { limit: None },
        delete,
    ];
    for call in calls {
        answered(call, Outcome::Conflict).breaks(Promise::Served, "names no version meets a conflict");
    }
    answered(Call::Update { key: A, expect: Some(9) }, Outcome::Conflict).holds();
}

#[test]
fn an_apply_makes_the_object_or_changes_it() {
    let apply = Call::Apply { key: A };
    Story::default().then((1, 2), apply, Outcome::Written(item(A, 10, 1))).holds();
    Story::default().then((1, 2), apply, Outcome::NotFound).breaks(Promise::Served, "finds none");
    answered(apply, Outcome::AlreadyExists).breaks(Promise::Served, "there already");
    answered(apply, Outcome::Written(item(A, 11, 2))).holds();
}

#[test]
fn only_old_versions_are_gone() {
    answered(list(Fresh::Exact(3)), Outcome::Expired).holds();
    answered(list(Fresh::Latest), Outcome::Expired).breaks(Promise::Served, "is told that it is gone");
    answered(MERGE, Outcome::Expired).breaks(Promise::Served, "is told that it is gone");
}

#[test]
fn a_watch_is_not_refused_and_ends_with_no_error() {
    let watch = |ended| Story::created().watch_of(Select::All, From::Version(9), &[], ended);
    watch(Ended::Failed(403)).breaks(Promise::Served, "a watch that is valid ends with 403");
    watch(Ended::Expired).holds();
    watch(Ended::Failed(429)).holds();
    let story = watch(Ended::Failed(500));
    assert_eq!(story.verdict().unanswered(), 1);
    story.holds();
}

#[test]
fn what_is_never_done_is_named() {
    let mut story = Story::created();
    for at in (0..40).step_by(2) {
        story = story.then((at + 3, at + 4), MERGE, Outcome::Failed(500));
        story = story.then((at + 3, at + 4), get(A), Outcome::Found(item(A, 10, 1)));
    }
    let verdict = story.verdict();
    assert_eq!(verdict.total, 0, "{verdict}");
    assert_eq!(verdict.never_done(), ["merge patch"]);
    assert_eq!(verdict.unanswered(), 20);
    let tally = verdict.calls["merge patch"];
    assert_eq!((tally.failed, tally.done, verdict.calls["get"].done), (20, 0, 20));
    assert!(verdict.to_string().contains("merge patch: 0 done, 20 failed"), "{verdict}");
}
