//! How many events an object may have.

use std::time::Duration;

use setpoint_env::Later;
use tokio::time::Instant;

/// Tokens: some at once, then one in a while.
#[derive(Debug)]
pub(super) struct Allowance {
    /// When all tokens are there again.
    full: Instant,
}

/// How many events a source may have about an object at once.
const BURST: u32 = 25;
/// How long one more takes then.
const INTERVAL: Duration = Duration::from_secs(300);

impl Allowance {
    pub(super) fn new(now: Instant) -> Allowance {
        Allowance { full: now }
    }

    /// Takes a token, if one is there.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let full = self.full.max(now).later(INTERVAL);
        let allowed = full.duration_since(now) <= INTERVAL.saturating_mul(BURST);
        if allowed {
            self.full = full;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn there_are_25_at_once_and_then_one_in_five_minutes() {
        let start = Instant::now();
        let mut allowance = Allowance::new(start);
        let mut taken = |seconds| allowance.take(start + Duration::from_secs(seconds));
        assert_eq!((0..100).filter(|_| taken(0)).count(), 25);
        assert!(!taken(299));
        assert!(taken(300));
        assert!(!taken(301));
        assert_eq!((0..10).filter(|_| taken(1500)).count(), 4);
        assert_eq!((0..100).filter(|_| taken(100_000)).count(), 25);
    }
}
