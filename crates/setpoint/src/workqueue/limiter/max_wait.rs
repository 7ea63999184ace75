use std::time::Duration;

use super::RateLimiter;

/// Another limiter, with no wait longer than a bound.
#[derive(Debug)]
#[doc(alias = "TypedWithMaxWaitRateLimiter")]
pub struct WithMaxWait<L> {
    limiter: L,
    most: Duration,
}

impl<L> WithMaxWait<L> {
    /// What `limiter` says, but `most` at most.
    pub fn new(limiter: L, most: Duration) -> WithMaxWait<L> {
        WithMaxWait { limiter, most }
    }
}

impl<K, L: RateLimiter<K>> RateLimiter<K> for WithMaxWait<L> {
    fn when(&self, key: &K) -> Duration {
        self.limiter.when(key).min(self.most)
    }

    fn forget(&self, key: &K) {
        self.limiter.forget(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.limiter.num_requeues(key)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ItemExponential;
    use super::*;

    #[test]
    fn no_wait_is_longer_than_the_bound() {
        let limiter = WithMaxWait::new(ItemExponential::default(), Duration::from_millis(12));
        let waits: Vec<_> = (0..4).map(|_| limiter.when(&"a").as_millis()).collect();
        assert_eq!(waits, [5, 10, 12, 12]);
        assert_eq!(limiter.num_requeues(&"a"), 4);
    }
}
