//! The state of a store: what is there, what happened, and when it ends. Every engine that serves reads from
//! memory has one; it does no input or output, and waits for nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::watch;

use super::history::{Bounds, Log};
use super::write::{Effect, Write};
use super::{
    Action, Batch, Change, Event, Expect, Key, Limits, ListQuery, Page, ReadError, Record, Revision,
    Snapshot, Stats,
};

/// Live records and history, at one revision.
#[derive(Debug)]
pub(super) struct State {
    revision: Revision,
    /// History up to here was given up on purpose; reads that need it are refused.
    compacted: Revision,
    bounds: Bounds,
    collections: BTreeMap<Arc<str>, Collection>,
    expiries: BTreeSet<(Timestamp, Key)>,
}

#[derive(Debug)]
struct Collection {
    live: BTreeMap<Box<str>, Live>,
    log: Log,
    changed: watch::Sender<Revision>,
}

#[derive(Debug)]
struct Live {
    record: Arc<Record>,
    expires: Option<Timestamp>,
}

impl Default for Collection {
    fn default() -> Collection {
        Collection { live: BTreeMap::new(), log: Log::default(), changed: watch::Sender::new(0) }
    }
}

impl State {
    /// An empty store. Revision 0 means "any" to clients, so it is at revision 1.
    pub(super) fn new(limits: Limits) -> State {
        State {
            revision: 1,
            compacted: 0,
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
        let live = self.collections.get(&key.collection)?.live.get(&key.path)?;
        Some(&live.record)
    }

    /// Makes a checked change happen, and wakes who watches its collection. The caller trims afterwards.
    pub(super) fn apply(&mut self, write: Write) {
        assert!(write.record.revision > self.revision, "revisions only grow");
        self.revision = write.record.revision;
        let collection = Arc::clone(&write.key.collection);
        let (record, deleted) = (Arc::clone(&write.record), write.effect == Effect::Delete);
        let previous = self.replace(write);
        let entry = self.collections.get_mut(&collection).expect("the write has made it");
        self.bounds.push(&collection, &mut entry.log, record, previous, deleted);
        entry.changed.send_replace(self.revision);
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

    /// Changes the live records; what was there before.
    fn replace(&mut self, write: Write) -> Option<Arc<Record>> {
        let Write { key, record, effect } = write;
        if !self.collections.contains_key(&key.collection) {
            self.collections.insert(Arc::clone(&key.collection), Collection::default());
        }
        let live = &mut self.collections.get_mut(&key.collection).expect("it is there now").live;
        let previous = match effect {
            Effect::Put { expires } => live.insert(key.path.clone(), Live { record, expires }),
            Effect::Delete => live.remove(&key.path),
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

    /// Forgets history up to and including `up_to`.
    pub(super) fn compact(&mut self, up_to: Revision, mut forgotten: impl FnMut(&Arc<str>, &Event)) {
        let up_to = up_to.min(self.revision);
        while let Some(name) = self.bounds.oldest()
            && self.collections[&name].log.first_revision().is_some_and(|first| first <= up_to)
        {
            let event = self.forget_oldest_of(&name);
            forgotten(&name, &event);
        }
        self.compacted = self.compacted.max(up_to);
    }

    /// Visits every event that history holds, collection by collection.
    pub(super) fn each_event(&self, mut visit: impl FnMut(&Arc<str>, &Event)) {
        for (name, collection) in &self.collections {
            collection.log.after(0).for_each(|event| visit(name, event));
        }
    }

    /// Every live record, for a backup.
    pub(super) fn snapshot(&self) -> Snapshot {
        let mut records = Vec::with_capacity(self.collections.values().map(|c| c.live.len()).sum());
        for (name, collection) in &self.collections {
            let live = collection.live.values();
            records.extend(live.map(|live| (Arc::clone(name), Arc::clone(&live.record), live.expires)));
        }
        Snapshot::new(self.revision, records)
    }

    pub(super) fn compacted(&self) -> Revision {
        self.compacted
    }

    fn forget_oldest_of(&mut self, name: &str) -> Arc<Event> {
        let collection = self.collections.get_mut(name).expect("history names only known collections");
        self.bounds.forget_oldest(&mut collection.log)
    }

    /// The deletes of what has expired by `now`.
    pub(super) fn expired(&self, now: Timestamp) -> Vec<Change> {
        let due = self.expiries.iter().take_while(|(at, _)| *at <= now);
        due.map(|(_, key)| {
            let record = self.find(key).expect("only live records expire");
            let action = Action::Delete { value: record.value.clone() };
            Change { key: key.clone(), expect: Expect::Revision(record.revision), action }
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

    pub(super) fn list(&self, query: &ListQuery) -> Result<Page, ReadError> {
        let revision = query.at.unwrap_or(self.revision);
        self.check_revision(&query.collection, revision)?;
        let Some(collection) = self.collections.get(&query.collection) else {
            return Ok(Page { records: Vec::new(), revision, remaining: 0 });
        };
        let limit = query.limit.unwrap_or(usize::MAX);
        let mut page = Page { records: Vec::new(), revision, remaining: 0 };
        let mut take = |record: &Arc<Record>| {
            if page.records.len() < limit {
                page.records.push(Arc::clone(record));
            } else {
                page.remaining += 1;
            }
        };
        if revision == self.revision {
            collection.range(query).for_each(|live| take(&live.record));
        } else {
            collection.range_at(query, revision).values().copied().flatten().for_each(take);
        }
        Ok(page)
    }

    /// Tells of each change of a collection after `after`, if all of them are still there.
    pub(super) fn subscribe(
        &mut self,
        collection: &Arc<str>,
        after: Revision,
    ) -> Result<watch::Receiver<Revision>, ReadError> {
        self.check_revision(collection, after)?;
        Ok(self.collections.entry(Arc::clone(collection)).or_default().changed.subscribe())
    }

    /// The events of a collection after `after`, at most `limit`.
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
        let pending = log.after(after);
        let more = pending.len() > limit;
        let events: Vec<_> = pending.take(limit).cloned().collect();
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
            records: self.collections.iter().map(|(name, c)| (Arc::clone(name), c.live.len())).collect(),
            ..Stats::default()
        }
    }
}

impl Collection {
    fn range(&self, query: &ListQuery) -> impl Iterator<Item = &Live> {
        let start = match &query.after {
            Some(path) if **path >= *query.prefix => Bound::Excluded(&**path),
            _ => Bound::Included(&*query.prefix),
        };
        self.live
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(|(path, _)| path.starts_with(&*query.prefix))
            .map(|(_, live)| live)
    }

    /// The range as it was at `revision`: today's records, with each record that has changed since then put
    /// back to what it was before its first change.
    fn range_at(&self, query: &ListQuery, revision: Revision) -> BTreeMap<&str, Option<&Arc<Record>>> {
        let mut range: BTreeMap<&str, Option<&Arc<Record>>> =
            self.range(query).map(|live| (&*live.record.path, Some(&live.record))).collect();
        let mut restored = BTreeSet::new();
        for event in self.log.after(revision) {
            let path = &*event.record.path;
            let wanted =
                path.starts_with(&*query.prefix) && query.after.as_deref().is_none_or(|after| path > after);
            if wanted && restored.insert(path) {
                range.insert(path, event.previous.as_ref());
            }
        }
        range
    }
}
