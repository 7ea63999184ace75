//! The latest value of something, for tasks that wait until it changes.
//!
//! It is like tokio's channel of that name, except that waiting tasks are woken in the order in which they began to wait.
//! Tokio's wakes them in an order of its own, another one in each run, so `clippy.toml` disallows it.

use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{RwLock, RwLockReadGuard};
use tokio::sync::Notify;

struct Shared<T> {
    value: RwLock<T>,
    /// How often the value was changed.
    changes: AtomicU64,
    senders: AtomicUsize,
    receivers: AtomicUsize,
    changed: Notify,
}

impl<T> Shared<T> {
    fn look(&self, seen: &mut u64) -> Ref<'_, T> {
        let value = Ref(self.value.read());
        *seen = self.changes.load(Ordering::Acquire);
        value
    }

    fn has_changed(&self, seen: u64) -> Result<bool, Closed> {
        // Whether it is closed first: the last change comes before the end.
        let is_closed = self.senders.load(Ordering::Acquire) == 0;
        match self.changes.load(Ordering::Acquire) == seen {
            false => Ok(true),
            true if is_closed => Err(Closed),
            true => Ok(false),
        }
    }

    async fn changed(&self, seen: &mut u64) -> Result<(), Closed> {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.has_changed(*seen)? {
                *seen = self.changes.load(Ordering::Acquire);
                return Ok(());
            }
            changed.await;
        }
    }
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

/// The value, which cannot change as long as somebody looks at it: do not keep it.
#[derive(Debug)]
pub struct Ref<'a, T>(RwLockReadGuard<'a, T>);

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// The sender is gone, and its last change was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("nobody can change the value any more")
    }
}

impl std::error::Error for Closed {}

/// A value with one who waits for its changes.
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender::new(value);
    let receiver = sender.subscribe();
    (sender, receiver)
}

impl<T> Sender<T> {
    /// A value that nobody waits for yet.
    pub fn new(value: T) -> Sender<T> {
        let shared = Shared {
            value: RwLock::new(value),
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

    /// The value as it is now.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.shared.value.read())
    }

    /// Replaces the value and wakes all who wait. Returns the value before.
    pub fn send_replace(&self, mut value: T) -> T {
        self.send_modify(|current| std::mem::swap(current, &mut value));
        value
    }

    /// Changes the value and wakes all who wait.
    pub fn send_modify(&self, change: impl FnOnce(&mut T)) {
        self.send_if_modified(|value| {
            change(value);
            true
        });
    }

    /// Changes the value, and wakes all who wait if `change` says that it is news. Returns what it says.
    pub fn send_if_modified(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        {
            let mut value = self.shared.value.write();
            if !change(&mut value) {
                return false;
            }
            // Under the lock: who reads the value has seen this change, or is woken by it.
            self.shared.changes.fetch_add(1, Ordering::AcqRel);
        }
        self.shared.changed.notify_waiters();
        true
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

impl<T: Default> Default for Sender<T> {
    fn default() -> Sender<T> {
        Sender::new(T::default())
    }
}

impl<T> Receiver<T> {
    /// Waits until the value has changed since it was last seen, and marks it as seen.
    pub async fn changed(&mut self) -> Result<(), Closed> {
        self.shared.changed(&mut self.seen).await
    }

    /// Waits until the value is as wanted, which it may be already, and marks it as seen.
    pub async fn wait_for(&mut self, mut is_wanted: impl FnMut(&T) -> bool) -> Result<Ref<'_, T>, Closed> {
        let Receiver { shared, seen } = self;
        loop {
            {
                let value = shared.look(seen);
                if is_wanted(&value) {
                    return Ok(value);
                }
            }
            shared.changed(seen).await?;
        }
    }

    /// Whether the value has changed since it was last seen.
    pub fn has_changed(&self) -> Result<bool, Closed> {
        self.shared.has_changed(self.seen)
    }

    /// The value as it is now. It counts as seen only if it was before.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.shared.value.read())
    }

    /// The value as it is now, which counts as seen.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        self.shared.look(&mut self.seen)
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
    use parking_lot::Mutex;

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
                        woken.lock().push((*receiver.borrow_and_update(), number));
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
        assert_eq!(*receiver.borrow_and_update(), 2);
        assert_eq!(receiver.changed().await, Err(Closed));
        assert_eq!(unchanged.has_changed(), Ok(true));
    }

    #[tokio::test]
    async fn who_waits_for_a_value_is_not_woken_by_what_is_no_news() {
        let (sender, mut receiver) = channel(1);
        assert!(!sender.send_if_modified(|value| {
            *value = 2;
            false
        }));
        assert_eq!((*receiver.borrow(), receiver.has_changed()), (2, Ok(false)));
        assert_eq!(receiver.wait_for(|value| *value == 2).await.as_deref(), Ok(&2));
        let env = Env::seeded(1);
        let waiting =
            env.spawn(async move { receiver.wait_for(|value| *value > 3).await.map(|value| *value) });
        for value in [3, 4] {
            tokio::task::yield_now().await;
            assert!(!waiting.is_finished());
            sender.send_replace(value);
        }
        assert_eq!(waiting.await.unwrap(), Ok(4));
    }

    #[tokio::test]
    async fn who_waits_for_a_value_that_cannot_come_is_told() {
        let (sender, mut receiver) = channel(1);
        drop(sender);
        assert_eq!(receiver.wait_for(|value| *value == 1).await.as_deref(), Ok(&1), "it is there already");
        assert_eq!(receiver.wait_for(|value| *value == 2).await.as_deref(), Err(&Closed));
    }
}
