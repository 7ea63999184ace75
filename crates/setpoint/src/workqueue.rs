//! Stage 5: reads keys from the informers' handlers, feeds the workers of a controller.
//!
//! The queue knows nothing of Kubernetes: a key is anything that can be compared and hashed.

mod holds;
mod item;
mod lanes;
mod limiter;
mod look;
mod metrics;
mod moment;
mod phase;
mod shared;
mod state;
mod steps;
mod sync;
mod telling;
mod timers;

use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub(crate) use holds::{Named, Until};
pub use item::{Get, Item};
pub use limiter::{FastSlow, ItemExponential, MaxOf, RateLimiter, TokenBucket, WithMaxWait, default_limiter};
pub use phase::Phase;
use setpoint_env::Later;
use tokio::time::Instant;

use self::item::Drain;
use self::metrics::QueueMetrics;
use self::shared::{ReleaseFn, Shared, WakeFn};
use self::state::Added;
pub(crate) use self::state::Released;
use self::steps::Steps;
pub(crate) use self::telling::SourceNames;
use self::telling::Telling;
use crate::facts::{Facts, Name, QueueProbe};
use crate::reasons::{self, Cause, Reason};
use crate::{Metrics, ObjectKey};

/// The priority of keys from a first list or a resync, so that live changes go first.
pub const LOW_PRIORITY: i32 = -100;

/// A queue of keys that want to be processed. Clones are the same queue.
///
/// What it promises:
/// - **Fair**: keys are processed in the order in which they were added, a higher priority first.
/// - **Stingy**: a key is processed by one worker at a time, and a key that was added ten times before it was
///   processed is processed once.
/// - **Many producers, many consumers**: anybody may add, also the one who works on the key. A key that is
///   added while it is being processed is queued again when it is done. It is never lost.
/// - **Shutdown**: [`WorkQueue::shut_down`] ends the adds, and the workers drain what is queued.
///
/// ```
/// # let rt = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
/// # rt.block_on(async {
/// use std::time::Duration;
/// use setpoint::WorkQueue;
///
/// let queue = WorkQueue::new();
/// queue.add("default/web");
/// queue.add("default/web"); // is queued already
/// queue.add_after("default/db", Duration::from_secs(60));
///
/// while let Some(item) = queue.get().await {
///     match *item {
///         "default/web" if queue.num_requeues(&item) < 3 => queue.add_rate_limited(*item), // try again
///         "default/web" => queue.forget(&item),                                            // give up
///         _ => queue.shut_down(),
///     }
///     item.done();
/// }
/// assert_eq!(queue.len(), 0);
/// # });
/// ```
///
/// # Priorities
/// A key has priority 0, unless it is added through [`WorkQueue::at_priority`]. The highest priority is got
/// first. So that nobody starves, every tenth get that has a choice between priorities takes the key that was
/// queued first, whatever its priority: a key with `n` older ones in the queue is got after at most
/// `10 * (n + 1)` gets. A queued key that is added again at a higher priority moves to the end of that one;
/// it never moves down.
///
/// # Delays
/// Keys that wait for their time are in the queue itself, and the waiting [`WorkQueue::get`]s mind the time:
/// there is no task in the background, and no task a key. While nobody gets, a key whose time has come stays
/// where it is; [`WorkQueue::len`] counts it.
///
/// # Held keys
/// A [`Controller`](crate::Controller) lets a key be held until its caches show what was written: it is neither
/// queued nor processing, and what is added meanwhile makes it dirty and does not release it. Whoever brings a cache
/// forward releases the keys that waited for just that; so no worker waits, and none is waited for. A limit releases
/// them too. A shutdown forgets them, as it forgets the keys that wait for their time.
///
/// # Where it differs from client-go's
/// - [`WorkQueue::shut_down_with_drain`] returns only when nothing is queued, and [`WorkQueue::get`] says
///   `None` only when no key can come any more, also none that a worker is about to give back.
/// - The item that `get` gives is done when it is dropped: a worker that panics blocks no key.
/// - One queue type has it all: `Interface`, `DelayingInterface` and `RateLimitingInterface`.
#[doc(alias = "TypedRateLimitingInterface")]
#[doc(alias = "scheduler")]
pub struct WorkQueue<K> {
    inner: Arc<Inner<K>>,
}

struct Inner<K> {
    shared: Shared<K>,
    limiter: Box<dyn RateLimiter<K>>,
    metrics: Option<QueueMetrics>,
    telling: Option<Telling<K>>,
}

/// Settings of a [`WorkQueue`].
#[must_use]
pub struct WorkQueueBuilder<K> {
    limiter: Box<dyn RateLimiter<K>>,
    metrics: Option<(String, Metrics)>,
    on_release: Option<ReleaseFn<K>>,
    telling: Option<Telling<K>>,
}

/// The same queue, where keys are added at another priority. Made by [`WorkQueue::at_priority`].
#[derive(Debug)]
pub struct Prioritized<'a, K> {
    queue: &'a WorkQueue<K>,
    priority: i32,
}

impl<K> Clone for WorkQueue<K> {
    #[inline]
    fn clone(&self) -> WorkQueue<K> {
        WorkQueue { inner: self.inner.clone() }
    }
}

impl<K> fmt::Debug for WorkQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue").field("depth", &self.inner.shared.depth()).finish_non_exhaustive()
    }
}

impl<K: Eq + Hash + Clone + Send + 'static> Default for WorkQueue<K> {
    fn default() -> WorkQueue<K> {
        WorkQueue::new()
    }
}

impl<K: Eq + Hash + Clone + Send + 'static> WorkQueue<K> {
    /// A queue with the [`default_limiter`] and no metrics.
    pub fn new() -> WorkQueue<K> {
        WorkQueue::builder().build()
    }

    /// A queue with other settings.
    pub fn builder() -> WorkQueueBuilder<K> {
        WorkQueueBuilder {
            limiter: Box::new(default_limiter()),
            metrics: None,
            on_release: None,
            telling: None,
        }
    }
}

impl<K: Eq + Hash + Clone> WorkQueue<K> {
    /// The key wants to be processed. Does nothing if it is queued already, or if the queue is shut down.
    #[inline]
    pub fn add(&self, key: K) {
        self.at_priority(0).add(key);
    }

    /// The same, and whoever takes the key is told why: [`Item::reasons`].
    pub fn add_because(&self, key: K, reason: Reason) {
        self.at_priority(0).add_because(key, reason);
    }

    /// The key wants to be processed when `delay` has passed; at once if it is zero. A key that waits
    /// already keeps the earlier time. Being added otherwise in the meantime does not end the wait.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.at_priority(0).add_after(key, delay);
    }

    /// The key failed and wants to be processed when the rate limiter says so.
    pub fn add_rate_limited(&self, key: K) {
        self.at_priority(0).add_rate_limited(key);
    }

    /// For adding keys at another priority than 0.
    ///
    /// ```
    /// use setpoint::WorkQueue;
    /// use setpoint::workqueue::LOW_PRIORITY;
    ///
    /// # let rt = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # rt.block_on(async {
    /// let queue = WorkQueue::new();
    /// queue.at_priority(LOW_PRIORITY).add("from a resync");
    /// queue.add("a live change");
    /// assert_eq!(*queue.get().await.unwrap(), "a live change");
    /// # });
    /// ```
    #[inline]
    pub fn at_priority(&self, priority: i32) -> Prioritized<'_, K> {
        Prioritized { queue: self, priority }
    }

    /// Waits for a key. `None` if the queue is shut down and no key can come any more.
    ///
    /// The future can be dropped at any time, for example in a `select!`: no key and no call is lost.
    pub fn get(&self) -> Get<'_, K> {
        Get::new(self)
    }

    /// Forgets the failures of the key: it succeeded, or nobody tries again.
    pub fn forget(&self, key: &K) {
        self.inner.limiter.forget(key);
    }

    /// How often the key has failed since it was forgotten.
    pub fn num_requeues(&self, key: &K) -> u32 {
        self.inner.limiter.num_requeues(key)
    }
}

impl<K> WorkQueue<K> {
    /// Whom it tells what its keys do: under which name, and what a key is called.
    pub(crate) fn told(&self, key: &K) -> Option<(&Facts, &Name, ObjectKey)> {
        let telling = self.inner.telling.as_ref()?;
        Some((&telling.facts, &telling.queue, (telling.key)(key)))
    }

    /// How many keys are queued: neither those that are being processed or held, nor those that wait for their time.
    pub fn len(&self) -> usize {
        self.inner.shared.len(|added| self.inner.count(added))
    }

    /// Whether no key is queued.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the queue takes no more keys.
    #[doc(alias = "ShuttingDown")]
    pub fn is_shutting_down(&self) -> bool {
        self.inner.shared.is_shutting_down()
    }

    /// A source has got to a version, or stays where it is: releases the keys that were held until then, and no
    /// others. Those whose changes a list has passed by want to be processed again. Says whether keys wait for something
    /// to go from the source.
    pub(crate) fn advance(&self, source: u32, version: Option<u128>, is_list: bool) -> bool {
        self.inner.shared.advance(source, version, is_list)
    }

    /// Releases every key that is held, whatever it waits for.
    pub(crate) fn release_all(&self) {
        self.inner.shared.release_all();
    }

    /// A source has some things no more: releases the keys that were held until then.
    pub(crate) fn gone(&self, source: u32, things: &[Named]) {
        self.inner.shared.gone(source, things);
    }

    /// What held keys wait for to go from a source.
    pub(crate) fn awaited(&self, source: u32) -> Vec<Named> {
        self.inner.shared.awaited(source)
    }

    /// Takes no more keys, and forgets those that wait for their time. What is queued can still be got, and
    /// so can keys that were added again while they are being processed.
    pub fn shut_down(&self) {
        self.inner.shared.shut_down(|added| self.inner.count(added));
    }

    /// Shuts down and waits until nothing is queued or being processed. Somebody must go on getting; if all
    /// workers may be gone, bound the wait with [`tokio::time::timeout`].
    pub async fn shut_down_with_drain(&self) {
        self.shut_down();
        Drain::new(self).await;
    }
}

impl<K: Eq + Hash + Clone> Prioritized<'_, K> {
    /// As [`WorkQueue::add`].
    #[inline]
    pub fn add(&self, key: K) {
        self.add_for(key, Cause::Unnamed);
    }

    /// As [`WorkQueue::add_because`].
    pub fn add_because(&self, key: K, reason: Reason) {
        if reason.object.is_none() && reason.resource.is_none() {
            return self.add_for(key, reason.cause);
        }
        let inner = &self.queue.inner;
        inner.count(inner.shared.add_because(key, self.priority, reason));
    }

    #[inline]
    pub(crate) fn add_for(&self, key: K, cause: Cause) {
        let inner = &self.queue.inner;
        inner.count(inner.shared.add(key, self.priority, cause));
    }

    /// As [`WorkQueue::add_after`].
    pub fn add_after(&self, key: K, delay: Duration) {
        self.add_later(key, delay, Cause::Requeue);
    }

    /// Added when `delay` has passed, for a reason; a key that waits already keeps the earlier time.
    pub(crate) fn add_after_because(&self, key: K, delay: Duration, reason: Reason) {
        if delay.is_zero() {
            return self.add_because(key, reason);
        }
        let due = Instant::now().later(delay);
        self.queue.inner.shared.add_at(key, self.priority, due, (reason, delay));
    }

    fn add_later(&self, key: K, delay: Duration, cause: Cause) {
        if delay.is_zero() {
            return self.add_for(key, cause);
        }
        let due = Instant::now().later(delay);
        self.queue.inner.shared.add_at(key, self.priority, due, (Reason::new(cause), delay));
    }

    /// As [`WorkQueue::add_rate_limited`].
    pub fn add_rate_limited(&self, key: K) {
        let inner = &self.queue.inner;
        if let Some(metrics) = &inner.metrics {
            metrics.retried();
        }
        self.add_after_limit(key, inner.limiter.as_ref());
    }

    fn add_after_limit(&self, key: K, limiter: &dyn RateLimiter<K>) {
        let delay = limiter.when(&key);
        self.add_later(key, delay, Cause::Retry);
    }
}

impl<K> Inner<K> {
    #[inline]
    fn count(&self, added: Added) {
        if let Some(metrics) = &self.metrics
            && added != Added::Nothing
        {
            metrics.added();
        }
    }
}

impl<K: Eq + Hash + Clone + Send + 'static> WorkQueueBuilder<K> {
    /// How long keys wait that are added by [`WorkQueue::add_rate_limited`].
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<K> + 'static) -> WorkQueueBuilder<K> {
        self.limiter = Box::new(limiter);
        self
    }

    /// Measures the queue in `metrics`, with the label `name`.
    pub fn metrics(mut self, name: impl Into<String>, metrics: &Metrics) -> WorkQueueBuilder<K> {
        self.metrics = Some((name.into(), metrics.clone()));
        self
    }

    /// Tells what its keys do, under this name.
    pub fn facts(self, name: impl AsRef<str>, facts: &Facts) -> WorkQueueBuilder<K>
    where
        K: fmt::Display,
    {
        let key = |key: &K| ObjectKey::from(key.to_string().as_str());
        self.telling(name.as_ref().into(), facts, SourceNames::default(), key)
    }

    pub(crate) fn telling(
        mut self,
        queue: Name,
        facts: &Facts,
        sources: SourceNames,
        key: fn(&K) -> ObjectKey,
    ) -> WorkQueueBuilder<K> {
        self.telling = Some(Telling { facts: facts.clone(), queue, sources, key });
        self
    }

    /// Called for every key that is held no more.
    pub(crate) fn on_release(
        mut self,
        on_release: impl Fn(Released<K>) + Send + Sync + 'static,
    ) -> WorkQueueBuilder<K> {
        self.on_release = Some(Box::new(on_release));
        self
    }

    /// The queue.
    pub fn build(self) -> WorkQueue<K> {
        let timed = self.metrics.is_some();
        let inner = Arc::new_cyclic(|inner| Inner {
            shared: Shared::new(timed, self.on_release, self.telling.as_ref().map(steps)),
            limiter: self.limiter,
            telling: self.telling,
            metrics: self.metrics.map(|(name, metrics)| QueueMetrics::new(&name, &metrics, inner.clone())),
        });
        if let Some(telling) = &inner.telling {
            let weak: Weak<dyn QueueProbe> = Arc::downgrade(&(inner.clone() as Arc<dyn QueueProbe>));
            telling.facts.add_queue(weak);
            // Whoever began to listen before this did not find the queue.
            inner.shared.heed();
        }
        WorkQueue { inner }
    }
}

/// What tells the steps of keys, and what wakes who listens.
fn steps<K: 'static>(telling: &Telling<K>) -> (Steps<K>, WakeFn) {
    let facts = telling.facts.clone();
    let wake = move || {
        if facts.is_heard() {
            facts.wake();
        }
    };
    (telling.steps(), Box::new(wake))
}

impl<K> fmt::Debug for WorkQueueBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueueBuilder").field("metrics", &self.metrics).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
