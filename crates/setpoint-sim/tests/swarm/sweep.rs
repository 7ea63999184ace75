//! Many seeds, on all cores; each world stays in its thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use parking_lot::Mutex;

use crate::scenario::Verdict;

/// Runs the worlds of `count` seeds, and gives those that failed, in the order of their seeds. `enough` ends it early.
pub(crate) fn sweep(
    first: u64,
    count: u64,
    run: impl Fn(u64) -> Verdict + Sync,
    enough: &AtomicBool,
) -> Vec<(u64, Verdict)> {
    let (next, failures) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while !enough.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    let seed = first.wrapping_add(number);
                    let verdict = run(seed);
                    if !verdict.violations.is_empty() {
                        failures.lock().push((seed, verdict));
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner();
    failures.sort_by_key(|(seed, _)| *seed);
    failures
}

/// A number from the environment.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}
