//! What the runtime promises, under a swarm of faults: two replicas of one controller, in thousands of worlds.
//!
//! `SETPOINT_SWARM_SEEDS` says how many worlds there are, `SETPOINT_SWARM_SEED` which is the first. A seed runs nearly the
//! same way again: tokio's `watch` channels wake their receivers in an order of their own.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it says what it found")]

mod controller;
mod dice;
mod judge;
mod replica;
mod scenario;
mod sweep;

#[cfg(feature = "mutants")]
mod mutants;

use std::sync::atomic::AtomicBool;

use crate::scenario::run;
use crate::sweep::{number, sweep};

#[test]
fn a_swarm_of_faults_breaks_no_promise() {
    let (first, seeds) = (number("SETPOINT_SWARM_SEED", 1), number("SETPOINT_SWARM_SEEDS", 40));
    let failures = sweep(first, seeds, run, &AtomicBool::new(false));
    if let Some((seed, verdict)) = failures.first() {
        for line in &verdict.story {
            eprintln!("{line}");
        }
        if seeds == 1 {
            eprintln!("{}", verdict.trace);
        }
        panic!(
            "{} of {seeds} seeds failed: {:?}\nseed {seed}:\n  {}\nto see it again: \
             SETPOINT_SWARM_SEED={seed} SETPOINT_SWARM_SEEDS=1 cargo test -p setpoint-sim --test swarm no_promise",
            failures.len(),
            failures.iter().map(|(seed, _)| seed).collect::<Vec<_>>(),
            verdict.violations.join("\n  "),
        );
    }
    println!("{seeds} seeds from {first}: no promise was broken");
}
