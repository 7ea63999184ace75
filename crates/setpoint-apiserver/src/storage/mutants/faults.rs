//! One fault each, around the memory engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use jiff::Timestamp;
use parking_lot::Mutex;
use setpoint_env::watch::Sender;
use setpoint_history::Resource;

use super::super::watch::Feed;
use super::super::write::Write;
use super::super::{
    Action, Batch, Change, Chunk, CommitError, Expect, Field, Found, Freshness, Key, Limits, ListQuery,
    Memory, ReadError, Record, Revision, Scan, Snapshot, Stats, Storage, Watch,
};

/// What is wrong with a store, or with what is before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing.
    None,
    /// A change is answered, and committed when the next one comes.
    AnswerBeforeCommit,
    /// A watch that begins in the past leaves out the first event.
    SkipOnResume,
    /// A watch tells the event at its version again.
    RepeatOnResume,
    /// Some reads of the newest state are one revision old.
    StaleRead,
    /// A watch from before a compaction goes on, without the deletes that were compacted.
    LostDelete,
    /// The first half of a list is older than the second.
    TwoMoments,
    /// Who is before the server sends each patch twice, as if the first answer had got lost.
    PatchTwice,
    /// Some changes are committed and reported as a conflict, so that a patch is made again on top of itself.
    ConflictAfterCommit,
    /// The version that an update names is not looked at.
    LostUpdate,
    /// Some changes are answered and never made.
    LostWrite,
    /// What keeps the events of one value of a field leaves some out.
    ForgottenByValue,
}

impl Fault {
    /// What the clients write: only pods are watched by the value of a field.
    pub(super) fn resource(self) -> Resource {
        if self == Fault::ForgottenByValue { Resource::Pods } else { Resource::ConfigMaps }
    }
}

/// How rare a fault is that does not hit everything.
const EVERY: usize = 10;

pub(super) struct Mutant {
    inner: Arc<Memory>,
    fault: Fault,
    count: AtomicUsize,
    /// Answered, and not yet made.
    pending: Mutex<Option<Change>>,
    compacted: Mutex<Revision>,
    changed: Sender<Revision>,
}

impl Mutant {
    pub(super) fn new(fault: Fault) -> Mutant {
        Mutant {
            inner: Arc::new(Memory::new(Limits::default())),
            fault,
            count: AtomicUsize::new(0),
            pending: Mutex::new(None),
            compacted: Mutex::new(0),
            changed: Sender::new(0),
        }
    }

    /// Whether a fault that is not everywhere is here.
    fn is_hit(&self, fault: Fault, collection: &str) -> bool {
        self.is(fault, collection) && self.count.fetch_add(1, Ordering::Relaxed) % EVERY == EVERY - 1
    }

    /// Whether this is where the fault is: what the server itself needs is left alone.
    fn is(&self, fault: Fault, collection: &str) -> bool {
        let at = if fault.resource() == Resource::Pods { "pods" } else { "configmaps" };
        self.fault == fault && collection.ends_with(at)
    }

    fn make(&self, change: Change) -> Result<Arc<Record>, CommitError> {
        let outcome = self.inner.commit(change).now_or_never().expect("memory keeps nobody waiting");
        self.changed.send_replace(self.inner.revision());
        outcome
    }

    /// What the answer to a change would be.
    fn answer(&self, change: Change) -> Result<Arc<Record>, CommitError> {
        let found = self
            .inner
            .get(&change.key, Freshness::Latest)
            .now_or_never()
            .expect("memory keeps nobody waiting");
        let current = found.expect("the newest state is always there").record;
        Write::new(change, current.as_ref(), self.inner.revision() + 1, Timestamp::UNIX_EPOCH)
            .map(|write| write.record)
    }

    fn commit_now(&self, change: Change) -> Result<Arc<Record>, CommitError> {
        if let Some(pending) = self.pending.lock().take() {
            let _ = self.make(pending);
        }
        let collection = Arc::clone(&change.key.collection);
        if self.is(Fault::AnswerBeforeCommit, &collection) {
            let answer = self.answer(change.clone())?;
            *self.pending.lock() = Some(change);
            return Ok(answer);
        }
        if self.is_hit(Fault::LostWrite, &collection) {
            return self.answer(change);
        }
        if self.is_hit(Fault::ConflictAfterCommit, &collection) {
            let current = Some(self.make(change)?);
            return Err(CommitError::Conflict { current });
        }
        let is_put = matches!(change.action, Action::Put { .. });
        match self.make(change.clone()) {
            Err(CommitError::Conflict { current: Some(current) })
                if self.is(Fault::LostUpdate, &collection) && is_put && change.expect != Expect::Absent =>
            {
                self.make(Change { expect: Expect::Revision(current.revision), ..change })
            }
            outcome => outcome,
        }
    }

    /// The state one revision ago, if there is one.
    fn stale(&self, fresh: Freshness) -> Freshness {
        match fresh {
            Freshness::Latest => Freshness::Exact(self.inner.revision().saturating_sub(1)),
            other => other,
        }
    }
}

impl Storage for Mutant {
    fn get<'a>(&'a self, key: &'a Key, fresh: Freshness) -> BoxFuture<'a, Result<Found, ReadError>> {
        if !key.collection.ends_with("configmaps") {
            return self.inner.get(key, fresh);
        }
        async move {
            let stale =
                if self.is_hit(Fault::StaleRead, &key.collection) { self.stale(fresh) } else { fresh };
            let found = match self.inner.get(key, stale).await {
                Ok(found) => Ok(found),
                Err(_) => self.inner.get(key, fresh).await,
            };
            // Others get their turn between what a handler reads and what it writes.
            tokio::task::yield_now().await;
            found
        }
        .boxed()
    }

    fn scan<'a>(&'a self, query: &'a ListQuery) -> BoxFuture<'a, Result<Box<dyn Scan>, ReadError>> {
        if !self.is(Fault::TwoMoments, &query.collection) || query.fresh != Freshness::Latest {
            return self.inner.scan(query);
        }
        async move {
            let old = ListQuery { fresh: self.stale(query.fresh), ..query.clone() };
            let (now, old) = (self.inner.list(query).await?, self.inner.list(&old).await);
            let Ok(old) = old else { return self.inner.scan(query).await };
            let middle = now.records.get(now.records.len() / 2).map(|record| record.path.clone());
            let is_first = |record: &Arc<Record>| middle.as_ref().is_some_and(|middle| record.path < *middle);
            let mut records: Vec<_> = old.records.into_iter().filter(|record| is_first(record)).collect();
            records.extend(now.records.into_iter().filter(|record| !is_first(record)));
            Ok(Box::new(Fixed { records, revision: now.revision }) as Box<dyn Scan>)
        }
        .boxed()
    }

    fn reached(&self, revision: Revision) -> BoxFuture<'_, ()> {
        self.inner.reached(revision)
    }

    fn commit(&self, change: Change) -> BoxFuture<'_, Result<Arc<Record>, CommitError>> {
        ready(self.commit_now(change)).boxed()
    }

    fn watch(&self, collection: &Arc<str>, after: Revision) -> Result<Watch, ReadError> {
        if self.is(Fault::RepeatOnResume, collection) {
            return self.inner.watch(collection, after.saturating_sub(1));
        }
        if self.is(Fault::SkipOnResume, collection) {
            let batch = self.inner.watch(collection, after)?.ready()?;
            let first = batch.events.first().map_or(after, |event| event.revision());
            return self.inner.watch(collection, first);
        }
        let compacted = *self.compacted.lock();
        if self.is(Fault::LostDelete, collection) && after < compacted {
            let feed = WithoutDeletes {
                inner: Arc::clone(&self.inner),
                collection: Arc::clone(collection),
                compacted,
            };
            return Ok(Watch::new(Arc::new(feed), self.changed.subscribe(), after));
        }
        self.inner.watch(collection, after)
    }

    fn watch_value(
        &self,
        collection: &Arc<str>,
        after: Revision,
        field: Field,
        value: &str,
    ) -> Result<Watch, ReadError> {
        if !self.is(Fault::ForgottenByValue, collection) {
            return self.inner.watch_value(collection, after, field, value);
        }
        let (inner, collection) = (Arc::clone(&self.inner), Arc::clone(collection));
        let feed = Forgetful { inner, collection, field, value: value.to_owned() };
        Ok(Watch::new(Arc::new(feed), self.changed.subscribe(), after))
    }

    fn revision(&self) -> Revision {
        self.inner.revision()
    }

    fn expire(&self, now: Timestamp) -> BoxFuture<'_, usize> {
        self.inner.expire(now)
    }

    fn compact(&self, up_to: Revision) {
        if self.fault == Fault::LostDelete {
            *self.compacted.lock() = up_to;
        } else {
            self.inner.compact(up_to);
        }
    }

    fn age(&self, up_to: Revision) {
        self.inner.age(up_to);
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }

    fn snapshot(&self) -> Snapshot {
        self.inner.snapshot()
    }
}

/// All events but the deletes that were compacted.
struct WithoutDeletes {
    inner: Arc<Memory>,
    collection: Arc<str>,
    compacted: Revision,
}

impl Feed for WithoutDeletes {
    fn read(&self, after: Revision, _limit: usize) -> Result<Batch, ReadError> {
        let mut batch = self.inner.watch(&self.collection, after)?.ready()?;
        batch.events.retain(|event| !event.deleted || event.revision() > self.compacted);
        Ok(batch)
    }
}

/// Most events of a value.
struct Forgetful {
    inner: Arc<Memory>,
    collection: Arc<str>,
    field: Field,
    value: String,
}

impl Feed for Forgetful {
    fn read(&self, after: Revision, _limit: usize) -> Result<Batch, ReadError> {
        let mut batch = self.inner.watch_value(&self.collection, after, self.field, &self.value)?.ready()?;
        batch.events.retain(|event| event.revision() % EVERY as Revision != 0);
        Ok(batch)
    }
}

/// Records that are there already.
struct Fixed {
    records: Vec<Arc<Record>>,
    revision: Revision,
}

impl Scan for Fixed {
    fn revision(&self) -> Revision {
        self.revision
    }

    fn next(&mut self, limit: usize) -> BoxFuture<'_, Result<Chunk, ReadError>> {
        let rest = self.records.split_off(limit.min(self.records.len()));
        let records = std::mem::replace(&mut self.records, rest);
        let end = self.records.is_empty();
        ready(Ok(Chunk { records, end, remaining: Some(self.records.len()) })).boxed()
    }

    fn visited(&self) -> usize {
        0
    }
}
