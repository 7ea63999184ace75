//! A storage engine with collections that somebody else keeps: those of [`Source`]s.
//!
//! To the handlers they are collections like all others, so everything that a server does to objects it does to these, too.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::Value;

use super::{Asked, Failure, FailureCause, Source};
use crate::object;
use crate::storage::{
    Action, Change, Chunk, CommitError, Expect, Field, Found, Freshness, Key, ListQuery, ReadError, Record,
    Revision, Scan, Snapshot, Stats, Storage, Watch,
};

/// How many objects one list has at most.
const MOST: usize = 1_000_000;

/// An engine, and by collection where else records are.
pub(crate) struct Sourced {
    engine: Box<dyn Storage>,
    sources: BTreeMap<String, Arc<dyn Source>>,
}

impl Sourced {
    pub(crate) fn new(engine: Box<dyn Storage>, sources: BTreeMap<String, Arc<dyn Source>>) -> Sourced {
        Sourced { engine, sources }
    }

    fn source(&self, collection: &str) -> Option<&Arc<dyn Source>> {
        self.sources.get(collection)
    }
}

/// The namespace and the name of a path.
fn parts(path: &str) -> (Option<&str>, &str) {
    match path.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, path),
    }
}

async fn get(source: &Arc<dyn Source>, path: &str) -> Result<Option<Arc<Record>>, Failure> {
    let (namespace, name) = parts(path);
    let found = source.get(&Asked::now(namespace), name).await?;
    // Whoever answers with another object is not believed.
    Ok(found.filter(|record| &*record.path == path).map(Arc::new))
}

async fn list(source: &Arc<dyn Source>, query: &ListQuery) -> Result<Box<dyn Scan>, ReadError> {
    let asked = Asked::now(query.prefix.strip_suffix('/'));
    let (mut records, revision) = source.list(&asked).await?;
    if records.len() > MOST {
        return Err(Failure::internal(format!("there are more than {MOST} objects")).into());
    }
    match query.fresh {
        // Another moment's: the one that is asked for is gone.
        Freshness::Exact(asked) if asked != revision => {
            return Err(ReadError::Compacted { asked, floor: revision });
        }
        Freshness::AtLeast(asked) if revision != 0 && asked > revision => {
            return Err(ReadError::Future { asked, current: revision });
        }
        _ => {}
    }
    records.retain(|record| {
        record.path.starts_with(&*query.prefix)
            && query.after.as_ref().is_none_or(|after| record.path > *after)
    });
    records.sort_by(|one, other| one.path.cmp(&other.path));
    let records = records.into_iter().map(Arc::new).collect::<Vec<_>>().into_iter();
    Ok(Box::new(Listing { records, revision, visited: 0 }))
}

/// A list that was made at once.
struct Listing {
    records: std::vec::IntoIter<Arc<Record>>,
    revision: Revision,
    visited: usize,
}

impl Scan for Listing {
    fn revision(&self) -> Revision {
        self.revision
    }

    fn next(&mut self, limit: usize) -> BoxFuture<'_, Result<Chunk, ReadError>> {
        let records: Vec<_> = self.records.by_ref().take(limit).collect();
        self.visited += records.len();
        let left = self.records.len();
        Box::pin(std::future::ready(Ok(Chunk { records, end: left == 0, remaining: Some(left) })))
    }

    fn visited(&self) -> usize {
        self.visited
    }
}

async fn commit(source: &Arc<dyn Source>, change: Change) -> Result<Arc<Record>, CommitError> {
    let Change { key, expect, action } = change;
    let (namespace, _) = parts(&key.path);
    let asked = Asked::now(namespace);
    let revision = match expect {
        Expect::Absent => 0,
        Expect::Revision(revision) => revision,
    };
    let decode = |value: &[u8]| -> Value { object::decode(value, revision) };
    let outcome = match (expect, action) {
        (Expect::Absent, Action::Put { value, .. }) => source.create(&asked, decode(&value)).await,
        (Expect::Revision(_), Action::Put { value, .. }) => source.update(&asked, decode(&value)).await,
        (_, Action::Delete) => delete(source, &asked, &key, revision).await,
    };
    match outcome {
        Ok(record) => Ok(Arc::new(record)),
        Err(failure) => Err(refused(source, &key, expect, failure).await),
    }
}

/// Removes the state that was read, and no other.
async fn delete(
    source: &Arc<dyn Source>,
    asked: &Asked,
    key: &Key,
    revision: Revision,
) -> Result<Record, Failure> {
    let last = match get(source, &key.path).await? {
        None => return Err(Failure::not_found("it is gone")),
        Some(record) if record.revision != revision => return Err(Failure::conflict("it has changed")),
        Some(record) => record,
    };
    source.delete(asked, object::decode(&last.value, revision)).await?;
    Ok(Record::new(key.path.clone(), revision, last.value.clone()))
}

/// Somebody else was faster, or the source does not want it so.
async fn refused(source: &Arc<dyn Source>, key: &Key, expect: Expect, failure: Failure) -> CommitError {
    let is_overtaken = match (expect, failure.cause) {
        (Expect::Absent, cause) => cause == FailureCause::AlreadyExists,
        (Expect::Revision(_), cause) => matches!(cause, FailureCause::Conflict | FailureCause::NotFound),
    };
    if !is_overtaken {
        return CommitError::NotStored(failure.into());
    }
    let current = match get(source, &key.path).await {
        Ok(current) => current,
        Err(failure) => return CommitError::NotStored(failure.into()),
    };
    // What is as expected would be refused again, and again.
    let is_as_expected = match (expect, &current) {
        (Expect::Revision(expected), Some(record)) => record.revision == expected,
        (Expect::Absent, None) => true,
        _ => false,
    };
    if is_as_expected { CommitError::NotStored(failure.into()) } else { CommitError::Conflict { current } }
}

impl Storage for Sourced {
    fn get<'a>(&'a self, key: &'a Key, fresh: Freshness) -> BoxFuture<'a, Result<Found, ReadError>> {
        match self.source(&key.collection) {
            None => self.engine.get(key, fresh),
            Some(source) => Box::pin(async { Ok(Found { record: get(source, &key.path).await? }) }),
        }
    }

    fn scan<'a>(&'a self, query: &'a ListQuery) -> BoxFuture<'a, Result<Box<dyn Scan>, ReadError>> {
        match self.source(&query.collection) {
            None => self.engine.scan(query),
            Some(source) => Box::pin(list(source, query)),
        }
    }

    fn reached(&self, revision: Revision) -> BoxFuture<'_, ()> {
        self.engine.reached(revision)
    }

    fn commit(&self, change: Change) -> BoxFuture<'_, Result<Arc<Record>, CommitError>> {
        match self.source(&change.key.collection) {
            None => self.engine.commit(change),
            Some(source) => Box::pin(commit(source, change)),
        }
    }

    fn watch(&self, collection: &Arc<str>, after: Revision) -> Result<Watch, ReadError> {
        match self.source(collection) {
            None => self.engine.watch(collection, after),
            Some(source) => Ok(Watch::told(source.watch(&Asked::now(None), after), after)),
        }
    }

    fn watch_value(
        &self,
        collection: &Arc<str>,
        after: Revision,
        field: Field,
        value: &str,
    ) -> Result<Watch, ReadError> {
        match self.source(collection) {
            None => self.engine.watch_value(collection, after, field, value),
            Some(_) => self.watch(collection, after),
        }
    }

    fn revision(&self) -> Revision {
        self.engine.revision()
    }

    fn latest(&self) -> BoxFuture<'_, Result<Revision, ReadError>> {
        self.engine.latest()
    }

    fn is_foreign(&self, collection: &str) -> bool {
        self.sources.contains_key(collection)
    }

    fn expire(&self, now: Timestamp) -> BoxFuture<'_, usize> {
        self.engine.expire(now)
    }

    fn compact(&self, up_to: Revision) {
        self.engine.compact(up_to);
    }

    fn age(&self, up_to: Revision) {
        self.engine.age(up_to);
    }

    fn stats(&self) -> Stats {
        self.engine.stats()
    }

    fn snapshot(&self) -> Snapshot {
        self.engine.snapshot()
    }

    fn failure(&self) -> Option<Arc<str>> {
        self.engine.failure()
    }

    fn failed(&self) -> BoxFuture<'static, Arc<str>> {
        self.engine.failed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.engine.close()
    }
}
