//! Many runs: the same seed gives the same one, wherever it runs, and memory does not grow. `cargo xtask explore --endurance`
//! has more of them than every test run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use setpoint_sim::Explorer;

use crate::explore::scenario;

fn number(name: &str, unless_set: u64) -> u64 {
    std::env::var(name).map_or(unless_set, |text| text.parse().expect("a number"))
}

#[test]
#[allow(clippy::print_stdout, reason = "what it prints is compared with other runs of it")]
fn a_seed_gives_the_same_run_again_and_another_seed_another_order() {
    let explorer = Explorer::new("copy", scenario);
    let seeds = number("SETPOINT_SIM_SEEDS", 40);
    let digest = explorer.check_determinism(0..seeds).unwrap_or_else(|error| panic!("{error}"));
    assert!((1..seeds).any(|seed| explorer.hash(seed) != explorer.hash(0)));
    println!("all seeds: {digest:016x}");
}

/// Memory that this process has, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a number");
    line.trim().trim_end_matches("kB").trim().parse().expect("a number")
}

/// What an allocator keeps varies by so much, in KiB; of 10^5 runs it is 80 bytes each.
const LEEWAY: u64 = 8 * 1024;

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
    // In every test run, others run beside this one, in the same process.
    let leeway = if runs < 1000 { 64 * 1024 } else { LEEWAY };
    assert!(after < before + leeway, "{before} KiB after a tenth, and {after} KiB after all {runs} runs");
}
