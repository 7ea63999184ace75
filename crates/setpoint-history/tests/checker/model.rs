//! Histories of a server that is right by construction, and what becomes of them when one thing is changed.

use proptest::prelude::*;
use setpoint_history::{Call, Event, Fresh, History, Item, Operation, Outcome, Promise, check, model};

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn nobody_is_blamed_who_is_right(seed in any::<u64>(), operations in 1..600_usize) {
        let verdict = check(&model::history(seed, operations));
        prop_assert_eq!(verdict.total, 0, "{}", verdict);
    }

    #[test]
    fn nobody_is_blamed_for_what_is_still_under_way(seed in any::<u64>(), at in 0..400_usize) {
        let history = model::history(seed, 400);
        let verdict = check(&history.until(history.ends()[at]));
        prop_assert_eq!(verdict.total, 0, "{}", verdict);
    }

    #[test]
    fn nobody_is_blamed_where_watches_have_gaps(seed in any::<u64>(), keep in 0..7_usize) {
        let mut history = model::history(seed, 400);
        let mut number = 0;
        history.watches.retain(|_| { number += 1; number % 7 < keep });
        let verdict = check(&history);
        prop_assert_eq!(verdict.total, 0, "{}", verdict);
    }

    #[test]
    fn an_event_that_is_taken_out_is_missed(seed in any::<u64>(), at in any::<prop::sample::Index>()) {
        let mut history = model::history(seed, 400);
        let watch = history.watches.iter_mut().find(|watch| watch.told.len() > 2);
        prop_assume!(watch.is_some());
        let told = &mut watch.unwrap().told;
        told.remove(at.index(told.len() - 1));
        let verdict = check(&history);
        let is_watch = |promise| matches!(promise, Promise::Reliable | Promise::Resumable);
        prop_assert!(verdict.violations.iter().any(|found| is_watch(found.promise)), "{}", verdict);
    }

    #[test]
    fn a_read_that_is_answered_from_the_past_is_noticed(seed in any::<u64>(), at in any::<prop::sample::Index>()) {
        let mut history = model::history(seed, 400);
        let Some((read, older)) = stale(&history, at) else { return Err(TestCaseError::reject("no such read")) };
        history.operations[read].outcome = older;
        let verdict = check(&history);
        prop_assert!(verdict.violations.iter().any(|found| found.promise == Promise::Linearizable), "{}", verdict);
    }
}

fn item(operation: &Operation) -> Option<Item> {
    match operation.outcome {
        Outcome::Written(item) => Some(item),
        _ => None,
    }
}

/// A read, and what it would have found if its object had not been changed by a write that was over by then.
fn stale(history: &History, at: prop::sample::Index) -> Option<(usize, Outcome)> {
    let reads: Vec<_> = history
        .operations
        .iter()
        .enumerate()
        .filter_map(|(index, read)| {
            let Call::Get { key, fresh: Fresh::Latest } = read.call else { return None };
            let written = |operation: &&Operation| {
                matches!(&operation.outcome, Outcome::Written(item) if item.key == key)
                    && operation.end < read.start
            };
            let mut items: Vec<_> = history.operations.iter().filter(written).filter_map(item).collect();
            items.sort_by_key(|item| item.version);
            let [.., older, _] = items[..] else { return None };
            Some((index, Outcome::Found(older)))
        })
        .collect();
    (!reads.is_empty()).then(|| at.get(&reads).clone())
}

#[test]
fn a_watch_that_is_cut_short_owes_nothing_more() {
    let mut history = model::history(7, 400);
    for watch in &mut history.watches {
        let half = watch.told.len() / 2;
        watch.told.truncate(half);
    }
    let verdict = check(&history);
    assert_eq!(verdict.total, 0, "{verdict}");
}

#[test]
fn the_model_has_all_that_is_to_be_checked() {
    let history = model::history(1, 2_000);
    let has =
        |wanted: fn(&Outcome) -> bool| history.operations.iter().any(|operation| wanted(&operation.outcome));
    assert!(has(|outcome| matches!(outcome, Outcome::Written(_))));
    assert!(has(|outcome| matches!(outcome, Outcome::Deleted(_))));
    assert!(has(|outcome| matches!(outcome, Outcome::Conflict)));
    assert!(has(|outcome| matches!(outcome, Outcome::NotFound)));
    assert!(has(|outcome| matches!(outcome, Outcome::AlreadyExists)));
    assert!(has(|outcome| matches!(outcome, Outcome::Unknown)));
    let events = history.watches.iter().flat_map(|watch| &watch.told);
    assert!(events.clone().any(|(_, event)| matches!(event, Event::Deleted(_))));
    assert!(check(&history).done_after_all > 0);
}
