//! The state of a store: what is there, what happened, and when it ends. Every engine that serves reads from
//! memory has one; it does no input or output, and waits for nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use setpoint_env::watch;

use super::collection::{Collection, Live};
use super::cursor::Cursor;
use super::history::Bounds;
use super::write::{Effect, Write};
use super::{
    Action, Batch, Change, Chunk, Event, Expect, Field, Freshness, Key, Limits, ListQuery, ReadError, Record,
    Revision, Snapshot, Stats,
};

/// How many bytes of values one read of history gives out, about: a watcher writes all of it at once.
const BATCH_BYTES: usize = 1 << 20;

/// Live records and history, at one revision.
#[derive(Debug)]
pub(super) struct State {
    revision: Revision,
    /// History up to here was given up on purpose; reads that need it are refused.
    compacted: Revision,
    /// What is older than this was given up for its age; reads at a past revision are refused, watches are not if they
    /// miss nothing.
    aged: Revision,
    bounds: Bounds,
    collections: BTreeMap<Arc<str>, Collection>,
    expiries: BTreeSet<(Timestamp, Key)>,
}

impl State {
    /// An empty store. Revision 0 means "any" to clients, so it is at revision 1.
    pub(super) fn new(limits: Limits) -> State {
        State {
            revision: 1,
            compacted: 0,
            aged: 0,
            bounds: Bounds::new(limits),
            collections: BTreeMap::new(),
            expiries: BTreeSet::new(),
        }
    }

    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    /// The record that is there.
    pub(super) fn find(&self, key: &Key) -> Option<&Arc<Record>> {
        self.collections.get(&key.collection)?.get(&key.path)
    }

    /// Makes a checked change happen, and wakes who watches its collection. The caller trims afterwards.
    pub(super) fn apply(&mut self, write: Write) {
        let revision = write.record.revision;
        self.apply_at(revision, [write]);
    }

    /// Makes all changes of one revision happen, each of another record. Nobody sees some of them without the others.
    pub(super) fn apply_at(&mut self, revision: Revision, writes: impl IntoIterator<Item = Write>) {
        assert!(revision > self.revision, "revisions only grow");
        self.revision = revision;
        for write in writes {
            assert!(
                write.record.revision == revision,
                "a change belongs to the revision that it is applied at"
            );
            let collection = Arc::clone(&write.key.collection);
            let (record, deleted) = (Arc::clone(&write.record), write.effect == Effect::Delete);
            let previous = self.replace(write);
            let entry = self.collections.get_mut(&collection).expect("the write has made it");
            let event = self.bounds.push(&collection, &mut entry.log, record, previous, deleted);
            entry.tell(&event);
        }
    }

    /// Puts back a write of the time before history. Gives the revisions of writes that leave nothing.
    pub(super) fn restore(&mut self, write: Write) -> impl Iterator<Item = Revision> + use<> {
        let (revision, deleted) = (write.record.revision, write.effect == Effect::Delete);
        self.revision = self.revision.max(revision);
        let previous = self.replace(write).map(|record| record.revision);
        previous.into_iter().chain(deleted.then_some(revision))
    }

    /// Puts back what an earlier run knew: its revision, and which history it had given up.
    pub(super) fn restore_position(&mut self, revision: Revision, compacted: Revision) {
        self.revision = self.revision.max(revision);
        self.compacted = compacted;
    }

    /// Puts back which event of a collection was the newest that had been forgotten.
    pub(super) fn restore_forgotten(&mut self, collection: &str, revision: Revision) {
        self.collections.entry(collection.into()).or_default().log.restore_forgotten(revision);
    }

    /// Takes over what is there at a revision, without knowing how it came: there is no history before it.
    #[cfg(feature = "etcd")]
    pub(super) fn reset(&mut self, revision: Revision, records: Vec<(Key, Arc<Record>)>) {
        self.compact(self.revision, |_, _| {});
        self.revision = self.revision.max(revision);
        self.compacted = self.revision;
        self.expiries.clear();
        for collection in self.collections.values_mut() {
            collection.clear();
            collection.forget_all(self.revision);
        }
        for (key, record) in records {
            self.replace(Write { key, record, effect: Effect::Put { expires: None } });
        }
        for collection in self.collections.values() {
            collection.changed.send_replace(self.revision);
        }
    }

    /// Nothing has happened up to this revision but what was applied.
    #[cfg(feature = "etcd")]
    pub(super) fn pass(&mut self, revision: Revision) {
        self.revision = self.revision.max(revision);
    }

    /// Changes the live records; what was there before.
    fn replace(&mut self, write: Write) -> Option<Arc<Record>> {
        let Write { key, record, effect } = write;
        if !self.collections.contains_key(&key.collection) {
            self.collections.insert(Arc::clone(&key.collection), Collection::default());
        }
        let collection = self.collections.get_mut(&key.collection).expect("it is there now");
        let previous = match effect {
            Effect::Put { expires } => collection.put(Live { record, expires }),
            Effect::Delete => collection.remove(&key.path),
        };
        if let Some(expires) = previous.as_ref().and_then(|live| live.expires) {
            self.expiries.remove(&(expires, key.clone()));
        }
        if let Effect::Put { expires: Some(expires) } = effect {
            self.expiries.insert((expires, key));
        }
        previous.map(|live| live.record)
    }

    /// Forgets as much history as the limits ask for, oldest first; `forgotten` gets each event with the
    /// name of its collection.
    pub(super) fn trim(&mut self, mut forgotten: impl FnMut(&Arc<str>, &Event)) {
        while let Some(name) = self.bounds.excess() {
            let event = self.forget_oldest_of(&name);
            forgotten(&name, &event);
        }
    }

    /// Forgets history up to and including `up_to`, on purpose.
    pub(super) fn compact(&mut self, up_to: Revision, forgotten: impl FnMut(&Arc<str>, &Event)) {
        self.age(up_to, forgotten);
        self.compacted = self.compacted.max(up_to.min(self.revision));
    }

    /// Forgets history up to and including `up_to`, because it is old.
    pub(super) fn age(&mut self, up_to: Revision, mut forgotten: impl FnMut(&Arc<str>, &Event)) {
        let up_to = up_to.min(self.revision);
        while let Some(name) = self.bounds.oldest()
            && self.collections[&name].log.first_revision().is_some_and(|first| first <= up_to)
        {
            let event = self.forget_oldest_of(&name);
            forgotten(&name, &event);
        }
        self.aged = self.aged.max(up_to);
    }

    /// Visits every event that history holds, collection by collection.
    pub(super) fn each_event(&self, mut visit: impl FnMut(&Arc<str>, &Event)) {
        for (name, collection) in &self.collections {
            collection.log.after(0).for_each(|event| visit(name, event));
        }
    }

    /// Every live record, for a backup.
    pub(super) fn snapshot(&self) -> Snapshot {
        let mut records = Vec::with_capacity(self.collections.values().map(Collection::len).sum());
        for (name, collection) in &self.collections {
            records.extend(
                collection.live().map(|live| (Arc::clone(name), Arc::clone(&live.record), live.expires)),
            );
        }
        Snapshot::new(self.revision, records)
    }

    pub(super) fn compacted(&self) -> Revision {
        self.compacted
    }

    fn forget_oldest_of(&mut self, name: &str) -> Arc<Event> {
        let collection = self.collections.get_mut(name).expect("history names only known collections");
        let event = self.bounds.forget_oldest(&mut collection.log);
        collection.forget(&event);
        event
    }

    /// The deletes of what has expired by `now`.
    pub(super) fn expired(&self, now: Timestamp) -> Vec<Change> {
        let due = self.expiries.iter().take_while(|(at, _)| *at <= now);
        due.map(|(_, key)| {
            let record = self.find(key).expect("only live records expire");
            Change { key: key.clone(), expect: Expect::Revision(record.revision), action: Action::Delete }
        })
        .collect()
    }

    /// Whether the history of a collection since `asked` is all there.
    fn check_revision(&self, collection: &str, asked: Revision) -> Result<(), ReadError> {
        let forgotten = self.collections.get(collection).map_or(0, |c| c.log.forgotten());
        let floor = self.compacted.max(forgotten);
        if asked < floor {
            return Err(ReadError::Compacted { asked, floor });
        }
        if asked > self.revision {
            return Err(ReadError::Future { asked, current: self.revision });
        }
        Ok(())
    }

    /// The record as it was when it was as fresh as asked for.
    pub(super) fn get(&self, key: &Key, fresh: Freshness) -> Result<Option<Arc<Record>>, ReadError> {
        let revision = self.resolve(&key.collection, fresh)?;
        let Some(collection) = self.collections.get(&key.collection) else { return Ok(None) };
        if revision == self.revision {
            return Ok(collection.get(&key.path).cloned());
        }
        let mut since = collection.log.after(revision);
        match since.find(|event| event.record.path == key.path) {
            Some(event) => Ok(event.previous.clone()),
            None => Ok(collection.get(&key.path).cloned()),
        }
    }

    /// The revision that a read is of.
    fn resolve(&self, collection: &str, fresh: Freshness) -> Result<Revision, ReadError> {
        match fresh {
            Freshness::Any | Freshness::Latest => Ok(self.revision),
            Freshness::AtLeast(asked) if asked > self.revision => {
                Err(ReadError::Future { asked, current: self.revision })
            }
            Freshness::AtLeast(_) => Ok(self.revision),
            Freshness::Exact(revision) if revision < self.aged => {
                Err(ReadError::Compacted { asked: revision, floor: self.aged })
            }
            Freshness::Exact(revision) => {
                self.check_revision(collection, revision)?;
                Ok(revision)
            }
        }
    }

    /// Begins a scan.
    pub(super) fn open(&self, query: &ListQuery) -> Result<Cursor, ReadError> {
        Ok(Cursor::new(query, self.resolve(&query.collection, query.fresh)?))
    }

    /// Goes on with a scan: at most `limit` more records.
    pub(super) fn advance(&self, cursor: &mut Cursor, limit: usize) -> Result<Chunk, ReadError> {
        match self.collections.get(cursor.collection()) {
            Some(collection) => cursor.advance(collection, self.revision, limit),
            None => Ok(Chunk { records: Vec::new(), end: true, remaining: None }),
        }
    }

    /// Tells of each change of a collection after `after`, if all of them are still there; of one value of a field alone, if
    /// that is asked for.
    pub(super) fn subscribe(
        &mut self,
        collection: &Arc<str>,
        after: Revision,
        value: Option<(Field, &str)>,
    ) -> Result<watch::Receiver<Revision>, ReadError> {
        self.check_revision(collection, after)?;
        let collection = self.collections.entry(Arc::clone(collection)).or_default();
        Ok(match value {
            Some((field, value)) => collection.subscribe(field, value, after),
            None => collection.changed.subscribe(),
        })
    }

    /// The fields of a collection of which somebody watches a value.
    pub(super) fn watched_fields(&self, collection: &str) -> impl Iterator<Item = Field> {
        self.collections.get(collection).into_iter().flat_map(Collection::watched_fields)
    }

    /// The events of a collection, as [`State::events`] gives them; none of one that nobody has written to.
    pub(super) fn some_events(
        &self,
        collection: &Arc<str>,
        after: Revision,
        limit: usize,
    ) -> Result<Batch, ReadError> {
        match self.collections.contains_key(collection) {
            true => self.events(collection, after, limit),
            false => Ok(Batch { events: Vec::new(), complete_to: self.revision, more: false }),
        }
    }

    /// The events of a value after `after`, as [`State::events`] gives those of all: of a channel that was subscribed to.
    pub(super) fn events_of(
        &self,
        collection: &Arc<str>,
        after: Revision,
        limit: usize,
        (field, value): (Field, &str),
    ) -> Result<Batch, ReadError> {
        let channel = self.collections[collection].channel(field, value);
        let channel = channel.expect("there is a channel as long as somebody has subscribed to it");
        let floor = channel.forgotten();
        if after < floor {
            return Err(ReadError::Compacted { asked: after, floor });
        }
        let pending = channel.after(after);
        let is_all = pending.len() <= limit;
        let mut events: Vec<Arc<Event>> = Vec::new();
        for event in pending {
            // Those of one revision stay together.
            let is_torn = events.last().is_some_and(|last| last.revision() == event.revision());
            if events.len() >= limit && !is_torn {
                break;
            }
            events.push(Arc::clone(event));
        }
        let complete_to = match events.last() {
            Some(last) if !is_all => last.revision(),
            _ => self.revision,
        };
        Ok(Batch { events, complete_to, more: !is_all })
    }

    /// The events of a collection after `after`, about `limit`, and not many more bytes than [`BATCH_BYTES`]. All events of a
    /// revision are in one batch: a client that resumes after a revision has seen it whole.
    pub(super) fn events(
        &self,
        collection: &Arc<str>,
        after: Revision,
        limit: usize,
    ) -> Result<Batch, ReadError> {
        let log = &self.collections[collection].log;
        // A compaction on purpose does not end a watch that has already seen what is given up.
        let floor = log.forgotten();
        if after < floor {
            return Err(ReadError::Compacted { asked: after, floor });
        }
        let (pending, mut is_all) = log.some_after(after, limit);
        let (mut bytes, mut events) = (0, Vec::<Arc<Event>>::with_capacity(pending.len()));
        for event in pending {
            let is_torn = events.last().is_some_and(|last| last.revision() == event.revision());
            if bytes >= BATCH_BYTES && !is_torn {
                is_all = false;
                break;
            }
            bytes += event.record.value.len();
            events.push(Arc::clone(event));
        }
        let more = !is_all;
        let complete_to = match events.last() {
            Some(last) if more => last.revision(),
            _ => self.revision,
        };
        Ok(Batch { events, complete_to, more })
    }

    pub(super) fn stats(&self) -> Stats {
        Stats {
            revision: self.revision,
            history_events: self.bounds.events(),
            history_bytes: self.bounds.bytes(),
            records: self.collections.iter().map(|(name, c)| (Arc::clone(name), c.len())).collect(),
            ..Stats::default()
        }
    }
}

#[cfg(test)]
mod tests;
