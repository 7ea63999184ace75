//! What the runtime promises, under a swarm of faults: two replicas of one controller, in thousands of worlds.
//!
//! `SETPOINT_SWARM_SEEDS` says how many worlds there are, `SETPOINT_SWARM_SEED` which is the first.

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

#[test]
fn a_world_of_the_swarm_runs_the_same_way_twice() {
    for seed in 1..=3 {
        let (first, second) = (run(seed).trace, run(seed).trace);
        let mut pairs = first.entries().iter().zip(second.entries());
        if let Some((one, other)) = pairs.find(|(one, other)| one != other) {
            panic!("seed {seed} once did\n  {one}\nand once\n  {other}");
        }
        assert_eq!(first.entries().len(), second.entries().len(), "seed {seed}");
    }
}
