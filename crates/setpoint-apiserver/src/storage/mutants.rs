//! Stores with a known fault each, which the checker of histories must notice. They are tests of the checker: if one is
//! no longer caught, the checker has gone blind.

mod faults;
mod hunt;

use faults::Fault;
use hunt::hunt;
use setpoint_history::{Promise, Resource};

#[test]
fn a_store_without_a_fault_breaks_no_promise() {
    for seed in 0..4 {
        let resource = if seed % 2 == 0 { Resource::ConfigMaps } else { Resource::Pods };
        let verdict = hunt::record(Fault::None, resource, seed).1;
        assert_eq!(verdict.total, 0, "seed {seed}: {verdict}");
        assert!(verdict.operations > 500 && verdict.events > 500, "{verdict}");
        assert_eq!(verdict.never_done(), Vec::<&str>::new(), "{verdict}");
        assert_eq!(verdict.unanswered(), 0, "{verdict}");
    }
}

#[test]
fn an_event_that_is_forgotten_by_those_of_one_value_is_caught() {
    hunt(Fault::ForgottenByValue, &[Promise::Reliable, Promise::Resumable, Promise::Bookmarkable]);
}

#[test]
fn an_answer_before_the_commit_is_caught() {
    hunt(Fault::AnswerBeforeCommit, &[Promise::Linearizable, Promise::Snapshot]);
}

#[test]
fn an_event_that_is_skipped_on_resume_is_caught() {
    hunt(Fault::SkipOnResume, &[Promise::Resumable, Promise::Bookmarkable]);
}

#[test]
fn an_event_that_is_repeated_on_resume_is_caught() {
    hunt(Fault::RepeatOnResume, &[Promise::Resumable]);
}

#[test]
fn a_stale_read_that_is_given_as_the_newest_is_caught() {
    hunt(Fault::StaleRead, &[Promise::Linearizable]);
}

#[test]
fn a_delete_that_is_lost_at_a_compaction_is_caught() {
    hunt(Fault::LostDelete, &[Promise::Reliable, Promise::Resumable, Promise::Atomic, Promise::Bookmarkable]);
}

#[test]
fn a_list_of_two_moments_is_caught() {
    hunt(Fault::TwoMoments, &[Promise::Snapshot, Promise::Atomic]);
}

#[test]
fn a_patch_that_is_applied_twice_is_caught() {
    hunt(Fault::PatchTwice, &[Promise::Follows, Promise::Once]);
}

#[test]
fn a_commit_that_is_reported_as_a_conflict_is_caught() {
    hunt(Fault::ConflictAfterCommit, &[Promise::Once, Promise::Follows]);
}

#[test]
fn an_update_that_overwrites_another_is_caught() {
    hunt(Fault::LostUpdate, &[Promise::Follows]);
}

#[test]
fn a_write_that_is_lost_after_its_answer_is_caught() {
    hunt(Fault::LostWrite, &[Promise::Linearizable, Promise::Snapshot, Promise::OneState]);
}
