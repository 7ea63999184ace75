//! What comes into a controller's queue, and what a standby keeps of it: next to nothing.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use setpoint_env::watch;

use super::Key;
use crate::{Cause, Reason, WorkQueue};

/// How many keys of what went away a standby keeps. The oldest go first: whoever leads has most likely seen to them.
const DEPARTED: usize = 10_000;

/// Between the handlers and the queue.
///
/// While the controller works, keys go to the queue. While it does not, since its caches are not synced or another
/// replica leads, they go nowhere: when it begins, it queues what its caches have. Only what they will not have then is
/// kept, up to a bound: the keys of what was deleted.
pub(super) struct Intake<Q> {
    queue: WorkQueue<Q>,
    is_open: watch::Sender<bool>,
    departed: Mutex<Departed<Q>>,
    /// How long the first change waits for others.
    debounce: Duration,
}

/// Keys that no cache has any more, in the order in which they went.
struct Departed<Q> {
    order: VecDeque<Q>,
    keys: BTreeSet<Q>,
    forgotten: u64,
}

impl<Q> Default for Departed<Q> {
    fn default() -> Departed<Q> {
        Departed { order: VecDeque::new(), keys: BTreeSet::new(), forgotten: 0 }
    }
}

impl<Q: Key> Intake<Q> {
    pub(super) fn new(queue: WorkQueue<Q>, debounce: Duration) -> Intake<Q> {
        Intake { queue, is_open: watch::Sender::new(false), departed: Mutex::default(), debounce }
    }

    fn queue(&self, priority: i32, key: Q, reason: Reason) {
        self.queue.at_priority(priority).add_after_because(key, self.debounce, reason);
    }

    fn is_open(&self) -> bool {
        *self.is_open.borrow()
    }

    /// Something that is in a cache concerns this key.
    pub(super) fn add(&self, priority: i32, key: Q, reason: impl FnOnce() -> Reason) {
        if self.is_open() {
            self.queue(priority, key, reason());
        }
    }

    /// Something concerned this key, and is in no cache any more.
    pub(super) fn add_departed(&self, key: Q, reason: impl FnOnce() -> Reason) {
        if !self.is_open() {
            let mut departed = self.departed.lock();
            // It opens under this lock.
            if !self.is_open() {
                return departed.add(key);
            }
        }
        self.queue(0, key, reason());
    }

    /// Lets keys in, until the guard is dropped. What went away since it was closed is queued now.
    pub(super) fn open(self: &Arc<Intake<Q>>, name: &str) -> Open<Q> {
        let mut departed = self.departed.lock();
        self.is_open.send_replace(true);
        let Departed { order, forgotten, .. } = std::mem::take(&mut *departed);
        drop(departed);
        if forgotten > 0 {
            tracing::warn!(
                controller = name,
                forgotten,
                "more objects were deleted while another replica led than a standby keeps; their keys are not reconciled",
            );
        }
        let gone = |key| self.queue.add_because(key, Reason::new(Cause::Deleted));
        order.into_iter().for_each(gone);
        Open(self.clone())
    }

    /// Queues what a stream gives. While it is closed the stream is not asked: whoever feeds it is held back.
    pub(super) async fn feed(self: Arc<Intake<Q>>, keys: Arc<tokio::sync::Mutex<BoxStream<'static, Q>>>) {
        let (mut keys, mut is_open) = (keys.lock().await, self.is_open.subscribe());
        loop {
            // The sender is ours.
            if is_open.wait_for(|is_open| *is_open).await.is_err() {
                return;
            }
            tokio::select! {
                biased;
                key = keys.next() => match key {
                    Some(key) => self.queue(0, key, Reason::new(Cause::Trigger)),
                    None => return,
                },
                _ = is_open.wait_for(|is_open| !*is_open) => {}
            }
        }
    }
}

/// As long as it lives, keys come in.
pub(super) struct Open<Q>(Arc<Intake<Q>>);

impl<Q> Drop for Open<Q> {
    fn drop(&mut self) {
        self.0.is_open.send_replace(false);
    }
}

impl<Q: Key> Departed<Q> {
    fn add(&mut self, key: Q) {
        if !self.keys.insert(key.clone()) {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > DEPARTED
            && let Some(oldest) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
            self.forgotten += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ObjectKey;

    #[tokio::test]
    async fn a_standby_keeps_the_last_keys_that_went_and_no_more_than_its_bound() {
        let queue = WorkQueue::new();
        let intake = Arc::new(Intake::new(queue.clone(), Duration::ZERO));
        for n in 0..DEPARTED + 5 {
            intake.add(0, ObjectKey::cluster("there"), || Reason::new(Cause::Added));
            intake.add_departed(ObjectKey::cluster(&n.to_string()), || Reason::new(Cause::Deleted));
            intake.add_departed(ObjectKey::cluster(&n.to_string()), || Reason::new(Cause::Deleted));
        }
        assert_eq!(queue.len(), 0);
        let open = intake.open("test");
        assert_eq!(queue.len(), DEPARTED);
        assert_eq!(queue.get().await.unwrap().name(), "5", "the oldest were forgotten");
        drop(open);
        intake.add_departed(ObjectKey::cluster("later"), || Reason::new(Cause::Deleted));
        assert_eq!(queue.len(), DEPARTED - 1);
    }
}
