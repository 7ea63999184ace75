//! The latest value of something, for tasks that wait until it changes.
//!
//! It is like tokio's channel of that name, except that waiting tasks are woken in the order in which they began to wait.
//! Tokio's wakes them in an order of its own, another one in each run.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

struct Shared<T> {
    value: Mutex<T>,
    /// How often the value was changed.
    changes: AtomicU64,
    senders: AtomicUsize,
    receivers: AtomicUsize,
    changed: Notify,
}

/// Changes the value. Clones change the same one; when all are dropped, receivers get no more changes.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// Waits for changes of the value. Clones have seen what the original has seen.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

/// The sender is gone, and its last change was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl<T> Sender<T> {
    /// A value that nobody waits for yet.
    pub fn new(value: T) -> Sender<T> {
        let shared = Shared {
            value: Mutex::new(value),
            changes: AtomicU64::new(0),
            senders: AtomicUsize::new(1),
            receivers: AtomicUsize::new(0),
            changed: Notify::new(),
        };
        Sender { shared: Arc::new(shared) }
    }

    /// A receiver that has seen the value as it is now.
    pub fn subscribe(&self) -> Receiver<T> {
        self.shared.receivers.fetch_add(1, Ordering::AcqRel);
        Receiver { shared: self.shared.clone(), seen: self.shared.changes.load(Ordering::Acquire) }
    }

    /// How many receivers there are.
    pub fn receiver_count(&self) -> usize {
        self.shared.receivers.load(Ordering::Acquire)
    }

    /// Replaces the value and wakes all who wait. Returns the value before.
    pub fn send_replace(&self, mut value: T) -> T {
        self.send_modify(|current| std::mem::swap(current, &mut value));
        value
    }

    /// Changes the value and wakes all who wait.
    pub fn send_modify(&self, change: impl FnOnce(&mut T)) {
        {
            let mut value = self.shared.value.lock();
            change(&mut value);
            // Under the lock: who reads the value has seen this change, or is woken by it.
            self.shared.changes.fetch_add(1, Ordering::AcqRel);
        }
        self.shared.changed.notify_waiters();
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.shared.senders.fetch_add(1, Ordering::AcqRel);
        Sender { shared: self.shared.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.shared.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.changed.notify_waiters();
        }
    }
}

impl<T: Clone> Sender<T> {
    /// The value as it is now.
    pub fn get(&self) -> T {
        self.shared.value.lock().clone()
    }
}

impl<T> Receiver<T> {
    /// Waits until the value has changed since it was last seen, and marks it as seen.
    pub async fn changed(&mut self) -> Result<(), Closed> {
        loop {
            let mut changed = pin!(self.shared.changed.notified());
            changed.as_mut().enable();
            if self.has_changed()? {
                self.seen = self.shared.changes.load(Ordering::Acquire);
                return Ok(());
            }
            changed.await;
        }
    }

    /// Whether the value has changed since it was last seen.
    pub fn has_changed(&self) -> Result<bool, Closed> {
        // Whether it is closed first: the last change comes before the end.
        let is_closed = self.shared.senders.load(Ordering::Acquire) == 0;
        match self.shared.changes.load(Ordering::Acquire) == self.seen {
            false => Ok(true),
            true if is_closed => Err(Closed),
            true => Ok(false),
        }
    }
}

impl<T: Clone> Receiver<T> {
    /// The value as it is now, which counts as seen.
    pub fn see(&mut self) -> T {
        let value = self.shared.value.lock();
        self.seen = self.shared.changes.load(Ordering::Acquire);
        value.clone()
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        self.shared.receivers.fetch_add(1, Ordering::AcqRel);
        Receiver { shared: self.shared.clone(), seen: self.seen }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.receivers.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<T> std::fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").field("receivers", &self.receiver_count()).finish_non_exhaustive()
    }
}

impl<T> std::fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver").field("seen", &self.seen).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Env;

    #[tokio::test]
    async fn those_who_wait_are_woken_in_the_order_in_which_they_came() {
        let (env, sender) = (Env::seeded(1), Sender::new(0));
        let woken = Arc::new(Mutex::new(Vec::new()));
        let tasks: Vec<_> = (0..20)
            .map(|number| {
                let (mut receiver, woken) = (sender.subscribe(), woken.clone());
                env.spawn(async move {
                    while receiver.changed().await.is_ok() {
                        woken.lock().push((receiver.see(), number));
                    }
                })
            })
            .collect();
        for round in 1..=3 {
            tokio::task::yield_now().await;
            sender.send_replace(round);
        }
        tokio::task::yield_now().await;
        drop(sender);
        for task in tasks {
            task.await.unwrap();
        }
        let expected: Vec<(u32, u32)> = (1..=3).flat_map(|round| (0..20).map(move |n| (round, n))).collect();
        assert_eq!(*woken.lock(), expected);
    }

    #[tokio::test]
    async fn the_last_change_is_seen_after_the_sender_is_gone() {
        let sender = Sender::new(1);
        let (mut receiver, unchanged) = (sender.subscribe(), sender.subscribe());
        assert_eq!((sender.receiver_count(), receiver.has_changed()), (2, Ok(false)));
        sender.send_modify(|value| *value += 1);
        drop(sender);
        assert_eq!(receiver.changed().await, Ok(()));
        assert_eq!(receiver.see(), 2);
        assert_eq!(receiver.changed().await, Err(Closed));
        assert_eq!(unchanged.has_changed(), Ok(true));
    }
}
