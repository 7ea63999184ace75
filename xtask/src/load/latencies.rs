//! How long answers took.

use std::time::Duration;

/// Times, shortest first.
pub(super) struct Latencies(Vec<Duration>);

impl Latencies {
    pub(super) fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// In milliseconds: 0.5 is the median, 1.0 the worst.
    pub(super) fn at(&self, part: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let index = (last as f64 * part) as usize;
        self.0.get(index).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
    }

    pub(super) fn print(&self, title: &str) {
        let (p50, p99, worst) = (self.at(0.5), self.at(0.99), self.at(1.0));
        let count = self.0.len();
        println!("{title:32} p50 {p50:7.2} ms  p99 {p99:7.2} ms  worst {worst:7.2} ms  ({count} requests)");
    }
}
