//! A key that somebody works on, and the wait for one.

use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use setpoint_env::Later;
use tokio::time::{Instant, Sleep};

use super::WorkQueue;
use super::holds::Until;
use super::reasons::Reasons;
use super::shared::Found;
use super::state::Taken;

/// A key that was taken from the queue and is being processed. Nobody else gets the key until the item is
/// dropped, by [`Item::done`], by leaving its scope, or by a panic.
#[must_use = "dropping the item says that its key is done"]
pub struct Item<K> {
    queue: WorkQueue<K>,
    key: K,
    slot: u32,
    priority: i32,
    reasons: Reasons,
}

impl<K> Item<K> {
    #[inline]
    fn new(queue: &WorkQueue<K>, taken: Taken<K>) -> Item<K> {
        if let Some(metrics) = &queue.inner.metrics {
            metrics.taken(Duration::from_nanos(taken.queued));
        }
        let Taken { key, slot, priority, reasons, .. } = taken;
        Item { queue: queue.clone(), key, slot, priority, reasons }
    }

    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The priority at which the key was queued.
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// Why the key is processed: everything since it was last taken, merged.
    pub fn reasons(&self) -> &Reasons {
        &self.reasons
    }

    pub(crate) fn take_reasons(&mut self) -> Reasons {
        std::mem::take(&mut self.reasons)
    }

    /// Says that the key is done. If it was added again in the meantime, it is queued again now.
    #[inline]
    pub fn done(self) {}

    /// Says that the key is done, and is to be held until all of `until` has happened, at most for `limit`. What is
    /// added meanwhile does not release it; it is queued again then.
    pub(crate) fn hold(self, until: Vec<Until>, limit: Duration)
    where
        K: Clone,
    {
        self.queue.inner.shared.hold(self.slot, until, Instant::now().later(limit));
    }
}

impl<K> Deref for Item<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.key
    }
}

impl<K> Drop for Item<K> {
    #[inline]
    fn drop(&mut self) {
        let inner = &self.queue.inner;
        let time = inner.shared.done(self.slot);
        if let (Some(metrics), Some(time)) = (&inner.metrics, time) {
            metrics.finished(time);
        }
    }
}

impl<K: fmt::Debug> fmt::Debug for Item<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut item = f.debug_struct("Item");
        item.field("key", &self.key).field("priority", &self.priority).finish_non_exhaustive()
    }
}

/// The future of [`WorkQueue::get`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Get<'a, K> {
    queue: &'a WorkQueue<K>,
    /// Its place among those who wait.
    waiter: Option<u64>,
    /// Only the timekeeper has one.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl<'a, K> Get<'a, K> {
    pub(super) fn new(queue: &'a WorkQueue<K>) -> Get<'a, K> {
        Get { queue, waiter: None, sleep: None }
    }

    #[cold]
    fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item<K>>>
    where
        K: Clone,
    {
        let inner = &self.queue.inner;
        loop {
            match inner.shared.poll_get(&mut self.waiter, cx, |added| inner.count(added)) {
                Found::Taken(taken) => return Poll::Ready(Some(Item::new(self.queue, taken))),
                Found::ShutDown => return Poll::Ready(None),
                Found::Wait(None) => {
                    self.sleep = None;
                    return Poll::Pending;
                }
                Found::Wait(Some(due)) => ready!(self.poll_sleep(due, cx)),
            }
        }
    }

    /// Sleeps until `due`.
    fn poll_sleep(&mut self, due: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        if sleep.deadline() != due {
            sleep.as_mut().reset(due);
        }
        sleep.as_mut().poll(cx)
    }
}

impl<K: Eq + Hash + Clone> Future for Get<'_, K> {
    type Output = Option<Item<K>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Item<K>>> {
        // A worker that always finds a key must let the other tasks of its thread run too.
        let budget = ready!(tokio::task::coop::poll_proceed(cx));
        if self.waiter.is_none()
            && let Some(taken) = self.queue.inner.shared.try_get()
        {
            budget.made_progress();
            return Poll::Ready(Some(Item::new(self.queue, taken)));
        }
        let item = ready!(self.poll_wait(cx));
        budget.made_progress();
        Poll::Ready(item)
    }
}

impl<K> Drop for Get<'_, K> {
    #[inline]
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            self.queue.inner.shared.abandon(waiter);
        }
    }
}

/// Waits until nothing is queued or processing.
pub(super) struct Drain<'a, K> {
    queue: &'a WorkQueue<K>,
    waiter: Option<u64>,
}

impl<'a, K> Drain<'a, K> {
    pub(super) fn new(queue: &'a WorkQueue<K>) -> Drain<'a, K> {
        Drain { queue, waiter: None }
    }
}

impl<K> Future for Drain<'_, K> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.queue.inner.shared.poll_idle(&mut this.waiter, cx) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl<K> Drop for Drain<'_, K> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            self.queue.inner.shared.abandon_drain(waiter);
        }
    }
}
