use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::RateLimiter;

/// All keys together: `burst` at once, then `rate` a second. It knows no keys, so it has nothing to forget.
#[derive(Debug)]
#[doc(alias = "TypedBucketRateLimiter")]
pub struct TokenBucket {
    /// The time that one token takes to come back.
    interval: Duration,
    /// How long an empty bucket takes to fill.
    fill: Duration,
    /// When the bucket is full again.
    full: Mutex<Option<Instant>>,
}

impl TokenBucket {
    /// `burst` tokens, and `rate` new ones a second. A rate that is not positive never gives a second burst:
    /// such keys wait for a century.
    pub fn new(rate: f64, burst: u32) -> TokenBucket {
        const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
        let interval = Duration::try_from_secs_f64(1.0 / rate).unwrap_or(CENTURY).min(CENTURY);
        TokenBucket { interval, fill: interval.saturating_mul(burst), full: Mutex::new(None) }
    }

    /// Takes a token; says how long it takes until it is there. Tokens can be owed.
    fn take(&self, now: Instant) -> Duration {
        let mut full = self.full.lock();
        let was_full = full.map_or(now, |full| full.max(now));
        // A bucket that owes for centuries is as good as one that owes for one.
        let next = was_full.checked_add(self.interval).unwrap_or(was_full);
        *full = Some(next);
        next.duration_since(now).saturating_sub(self.fill)
    }
}

/// Ten a second after the first hundred.
impl Default for TokenBucket {
    fn default() -> TokenBucket {
        TokenBucket::new(10.0, 100)
    }
}

impl<K> RateLimiter<K> for TokenBucket {
    fn when(&self, _key: &K) -> Duration {
        self.take(Instant::now())
    }

    fn forget(&self, _key: &K) {}

    fn num_requeues(&self, _key: &K) -> u32 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn after_the_burst_each_key_waits_its_turn() {
        let bucket = TokenBucket::default();
        (0..100).for_each(|_| assert_eq!(bucket.when(&1), Duration::ZERO));
        for n in 1..20 {
            assert_eq!(bucket.when(&n), Duration::from_millis(100) * n);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_come_back_with_time_but_not_more_than_the_burst() {
        let bucket = TokenBucket::new(10.0, 3);
        let waits: Vec<_> = (0..5).map(|_| bucket.when(&1).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200]);
        tokio::time::advance(Duration::from_millis(300)).await;
        assert_eq!(bucket.when(&1), Duration::ZERO);
        assert_eq!(bucket.when(&1), Duration::from_millis(100));
        tokio::time::advance(Duration::from_secs(3600)).await;
        let waits: Vec<_> = (0..4).map(|_| bucket.when(&1).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_of_nothing_gives_the_burst_only() {
        for rate in [0.0, -1.0, f64::NAN] {
            let bucket = TokenBucket::new(rate, 1);
            assert_eq!(bucket.when(&1), Duration::ZERO);
            assert!(bucket.when(&1) > Duration::from_secs(1_000_000));
        }
    }
}
