use std::hash::Hash;
use std::time::Duration;

use super::{Failures, RateLimiter};

/// Each key waits `base` after its first failure, then twice as long each time, `most` at most.
#[derive(Debug)]
#[doc(alias = "TypedItemExponentialFailureRateLimiter")]
pub struct ItemExponential<K> {
    base: Duration,
    most: Duration,
    failures: Failures<K>,
}

impl<K> ItemExponential<K> {
    /// Waits from `base` to `most`.
    pub fn new(base: Duration, most: Duration) -> ItemExponential<K> {
        ItemExponential { base, most, failures: Failures::default() }
    }
}

/// From 5 ms to 1000 s.
impl<K> Default for ItemExponential<K> {
    fn default() -> ItemExponential<K> {
        ItemExponential::new(Duration::from_millis(5), Duration::from_secs(1000))
    }
}

impl<K: Eq + Hash + Clone + Send> RateLimiter<K> for ItemExponential<K> {
    fn when(&self, key: &K) -> Duration {
        let factor = 1u32.checked_shl(self.failures.count(key));
        factor.and_then(|factor| self.base.checked_mul(factor)).map_or(self.most, |wait| wait.min(self.most))
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
    fn waits_double_up_to_the_longest_and_stay_there() {
        let limiter = ItemExponential::default();
        for n in 0..18 {
            let wait = Duration::from_millis(5 << n).min(Duration::from_secs(1000));
            assert_eq!(limiter.when(&1), wait, "failure {n}");
        }
        (0..100).for_each(|_| assert_eq!(limiter.when(&1), Duration::from_secs(1000)));
        assert_eq!(limiter.num_requeues(&1), 118);
    }

    #[test]
    fn keys_do_not_know_of_each_other() {
        let limiter = ItemExponential::default();
        limiter.when(&1);
        limiter.when(&1);
        assert_eq!(limiter.when(&2), Duration::from_millis(5));
        limiter.forget(&1);
        assert_eq!((limiter.num_requeues(&1), limiter.num_requeues(&2)), (0, 1));
    }

    #[test]
    fn a_huge_base_does_not_overflow() {
        let limiter = ItemExponential::new(Duration::from_secs(u64::MAX / 2), Duration::MAX);
        let waits: Vec<_> = (0..70).map(|_| limiter.when(&1)).collect();
        assert_eq!(waits[69], Duration::MAX);
    }
}
