use std::hash::Hash;
use std::time::Duration;

use super::{Failures, RateLimiter};

/// The first few failures of a key wait a short time, the others a long one.
#[derive(Debug)]
#[doc(alias = "TypedItemFastSlowRateLimiter")]
pub struct FastSlow<K> {
    fast: Duration,
    slow: Duration,
    fast_tries: u32,
    failures: Failures<K>,
}

impl<K> FastSlow<K> {
    /// `fast_tries` waits of `fast`, then `slow`.
    pub fn new(fast: Duration, slow: Duration, fast_tries: u32) -> FastSlow<K> {
        FastSlow { fast, slow, fast_tries, failures: Failures::default() }
    }
}

impl<K: Eq + Hash + Clone + Send> RateLimiter<K> for FastSlow<K> {
    fn when(&self, key: &K) -> Duration {
        if self.failures.count(key) < self.fast_tries { self.fast } else { self.slow }
    }

    fn forget(&self, key: &K) {
        self.failures.forget(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.failures.get(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_tries_are_fast_and_the_others_slow() {
        let (fast, slow) = (Duration::from_millis(5), Duration::from_secs(10));
        let limiter = FastSlow::new(fast, slow, 3);
        let waits: Vec<_> = (0..5).map(|_| limiter.when(&"a")).collect();
        assert_eq!(waits, [fast, fast, fast, slow, slow]);
        limiter.forget(&"a");
        assert_eq!(limiter.when(&"a"), fast);
    }
}
