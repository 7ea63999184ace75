use std::fmt;
use std::time::Duration;

use super::RateLimiter;

/// Several limiters; the longest wait counts.
#[must_use]
#[doc(alias = "TypedMaxOfRateLimiter")]
pub struct MaxOf<K> {
    limiters: Vec<Box<dyn RateLimiter<K>>>,
}

impl<K> MaxOf<K> {
    /// No limiter yet: nothing waits.
    pub fn new() -> MaxOf<K> {
        MaxOf { limiters: Vec::new() }
    }

    /// And this limiter.
    pub fn and(mut self, limiter: impl RateLimiter<K> + 'static) -> MaxOf<K> {
        self.limiters.push(Box::new(limiter));
        self
    }
}

impl<K> Default for MaxOf<K> {
    fn default() -> MaxOf<K> {
        MaxOf::new()
    }
}

impl<K> fmt::Debug for MaxOf<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaxOf").field("limiters", &self.limiters.len()).finish()
    }
}

impl<K> RateLimiter<K> for MaxOf<K> {
    fn when(&self, key: &K) -> Duration {
        self.limiters.iter().map(|limiter| limiter.when(key)).max().unwrap_or_default()
    }

    fn forget(&self, key: &K) {
        self.limiters.iter().for_each(|limiter| limiter.forget(key));
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.limiters.iter().map(|limiter| limiter.num_requeues(key)).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FastSlow, ItemExponential};
    use super::*;

    #[test]
    fn the_longest_wait_counts_and_all_are_asked() {
        let (one, five) = (Duration::from_millis(1), Duration::from_millis(5));
        let limiter = MaxOf::new()
            .and(FastSlow::new(five, Duration::from_secs(3), 3))
            .and(ItemExponential::new(one, Duration::from_secs(1)));
        let waits: Vec<_> = (0..5).map(|_| limiter.when(&"a").as_millis()).collect();
        assert_eq!(waits, [5, 5, 5, 3000, 3000]);
        assert_eq!(limiter.num_requeues(&"a"), 5);
        limiter.forget(&"a");
        assert_eq!((limiter.num_requeues(&"a"), limiter.when(&"a")), (0, five));
    }

    #[test]
    fn without_limiters_nothing_waits() {
        assert_eq!(MaxOf::new().when(&1), Duration::ZERO);
    }
}
