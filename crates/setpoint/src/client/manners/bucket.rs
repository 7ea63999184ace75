//! So many requests a second.

use std::time::Duration;

use setpoint_env::{Env, Later};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

/// Tokens that come back with time. Who waits for one stands in line, first come, first served; who leaves the line
/// takes none.
#[derive(Debug)]
pub(super) struct Bucket {
    /// The time that one token takes to come back.
    interval: Duration,
    /// How long an empty bucket takes to fill.
    fill: Duration,
    /// When the bucket is full again. The lock is the head of the line: it is held while waiting for the next token.
    full: Mutex<Option<Instant>>,
}

impl Bucket {
    /// None if there is no limit.
    pub(super) fn new(qps: f64, burst: u32) -> Option<Bucket> {
        if qps.is_nan() || qps <= 0.0 {
            return None;
        }
        let interval = Duration::try_from_secs_f64(1.0 / qps).unwrap_or(Duration::MAX);
        Some(Bucket { interval, fill: interval.saturating_mul(burst.max(1)), full: Mutex::new(None) })
    }

    /// Waits for a token, and takes it.
    pub(super) async fn take(&self, env: &Env) {
        let mut full = self.full.lock().await;
        let now = env.instant();
        let next = full.map_or(now, |full| full.max(now)).later(self.interval);
        let wait = next.saturating_duration_since(now).saturating_sub(self.fill);
        if !wait.is_zero() {
            sleep(wait).await;
        }
        *full = Some(next);
    }
}
