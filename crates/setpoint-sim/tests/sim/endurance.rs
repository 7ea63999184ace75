//! Many runs: the same seed gives the same one, wherever it runs, and memory does not grow. `cargo xtask explore --endurance`
//! has more of them than every test run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use setpoint_sim::Explorer;

use crate::explore::scenario;

fn number(name: &str, unless_set: u64) -> u64 {
    std::env::var(name).map_or(unless_set, |text| text.parse().expect("a number"))
}

/// The hashes of runs, spread over threads.
fn hashes(explorer: &Explorer, seeds: u64, threads: u64) -> Vec<u64> {
    let mut all = vec![0; usize::try_from(seeds).expect("a number of runs")];
    let share = all.len().div_ceil(usize::try_from(threads).expect("a number of threads")).max(1);
    thread::scope(|scope| {
        for (part, chunk) in all.chunks_mut(share).enumerate() {
            scope.spawn(move || {
                for (at, hash) in chunk.iter_mut().enumerate() {
                    *hash = explorer.hash((part * share + at) as u64);
                }
            });
        }
    });
    all
}

#[test]
#[allow(clippy::print_stdout, reason = "what it prints is compared with other runs of it")]
fn a_seed_gives_the_same_run_again_and_another_seed_another_order() {
    let explorer = Explorer::new("copy", scenario);
    let (seeds, threads) = (number("SETPOINT_SIM_SEEDS", 40), number("SETPOINT_SIM_THREADS", 2));
    let first = hashes(&explorer, seeds, threads);
    // The other way around: what ran on one thread runs on another.
    let second = hashes(&explorer, seeds, threads + 1);
    for (seed, (first, second)) in first.iter().zip(&second).enumerate() {
        assert_eq!(first, second, "seed {seed}");
    }
    assert!(first.iter().any(|hash| *hash != first[0]));
    let all = first.iter().fold(0u64, |all, hash| all.rotate_left(7) ^ hash);
    println!("all seeds: {all:016x}");
}

/// Memory that this process has, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a number");
    line.trim().trim_end_matches("kB").trim().parse().expect("a number")
}

#[test]
#[allow(clippy::print_stdout, reason = "it prints its figures")]
fn memory_does_not_grow_with_the_number_of_runs() {
    let (runs, threads) = (number("SETPOINT_SIM_RUNS", 60), number("SETPOINT_SIM_THREADS", 2));
    let explorer = Explorer::new("copy", scenario);
    let (next, warm) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let run = next.fetch_add(1, Ordering::Relaxed);
                    if run >= runs {
                        return;
                    }
                    explorer.hash(run);
                    let done = run + 1;
                    if done == (runs / 10).max(20) {
                        warm.store(resident(), Ordering::Relaxed);
                    }
                    if done >= 10 && done.to_string().trim_end_matches('0') == "1" {
                        println!("after {done} runs: {} KiB", resident());
                    }
                }
            });
        }
    });
    let (before, after) = (warm.load(Ordering::Relaxed), resident());
    println!("after {runs} runs: {after} KiB");
    // Allocators keep some, and other tests run beside this one.
    assert!(after < before + before / 4 + 64 * 1024, "{before} KiB, and {after} KiB after {runs} runs");
}
