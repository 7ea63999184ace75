//! The bounded history of a store: what watchers read, and what makes lists at past revisions possible.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::{Record, Revision};

/// How much history a store keeps at most. Older events go first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub events: usize,
    pub bytes: usize,
}

impl Default for Limits {
    /// Minutes of history for a busy server, and never more than 64 MiB.
    fn default() -> Limits {
        Limits { events: 100_000, bytes: 64 << 20 }
    }
}

/// One committed change.
#[derive(Debug)]
pub(crate) struct Event {
    /// The record as it is now; for a delete, its last state at the revision of the delete.
    pub record: Arc<Record>,
    /// The record as it was before.
    pub previous: Option<Arc<Record>>,
    /// Whether the record was removed.
    pub deleted: bool,
    protobuf: OnceLock<Option<Bytes>>,
    /// What is counted for `protobuf`: 0 before it is there, [`FORGOTTEN`] once history has let the event go.
    counted: AtomicUsize,
    encoded: Arc<AtomicIsize>,
}

const FORGOTTEN: usize = usize::MAX;
/// What an event takes besides its records.
const OVERHEAD: usize = size_of::<Event>() + size_of::<Arc<Event>>() + size_of::<Arc<str>>();

impl Event {
    /// A change that no history holds.
    pub(crate) fn unheld(record: Arc<Record>, previous: Option<Arc<Record>>, deleted: bool) -> Event {
        let (protobuf, counted, encoded) = (OnceLock::new(), AtomicUsize::new(0), Arc::default());
        Event { record, previous, deleted, protobuf, counted, encoded }
    }

    pub(crate) fn revision(&self) -> Revision {
        self.record.revision
    }

    /// The record in protobuf, encoded when a watcher first asks; none if it has no such form.
    pub(crate) fn protobuf(&self, encode: impl FnOnce() -> Option<Bytes>) -> Option<Bytes> {
        let encode = || {
            let encoded = encode();
            let weight = encoded.as_ref().map_or(0, Bytes::len);
            // A watcher may ask for an event that history has just forgotten; then it counts no more.
            if self.counted.compare_exchange(0, weight, Relaxed, Relaxed).is_ok() {
                self.encoded.fetch_add(weight.cast_signed(), Relaxed);
            }
            encoded
        };
        self.protobuf.get_or_init(encode).clone()
    }

    /// History lets go of it.
    fn forget(&self) {
        let counted = self.counted.swap(FORGOTTEN, Relaxed);
        self.encoded.fetch_sub(counted.cast_signed(), Relaxed);
    }
}

/// The events of one collection, oldest first.
#[derive(Debug, Default)]
pub(super) struct Log {
    events: VecDeque<Arc<Event>>,
    /// The newest event that is forgotten: whoever has seen this collection up to here misses nothing.
    forgotten: Revision,
}

impl Log {
    /// The events after `revision`, oldest first.
    pub(super) fn after(&self, revision: Revision) -> impl ExactSizeIterator<Item = &Arc<Event>> {
        let start = self.events.partition_point(|event| event.revision() <= revision);
        self.events.range(start..)
    }

    /// About `count` events after `revision`, oldest first, and whether these are all. Those of one revision stay together.
    pub(super) fn some_after(
        &self,
        revision: Revision,
        count: usize,
    ) -> (impl ExactSizeIterator<Item = &Arc<Event>>, bool) {
        let start = self.events.partition_point(|event| event.revision() <= revision);
        let mut end = start.saturating_add(count).min(self.events.len());
        while let (Some(last), Some(next)) = (self.events.get(end.wrapping_sub(1)), self.events.get(end))
            && end > start
            && last.revision() == next.revision()
        {
            end += 1;
        }
        (self.events.range(start..end), end == self.events.len())
    }

    pub(super) fn forgotten(&self) -> Revision {
        self.forgotten
    }

    /// Takes over what an earlier run had forgotten.
    pub(super) fn restore_forgotten(&mut self, revision: Revision) {
        self.forgotten = revision;
    }

    pub(super) fn first_revision(&self) -> Option<Revision> {
        self.events.front().map(|event| event.revision())
    }
}

/// The order of all events over all collections, and the bounds on them.
#[derive(Debug)]
pub(super) struct Bounds {
    limits: Limits,
    /// Which collection each remembered event belongs to, oldest first.
    order: VecDeque<Arc<str>>,
    /// What events and their records take. A record is counted once, as long as an event holds it.
    bytes: usize,
    /// What was encoded for watchers, who do it while nobody else looks.
    encoded: Arc<AtomicIsize>,
}

impl Bounds {
    pub(super) fn new(limits: Limits) -> Bounds {
        Bounds { limits, order: VecDeque::new(), bytes: 0, encoded: Arc::default() }
    }

    pub(super) fn events(&self) -> usize {
        self.order.len()
    }

    /// All that history holds.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + usize::try_from(self.encoded.load(Relaxed)).unwrap_or(0)
    }

    /// Appends an event to its collection's log, and gives it.
    pub(super) fn push(
        &mut self,
        collection: &Arc<str>,
        log: &mut Log,
        record: Arc<Record>,
        previous: Option<Arc<Record>>,
        deleted: bool,
    ) -> Arc<Event> {
        self.bytes += OVERHEAD;
        self.count(&record);
        if let Some(previous) = &previous {
            previous.is_replaced.store(true, Relaxed);
            self.count(previous);
        }
        let (protobuf, counted) = (OnceLock::new(), AtomicUsize::new(0));
        let encoded = Arc::clone(&self.encoded);
        self.order.push_back(Arc::clone(collection));
        let event = Arc::new(Event { record, previous, deleted, protobuf, counted, encoded });
        log.events.push_back(Arc::clone(&event));
        event
    }

    /// Counts a record, or counts it anew: selectors may have worked out its attributes since.
    fn count(&mut self, record: &Record) {
        let weight = record.weight();
        self.bytes = self.bytes + weight - record.counted.swap(weight, Relaxed);
    }

    fn discount(&mut self, record: &Record) {
        self.bytes -= record.counted.swap(0, Relaxed);
    }

    /// The collection whose oldest event must go for the limits to hold.
    pub(super) fn excess(&self) -> Option<Arc<str>> {
        let over = self.order.len() > self.limits.events || self.bytes() > self.limits.bytes;
        self.order.front().filter(|_| over).cloned()
    }

    /// The collection of the oldest event.
    pub(super) fn oldest(&self) -> Option<Arc<str>> {
        self.order.front().cloned()
    }

    /// Forgets the oldest event of all, which is the oldest of `log`.
    pub(super) fn forget_oldest(&mut self, log: &mut Log) -> Arc<Event> {
        let event = log.events.pop_front().expect("each entry of the order has an event in its log");
        self.order.pop_front();
        self.bytes -= OVERHEAD;
        event.forget();
        if let Some(previous) = &event.previous {
            // The event that made it is older, and so forgotten already.
            self.discount(previous);
        }
        // One that was replaced is held by the event that did so.
        if event.deleted || !event.record.is_replaced.load(Relaxed) {
            self.discount(&event.record);
        }
        log.forgotten = event.revision();
        event
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{Action, Change, Expect, Key, Memory, Storage};
    use super::*;

    const LIMIT: usize = 1 << 20;

    async fn put(store: &Memory, path: &str, expect: Expect) -> Revision {
        let action = Action::Put { value: Bytes::from(vec![b'x'; 20_000]), ttl: None };
        let key = Key { collection: "core/configmaps".into(), path: path.into() };
        store.commit(Change { key, expect, action }).await.unwrap().revision
    }

    /// What history holds: each value once, wherever it is held.
    fn held(store: &Memory) -> usize {
        let oldest = (1..=store.revision()).find_map(|at| store.watch(&"core/configmaps".into(), at).ok());
        let mut watch = oldest.unwrap();
        let (mut records, mut protobuf) = (BTreeMap::new(), 0);
        loop {
            let batch = watch.ready().unwrap();
            for event in &batch.events {
                for record in [Some(&event.record), event.previous.as_ref()].into_iter().flatten() {
                    records.insert(record.revision, record.value.len() + record.path.len());
                }
                let encoded = event.protobuf(|| Some(Bytes::from(vec![0; 15_000])));
                protobuf += encoded.as_ref().map_or(0, Bytes::len);
            }
            if !batch.more {
                return records.into_values().sum::<usize>() + protobuf;
            }
        }
    }

    #[tokio::test]
    async fn the_bound_counts_what_was_replaced_and_what_watchers_have_encoded() {
        for objects in [1, 7, 400] {
            let store = Memory::new(Limits { events: 100_000, bytes: LIMIT });
            let mut revisions: BTreeMap<String, Revision> = BTreeMap::new();
            for number in 0..1_000 {
                let path = format!("default/{}", number % objects);
                let expect = revisions.get(&path).map_or(Expect::Absent, |at| Expect::Revision(*at));
                revisions.insert(path.clone(), put(&store, &path, expect).await);
                if number % 50 == 0 {
                    held(&store);
                }
            }
            held(&store);
            put(&store, "default/last", Expect::Absent).await;
            assert!(store.stats().history_bytes <= LIMIT);
            let held = held(&store);
            // What the last look has encoded is given up with the next write.
            assert!(held <= LIMIT + 15_000, "{held} bytes with {objects} objects");
            assert!(held > LIMIT / 2, "only {held} bytes with {objects} objects");
        }
    }
}
