//! The memory engine: everything in ordered maps behind one lock that is held for microseconds.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use jiff::Timestamp;
use parking_lot::RwLock;
use tokio::sync::watch;

use super::history::{Bounds, Log};
use super::watch::Feed;
use super::{
    Action, Batch, Change, CommitError, Event, Expect, Found, Key, Limits, ListQuery, Page, ReadError,
    Record, Revision, Stats, Storage, Watch,
};

/// Keeps everything in memory; what it holds ends with it.
#[derive(Debug)]
pub(crate) struct Memory {
    state: Arc<RwLock<State>>,
}

#[derive(Debug)]
struct State {
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

impl Memory {
    pub(crate) fn new(limits: Limits) -> Memory {
        // Revision 0 means "any" to clients, so the empty store is at revision 1.
        let state = State {
            revision: 1,
            compacted: 0,
            bounds: Bounds::new(limits),
            collections: BTreeMap::new(),
            expiries: BTreeSet::new(),
        };
        Memory { state: Arc::new(RwLock::new(state)) }
    }
}

impl State {
    fn commit(&mut self, change: Change) -> Result<Arc<Record>, CommitError> {
        let Change { key, expect, action } = change;
        let collection = self.collections.entry(Arc::clone(&key.collection)).or_default();
        let current = collection.live.get(&key.path);
        let holds = match expect {
            Expect::Absent => current.is_none(),
            Expect::Revision(revision) => current.is_some_and(|live| live.record.revision == revision),
        };
        if !holds {
            return Err(CommitError::Conflict { current: current.map(|live| Arc::clone(&live.record)) });
        }
        if let Some(expires) = current.and_then(|live| live.expires) {
            self.expiries.remove(&(expires, key.clone()));
        }
        self.revision += 1;
        let (value, put) = match action {
            Action::Put { value, expires } => (value, Some(expires)),
            Action::Delete { value } => (value, None),
        };
        let record = Arc::new(Record::new(key.path.clone(), self.revision, value));
        let previous = match put {
            Some(expires) => {
                let live = Live { record: Arc::clone(&record), expires };
                if let Some(expires) = expires {
                    self.expiries.insert((expires, key.clone()));
                }
                collection.live.insert(key.path, live)
            }
            None => collection.live.remove(&key.path),
        };
        let event = Event {
            record: Arc::clone(&record),
            previous: previous.map(|live| live.record),
            deleted: put.is_none(),
        };
        self.bounds.push(&key.collection, &mut collection.log, event);
        collection.changed.send_replace(self.revision);
        self.trim();
        Ok(record)
    }

    fn trim(&mut self) {
        while let Some(name) = self.bounds.excess() {
            self.forget_oldest_of(&name);
        }
    }

    fn forget_oldest_of(&mut self, name: &str) {
        let collection = self.collections.get_mut(name).expect("history names only known collections");
        self.bounds.forget_oldest(&mut collection.log);
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

    fn list(&self, query: &ListQuery) -> Result<Page, ReadError> {
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

impl Storage for Memory {
    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Found, ReadError>> {
        let state = self.state.read();
        let live = state.collections.get(&key.collection).and_then(|c| c.live.get(&key.path));
        let found = Found { record: live.map(|live| Arc::clone(&live.record)), revision: state.revision };
        ready(Ok(found)).boxed()
    }

    fn list<'a>(&'a self, query: &'a ListQuery) -> BoxFuture<'a, Result<Page, ReadError>> {
        ready(self.state.read().list(query)).boxed()
    }

    fn commit(&self, change: Change) -> BoxFuture<'_, Result<Arc<Record>, CommitError>> {
        ready(self.state.write().commit(change)).boxed()
    }

    fn watch(&self, collection: &Arc<str>, after: Revision) -> Result<Watch, ReadError> {
        let mut state = self.state.write();
        state.check_revision(collection, after)?;
        let changed = state.collections.entry(Arc::clone(collection)).or_default().changed.subscribe();
        let feed = MemoryFeed { state: Arc::clone(&self.state), collection: Arc::clone(collection) };
        Ok(Watch::new(Arc::new(feed), changed, after))
    }

    fn revision(&self) -> Revision {
        self.state.read().revision
    }

    fn expire(&self, now: Timestamp) -> BoxFuture<'_, usize> {
        let mut state = self.state.write();
        let mut count = 0;
        while let Some((at, _)) = state.expiries.first()
            && *at <= now
        {
            let (_, key) = state.expiries.pop_first().expect("it has just been seen");
            let live = &state.collections[&key.collection].live[&key.path];
            let expect = Expect::Revision(live.record.revision);
            let action = Action::Delete { value: live.record.value.clone() };
            if state.commit(Change { key, expect, action }).is_ok() {
                count += 1;
            }
        }
        ready(count).boxed()
    }

    fn compact(&self, up_to: Revision) {
        let mut state = self.state.write();
        let up_to = up_to.min(state.revision);
        while let Some(name) = state.bounds.oldest()
            && state.collections[&name].log.first_revision().is_some_and(|first| first <= up_to)
        {
            state.forget_oldest_of(&name);
        }
        state.compacted = state.compacted.max(up_to);
    }

    fn stats(&self) -> Stats {
        let state = self.state.read();
        Stats {
            revision: state.revision,
            history_events: state.bounds.events(),
            history_bytes: state.bounds.bytes(),
            records: state.collections.iter().map(|(name, c)| (Arc::clone(name), c.live.len())).collect(),
        }
    }
}

struct MemoryFeed {
    state: Arc<RwLock<State>>,
    collection: Arc<str>,
}

impl Feed for MemoryFeed {
    fn read(&self, after: Revision, limit: usize) -> Result<Batch, ReadError> {
        let state = self.state.read();
        let collection = &state.collections[&self.collection];
        // A compaction on purpose does not end a watch that has already seen what is given up.
        let floor = collection.log.forgotten();
        if after < floor {
            return Err(ReadError::Compacted { asked: after, floor });
        }
        let pending = collection.log.after(after);
        let more = pending.len() > limit;
        let events: Vec<_> = pending.take(limit).cloned().collect();
        let complete_to = match events.last() {
            Some(last) if more => last.revision(),
            _ => state.revision,
        };
        Ok(Batch { events, complete_to, more })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::storage::conformance::conformance!(Memory::new);
}
