//! How long a key that failed has to wait.

mod exponential;
mod fast_slow;
mod max_of;
mod max_wait;
mod token_bucket;

use std::hash::Hash;
use std::time::Duration;

pub use exponential::ItemExponential;
pub use fast_slow::FastSlow;
use hashbrown::HashMap;
pub use max_of::MaxOf;
pub use max_wait::WithMaxWait;
use parking_lot::Mutex;
pub use token_bucket::TokenBucket;

/// Says how long a key waits before its next try.
///
/// ```
/// use std::time::Duration;
/// use setpoint::workqueue::{ItemExponential, RateLimiter};
///
/// let limiter = ItemExponential::default();
/// assert_eq!(limiter.when(&"a"), Duration::from_millis(5));
/// assert_eq!(limiter.when(&"a"), Duration::from_millis(10));
/// assert_eq!(limiter.num_requeues(&"a"), 2);
/// limiter.forget(&"a");
/// assert_eq!(limiter.when(&"a"), Duration::from_millis(5));
/// ```
#[doc(alias = "TypedRateLimiter")]
pub trait RateLimiter<K>: Send + Sync {
    /// Counts one more failure of the key, and says how long it has to wait.
    fn when(&self, key: &K) -> Duration;

    /// Forgets the failures of the key: it succeeded, or nobody tries again.
    fn forget(&self, key: &K);

    /// How many failures are counted since the key was forgotten.
    fn num_requeues(&self, key: &K) -> u32;
}

/// What [`WorkQueue::new`](crate::WorkQueue::new) uses: the longer one of [`ItemExponential`] (5 ms doubling
/// up to 1000 s a key) and [`TokenBucket`] (ten a second for all keys together, after the first hundred).
#[doc(alias = "DefaultTypedControllerRateLimiter")]
pub fn default_limiter<K: Eq + Hash + Clone + Send + 'static>() -> MaxOf<K> {
    MaxOf::new().and(ItemExponential::default()).and(TokenBucket::default())
}

/// How often each key has failed. Never iterated, so the order of the map reaches nobody.
#[derive(Debug)]
struct Failures<K> {
    counts: Mutex<HashMap<K, u32>>,
}

impl<K> Default for Failures<K> {
    fn default() -> Failures<K> {
        Failures { counts: Mutex::default() }
    }
}

impl<K: Eq + Hash + Clone> Failures<K> {
    /// Counts one more; says how many there were before.
    fn count(&self, key: &K) -> u32 {
        let mut counts = self.counts.lock();
        if let Some(count) = counts.get_mut(key) {
            let before = *count;
            *count = before.saturating_add(1);
            return before;
        }
        counts.insert(key.clone(), 1);
        0
    }

    fn forget(&self, key: &K) {
        let forgotten = self.counts.lock().remove_entry(key);
        drop(forgotten);
    }

    fn get(&self, key: &K) -> u32 {
        self.counts.lock().get(key).copied().unwrap_or(0)
    }
}
