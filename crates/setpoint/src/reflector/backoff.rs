//! How long to wait after a failure.

use std::time::Duration;

use setpoint_env::{Env, Later};
use tokio::time::Instant;

/// How waiting grows after failures: `first`, then twice as long each time up to `most`, each wait made up
/// to twice as long at random; from the start again after `reset` without a failure.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct Backoff {
    /// The first wait.
    pub first: Duration,
    /// The longest wait, before randomness.
    pub most: Duration,
    /// After this time without a failure, the next wait is the first again.
    pub reset: Duration,
}

/// 800 ms, doubling up to 30 s, from the start again after 2 minutes: client-go's numbers.
impl Default for Backoff {
    fn default() -> Backoff {
        Backoff {
            first: Duration::from_millis(800),
            most: Duration::from_secs(30),
            reset: Duration::from_secs(120),
        }
    }
}

/// No wait is longer, whatever the settings say: time that is added up must not overflow.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// A back-off and where it has got to.
pub(crate) struct BackoffState {
    backoff: Backoff,
    env: Env,
    next: Duration,
    last_failure: Option<Instant>,
}

impl BackoffState {
    pub(crate) fn new(backoff: Backoff, env: Env) -> BackoffState {
        let (first, most) = (backoff.first.min(LONGEST), backoff.most.min(LONGEST));
        let backoff = Backoff { first, most, ..backoff };
        BackoffState { next: first, backoff, env, last_failure: None }
    }

    /// How long to wait after the failure that happened now.
    pub(crate) fn next(&mut self) -> Duration {
        let now = self.env.instant();
        if self.was_healthy_for(self.backoff.reset, now) {
            self.next = self.backoff.first;
        }
        let base = self.next;
        self.next = base.saturating_mul(2).min(self.backoff.most);
        let wait = self.env.jitter(base, 1.0);
        // Health is counted from the end of the wait.
        self.last_failure = Some(now.later(wait));
        wait
    }

    /// The same, but the first failure after a time of health costs nothing. That time is never shorter than the
    /// longest wait, whatever the settings say.
    pub(super) fn next_unless_first(&mut self) -> Duration {
        let now = self.env.instant();
        if !self.was_healthy_for(self.backoff.reset.max(self.backoff.most), now) {
            return self.next();
        }
        self.next = self.backoff.first;
        self.last_failure = Some(now);
        Duration::ZERO
    }

    fn was_healthy_for(&self, time: Duration, now: Instant) -> bool {
        self.last_failure.is_none_or(|last| now.duration_since(last) > time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_double_from_800_ms_to_30_s_and_each_is_up_to_twice_as_long_at_random() {
        let mut backoff = BackoffState::new(Backoff::default(), Env::seeded(1));
        for base in [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000] {
            let (base, wait) = (Duration::from_millis(base), backoff.next());
            assert!(base <= wait && wait <= base * 2, "{base:?} gave {wait:?}");
            tokio::time::sleep(wait).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn settings_without_sense_neither_overflow_nor_make_failures_free() {
        let (first, most, reset) = (Duration::MAX, Duration::MAX, Duration::ZERO);
        let mut backoff = BackoffState::new(Backoff { first, most, reset }, Env::seeded(1));
        for _ in 0..3 {
            assert!(backoff.next() <= 2 * LONGEST);
        }
        let backoff = Backoff { reset: Duration::ZERO, ..Backoff::default() };
        let mut backoff = BackoffState::new(backoff, Env::seeded(1));
        assert!(backoff.next_unless_first().is_zero());
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(!backoff.next_unless_first().is_zero());
    }

    #[tokio::test(start_paused = true)]
    async fn two_healthy_minutes_reset_the_wait() {
        let mut backoff = BackoffState::new(Backoff::default(), Env::seeded(1));
        for _ in 0..5 {
            let wait = backoff.next();
            tokio::time::sleep(wait + Duration::from_secs(119)).await;
        }
        let wait = backoff.next();
        assert!(wait >= Duration::from_millis(25_600));
        tokio::time::sleep(wait + Duration::from_secs(121)).await;
        assert!(backoff.next() <= Duration::from_millis(1600));
    }
}
