//! Stage 2: reads from the Reflector, feeds the SharedInformer (which applies batches to the Indexer).
//!
//! Changes by key, first in first out, drained in batches that carry the resourceVersion they end at.

mod pending;

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use self::pending::Pending;
use crate::{Held, Indexer, Object, ObjectKey, ResourceVersion, Scope};

/// How many bytes of changes may wait, unless set.
const MOST_BYTES: usize = 64 << 20;

/// A change of one object.
#[derive(Debug)]
pub enum Delta<T> {
    /// A watch saw the object come into being.
    Added(Held<T>),
    /// A watch saw the object change.
    Updated(Held<T>),
    /// The object is gone.
    Deleted(Deleted<T>),
    /// A list found the object: new, changed or as it was.
    Replaced(Held<T>),
    /// The object is told again, unchanged.
    Sync(Held<T>),
}

impl<T> Delta<T> {
    /// The object, if it exists after this change.
    pub fn object(&self) -> Option<&Held<T>> {
        match self {
            Delta::Added(object) | Delta::Updated(object) | Delta::Replaced(object) | Delta::Sync(object) => {
                Some(object)
            }
            Delta::Deleted(_) => None,
        }
    }
}

impl<T: Object> Delta<T> {
    /// Which object changes.
    pub fn key(&self) -> &ObjectKey {
        match self {
            Delta::Added(object) | Delta::Updated(object) | Delta::Replaced(object) | Delta::Sync(object) => {
                object.key()
            }
            Delta::Deleted(deleted) => deleted.object.key(),
        }
    }
}

impl<T> Clone for Delta<T> {
    fn clone(&self) -> Delta<T> {
        match self {
            Delta::Added(object) => Delta::Added(object.clone()),
            Delta::Updated(object) => Delta::Updated(object.clone()),
            Delta::Deleted(deleted) => Delta::Deleted(deleted.clone()),
            Delta::Replaced(object) => Delta::Replaced(object.clone()),
            Delta::Sync(object) => Delta::Sync(object.clone()),
        }
    }
}

/// An object that is gone.
#[derive(Debug)]
#[doc(alias = "DeletedFinalStateUnknown")]
pub struct Deleted<T> {
    /// The final state if a watch saw the deletion, else the last state that was seen.
    pub object: Held<T>,
    /// Whether `object` is only the last state that was seen, because the deletion itself was missed.
    pub is_tombstone: bool,
}

impl<T> Clone for Deleted<T> {
    fn clone(&self) -> Deleted<T> {
        Deleted { object: self.object.clone(), is_tombstone: self.is_tombstone }
    }
}

/// The changes that wait to be applied to the cache.
///
/// - Changes of one key stay in order; keys come in the order in which they were first queued.
/// - Two deletions in a row are one; a deletion of an object that is known neither here nor to the cache is
///   none.
/// - [`DeltaFifo::replace`] also queues a deletion, with the last known state, for each known object that
///   the list lacks.
/// - [`DeltaFifo::drain`] takes everything at once, with the resourceVersion that the changes lead up to.
/// - The fifo is bounded in changes and in bytes, however few keys they are of, by holding the writer back
///   ([`DeltaFifo::ready`]), never by dropping. A writer that is held back reads no more from its watch; if the
///   server ends that meanwhile, the next watch starts where this one stopped, or a list takes its place. A list
///   is queued whole: it is as large as what it lists.
pub struct DeltaFifo<T> {
    indexer: Arc<Indexer<T>>,
    scope: Scope,
    capacity: usize,
    most_bytes: usize,
    state: Mutex<State<T>>,
    readable: Notify,
    writable: Notify,
}

struct State<T> {
    pending: Pending<T>,
    /// The batch that was drained and is not yet in the indexer: its keys are known all the same.
    in_transit: Option<Arc<Pending<T>>>,
}

/// Everything that was pending at one moment. While a batch lives, its objects count as known; drop it when
/// it is applied.
pub struct Batch<'a, T: Object> {
    fifo: &'a DeltaFifo<T>,
    pending: Arc<Pending<T>>,
}

impl<T: Object> DeltaFifo<T> {
    /// An empty fifo in front of `indexer`, for the objects of `scope`. It asks its writer to wait while
    /// `capacity` changes are queued, or 64 MiB of them.
    pub fn new(indexer: Arc<Indexer<T>>, scope: Scope, capacity: usize) -> DeltaFifo<T> {
        let state = Mutex::new(State { pending: Pending::default(), in_transit: None });
        let (readable, writable) = (Notify::new(), Notify::new());
        DeltaFifo { indexer, scope, capacity, most_bytes: MOST_BYTES, state, readable, writable }
    }

    /// Asks its writer to wait while this many bytes of changes are queued ([`DeltaFifo::push_received`]).
    #[must_use]
    pub fn most_bytes(mut self, most_bytes: usize) -> DeltaFifo<T> {
        self.most_bytes = most_bytes;
        self
    }

    /// Waits until there is room. One writer may push a little more than it asked for.
    pub async fn ready(&self) {
        while self.is_full() {
            self.writable.notified().await;
        }
    }

    fn is_full(&self) -> bool {
        let pending = &self.state.lock().pending;
        pending.changes() >= self.capacity || pending.bytes >= self.most_bytes
    }

    /// Queues changes that a watch saw, and the resourceVersion that they lead up to. There may be no
    /// changes: a bookmark.
    pub fn push(&self, deltas: impl IntoIterator<Item = Delta<T>>, version: ResourceVersion) {
        self.push_received(deltas, version, 0);
    }

    /// The same for changes that came in this many bytes.
    pub fn push_received(
        &self,
        deltas: impl IntoIterator<Item = Delta<T>>,
        version: ResourceVersion,
        bytes: usize,
    ) {
        let state = &mut *self.state.lock();
        state.pending.bytes = state.pending.bytes.saturating_add(bytes);
        for delta in deltas {
            let is_deletion = matches!(delta, Delta::Deleted(_));
            let matters = !is_deletion
                || state.pending.last(delta.key()).is_some()
                || self.last_known(state, delta.key()).is_some();
            if matters {
                state.pending.push(delta);
            }
        }
        state.pending.version = Some(version);
        self.readable.notify_one();
    }

    /// Queues a whole list: everything in it is [`Delta::Replaced`], every known object that it lacks is
    /// deleted.
    pub fn replace(&self, list: Vec<Held<T>>, version: ResourceVersion) {
        let state = &mut *self.state.lock();
        let mut known = self.indexer.view(|view| view.keys(&self.scope));
        known.extend(state.in_transit.iter().flat_map(|batch| batch.keys().cloned()));
        known.extend(state.pending.keys().cloned());
        if !known.is_empty() {
            let listed: crate::store::FixedSet<&ObjectKey> = list.iter().map(Held::key).collect();
            known.retain(|key| !listed.contains(key));
        }
        // Sorted, so that the order of deletions does not depend on how the store orders its keys.
        known.sort_unstable();
        known.dedup();
        state.pending.reserve(list.len());
        for object in list {
            state.pending.push(Delta::Replaced(object));
        }
        for key in known {
            if let Some(object) = self.last_known(state, &key) {
                state.pending.push(Delta::Deleted(Deleted { object, is_tombstone: true }));
            }
        }
        state.pending.version = Some(version);
        state.pending.replaced = true;
        self.readable.notify_one();
    }

    /// Queues [`Delta::Sync`] for every cached object that has no change queued.
    pub fn resync(&self) {
        let state = &mut *self.state.lock();
        let keys = self.indexer.view(|view| view.keys(&self.scope));
        for key in keys {
            if state.pending.last(&key).is_none()
                && let Some(object) = self.last_known(state, &key)
            {
                state.pending.push(Delta::Sync(object));
            }
        }
        self.readable.notify_one();
    }

    /// Forgets what is queued, and a batch that was not applied. A list must follow, which brings it again.
    pub(crate) fn clear(&self) {
        *self.state.lock() = State { pending: Pending::default(), in_transit: None };
        self.writable.notify_waiters();
        self.writable.notify_one();
    }

    /// The last state of an object that is known here or in the cache; `None` if it is deleted or unknown.
    pub fn known(&self, key: &ObjectKey) -> Option<Held<T>> {
        self.last_known(&self.state.lock(), key)
    }

    fn last_known(&self, state: &State<T>, key: &ObjectKey) -> Option<Held<T>> {
        let queued = state.pending.last(key).or_else(|| state.in_transit.as_ref()?.last(key));
        match queued {
            Some(delta) => delta.object().cloned(),
            None => self.indexer.held(key),
        }
    }

    /// How many keys are queued.
    pub fn len(&self) -> usize {
        self.state.lock().pending.len()
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits for something to be queued and takes all of it. There is one reader; it drops a batch before
    /// it asks for the next.
    pub async fn drain(&self) -> Batch<'_, T> {
        loop {
            if let Some(batch) = self.try_drain() {
                return batch;
            }
            self.readable.notified().await;
        }
    }

    /// Takes all that is queued; `None` if that is nothing.
    pub fn try_drain(&self) -> Option<Batch<'_, T>> {
        let mut state = self.state.lock();
        if state.pending.is_nothing() {
            return None;
        }
        let pending = Arc::new(std::mem::take(&mut state.pending));
        state.in_transit = Some(pending.clone());
        drop(state);
        self.writable.notify_waiters();
        self.writable.notify_one();
        Some(Batch { fifo: self, pending })
    }
}

impl<T: Object> Batch<'_, T> {
    /// The changes: keys in order, and those of a key in order.
    pub fn deltas(&self) -> impl Iterator<Item = (&ObjectKey, &[Delta<T>])> {
        self.pending.iter()
    }

    /// How many objects change.
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether none does: the batch is a bookmark or an empty list.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The resourceVersion of the cache when this batch is applied; `None` leaves it as it is.
    pub fn version(&self) -> Option<&ResourceVersion> {
        self.pending.version.as_ref()
    }

    /// Whether a whole list is part of the batch.
    pub fn is_replace(&self) -> bool {
        self.pending.replaced
    }
}

impl<T: Object> Drop for Batch<'_, T> {
    fn drop(&mut self) {
        self.fifo.state.lock().in_transit = None;
    }
}

#[cfg(test)]
mod tests;
