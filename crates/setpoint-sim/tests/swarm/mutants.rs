//! The swarm itself is judged: with any promise switched off it must fail, and soon.

use std::sync::atomic::{AtomicBool, Ordering};

use setpoint::mutants::{Promise, without};

use crate::scenario::run;
use crate::sweep::{number, sweep};

/// After so many seeds a promise that is switched off counts as not missed.
const SEEDS: u64 = 3000;

#[test]
fn every_promise_that_is_switched_off_is_missed() {
    let only = std::env::var("SETPOINT_SWARM_MUTANT").ok();
    let first = number("SETPOINT_SWARM_SEED", 1);
    let mut survivors = Vec::new();
    for promise in Promise::ALL {
        if only.as_ref().is_some_and(|only| *only != format!("{promise:?}")) {
            continue;
        }
        let enough = AtomicBool::new(false);
        let broken = |seed| {
            let mut verdict = without(promise, || run(seed));
            // What fails with all promises kept says nothing about this one.
            if !verdict.violations.is_empty() && !run(seed).violations.is_empty() {
                verdict.violations.clear();
            }
            enough.fetch_or(!verdict.violations.is_empty(), Ordering::Relaxed);
            verdict
        };
        match sweep(first, SEEDS, broken, &enough).first() {
            Some((seed, verdict)) => {
                println!("{promise:?}: missed after {} seeds: {}", seed - first + 1, verdict.violations[0]);
            }
            None => survivors.push(promise),
        }
    }
    assert!(survivors.is_empty(), "{SEEDS} seeds do not miss these promises: {survivors:?}");
}
