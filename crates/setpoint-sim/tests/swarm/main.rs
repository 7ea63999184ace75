//! What the runtime promises, under a swarm of faults: two replicas of one controller, in thousands of worlds.
//!
//! `SETPOINT_SWARM_SEEDS` says how many worlds there are, `SETPOINT_SWARM_SEED` which is the first. A seed runs the same way
//! again.

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

/// Two replicas, leader election, caches, queues, and whatever goes wrong: nothing but the seed decides.
#[test]
fn a_seed_runs_the_same_way_again() {
    let first = number("SETPOINT_SWARM_SEED", 1);
    for seed in first..first + number("SETPOINT_SWARM_TWICE", 8) {
        let (one, other) = (run(seed), run(seed));
        let (one_hash, other_hash) = (one.trace.hash(), other.trace.hash());
        let differs = one.trace.entries().iter().zip(other.trace.entries()).find(|(one, other)| one != other);
        if let Some((one, other)) = differs {
            panic!("seed {seed} differs:\n{one}\n{other}");
        }
        assert_eq!(one_hash, other_hash, "seed {seed}: one run is longer");
    }
}
