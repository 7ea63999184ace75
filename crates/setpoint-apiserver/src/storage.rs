//! Where objects live: one small trait, several engines.
//!
//! A store holds *collections* (one a resource: `apps/deployments`) of records by *path* (`namespace/name`,
//! or `name`). It knows nothing of Kubernetes. Its promises, which `storage/conformance.rs` checks for every
//! engine:
//!
//! - One revision counter for everything. Each committed change gets the next revision; revisions are never
//!   re-used.
//! - A change is committed only if its expectation holds (compare and swap), and is wholly visible or not at
//!   all.
//! - A read says how fresh it has to be. A scan is the state at exactly one revision, also when it is read chunk by
//!   chunk while others write, and looks at each record and at each change since once.
//! - A watch after revision `n` gives every later change of its collection once, in order, or says that
//!   history since `n` is gone. Nothing is buffered for a watcher: it reads the shared history at its own
//!   speed, so a slow one costs nothing and is told when it has fallen too far behind.
//! - History is bounded in events and in bytes, and in time by whoever tells it what is old.

mod backup;
mod channels;
mod collection;
mod cursor;
#[cfg(feature = "etcd")]
mod etcd;
mod history;
mod index;
mod memory;
mod observer;
mod record;
mod redb;
mod scan;
mod state;
mod view;
mod watch;
mod write;

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod mutants;

use std::sync::Arc;
use std::time::Duration;

pub use self::backup::{BackupError, Summary};
pub(crate) use self::backup::{Encoder, Reader, Snapshot};
#[cfg(feature = "etcd")]
pub use self::etcd::copy::Copied;
#[cfg(feature = "etcd")]
pub(crate) use self::etcd::{Etcd, Registry, copy};
#[cfg(feature = "etcd")]
pub use self::etcd::{EtcdError, EtcdOptions};
pub(crate) use self::redb::{Durability, Redb, restore, snapshot_of};
pub use self::redb::{OpenError, RestoreError, Restored};
use crate::extension::Failure;
use bytes::Bytes;
use futures::future::BoxFuture;
pub(crate) use history::{Event, Limits};
use jiff::Timestamp;
pub(crate) use memory::Memory;
pub use observer::Committed;
pub(crate) use observer::Observer;
pub(crate) use record::Record;
pub(crate) use scan::{Chunk, Field, Freshness, Hint, ListQuery, Page, Scan};
pub(crate) use watch::{Batch, Telling, Told, Watch};

/// A point in the history of the whole store.
pub(crate) type Revision = u64;

/// The name of one record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    /// Which collection: `core/pods`.
    pub collection: Arc<str>,
    /// Which record in it: `default/web-0`.
    pub path: Box<str>,
}

/// What must be true for a change to be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// There is no record.
    Absent,
    /// There is a record, last changed at this revision.
    Revision(Revision),
}

/// What a change does.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Writes the value; the record vanishes by itself when its time to live is over.
    Put { value: Bytes, ttl: Option<Duration> },
    /// Removes the record. Watchers see the state that it was in.
    Delete,
}

/// One change of one record.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub key: Key,
    pub expect: Expect,
    pub action: Action,
}

/// One record, or none.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub record: Option<Arc<Record>>,
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ReadError {
    #[error("history up to revision {floor} has been compacted, revision {asked} is no longer there")]
    Compacted { asked: Revision, floor: Revision },
    #[error("revision {asked} is in the future, the newest is {current}")]
    Future { asked: Revision, current: Revision },
    /// Whoever makes the records has none to give.
    #[error(transparent)]
    Refused(#[from] Failure),
    /// The engine is elsewhere, and does not answer.
    #[cfg(feature = "etcd")]
    #[error("{why}")]
    Unavailable { why: Arc<str> },
    /// Somebody else has written what this server does not understand.
    #[cfg(feature = "etcd")]
    #[error("{place} cannot be decoded: {why}")]
    Undecodable { place: String, why: String },
}

/// Why a change was not committed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CommitError {
    /// The expectation does not hold; this is the record that is there.
    #[error("the record is not as expected")]
    Conflict { current: Option<Arc<Record>> },
    /// The engine could not keep it. Nobody has seen it; but a disk that fails may have it all the same, and
    /// then it appears, like a write whose answer got lost, once the disk can be read again.
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

impl CommitError {
    /// The record that is there, if the expectation does not hold.
    pub(crate) fn into_current(self) -> Result<Option<Arc<Record>>, NotStored> {
        match self {
            CommitError::Conflict { current } => Ok(current),
            CommitError::NotStored(error) => Err(error),
        }
    }
}

/// A change was right, but the engine could not keep it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the change was not stored: {why}")]
pub(crate) struct NotStored {
    pub why: Arc<str>,
    /// Whether it is for want of room.
    pub is_full: bool,
    /// What whoever keeps the records said, if that is not this server.
    pub refused: Option<Failure>,
}

impl From<Failure> for NotStored {
    fn from(failure: Failure) -> NotStored {
        NotStored { why: failure.to_string().into(), is_full: false, refused: Some(failure) }
    }
}

/// Figures about a store, for metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stats {
    pub revision: Revision,
    pub history_events: usize,
    pub history_bytes: usize,
    /// Whether there is no room but for changes that need none.
    pub is_full: bool,
    /// Changes that made the writer panic.
    pub writer_panics: u64,
    /// Live records by collection, in order of their names.
    pub records: Vec<(Arc<str>, usize)>,
    /// Of an engine that is elsewhere.
    #[cfg(feature = "etcd")]
    pub remote: Option<RemoteStats>,
}

/// Figures about a store that is elsewhere.
#[cfg(feature = "etcd")]
#[derive(Clone, Debug, Default)]
pub(crate) struct RemoteStats {
    pub requests: Vec<Requests>,
    /// How often the watch of it was begun again.
    pub watch_restarts: u64,
    /// Compactions by this server.
    pub compactions: u64,
    pub leases: u64,
    pub leased_objects: u64,
    /// How far reads from memory are behind what was heard.
    pub lag_revisions: u64,
    pub lag_seconds: f64,
}

/// Requests of one kind.
#[cfg(feature = "etcd")]
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    pub operation: &'static str,
    pub count: u64,
    pub errors: u64,
    pub seconds: f64,
}

/// A storage engine.
pub(crate) trait Storage: Send + Sync + 'static {
    /// Reads one record.
    fn get<'a>(&'a self, key: &'a Key, fresh: Freshness) -> BoxFuture<'a, Result<Found, ReadError>>;

    /// Begins to read a part of a collection at one revision.
    fn scan<'a>(&'a self, query: &'a ListQuery) -> BoxFuture<'a, Result<Box<dyn Scan>, ReadError>>;

    /// Reads a part of a collection at once: for short ones.
    fn list<'a>(&'a self, query: &'a ListQuery) -> BoxFuture<'a, Result<Page, ReadError>> {
        Box::pin(async move {
            let mut scan = self.scan(query).await?;
            let mut records = Vec::new();
            loop {
                let mut chunk = scan.next(usize::MAX).await?;
                records.append(&mut chunk.records);
                if chunk.end {
                    return Ok(Page { records, revision: scan.revision() });
                }
            }
        })
    }

    /// Returns once the store is at this revision or at a newer one. Whoever waits sets a limit.
    fn reached(&self, revision: Revision) -> BoxFuture<'_, ()>;

    /// Commits one change. The answer is the record as written; for a delete, the last state at the
    /// revision of the delete.
    fn commit(&self, change: Change) -> BoxFuture<'_, Result<Arc<Record>, CommitError>>;

    /// Everything that happens to a collection after a revision.
    fn watch(&self, collection: &Arc<str>, after: Revision) -> Result<Watch, ReadError>;

    /// The same for records whose field has a value, or had it before. An engine may tell of more.
    fn watch_value(
        &self,
        collection: &Arc<str>,
        after: Revision,
        _field: Field,
        _value: &str,
    ) -> Result<Watch, ReadError> {
        self.watch(collection, after)
    }

    /// The newest revision that reads from memory are of.
    fn revision(&self) -> Revision;

    /// Whether the revisions of a collection are somebody else's, and say nothing about those of the store.
    fn is_foreign(&self, _collection: &str) -> bool {
        false
    }

    /// The newest revision of all: others may write to the same store.
    fn latest(&self) -> BoxFuture<'_, Result<Revision, ReadError>> {
        Box::pin(std::future::ready(Ok(self.revision())))
    }

    /// Removes what has expired by `now`; how many records that were.
    fn expire(&self, now: Timestamp) -> BoxFuture<'_, usize>;

    /// Forgets history up to and including this revision, on purpose: reads and watches at an older one are refused.
    fn compact(&self, up_to: Revision);

    /// Forgets history up to and including this revision, because it is old: reads at an older one are refused, and
    /// watches that would miss something.
    fn age(&self, up_to: Revision);

    /// Figures for metrics.
    fn stats(&self) -> Stats;

    /// Every record at one revision.
    fn snapshot(&self) -> Snapshot;

    /// What the engine is called where its health is told.
    fn name(&self) -> &'static str {
        "storage"
    }

    /// The paths of a collection whose values cannot be read, and why. Lists are without them.
    fn damaged(&self, _collection: &str) -> Vec<(String, Arc<str>)> {
        Vec::new()
    }

    /// Why changes cannot be kept, if they cannot.
    fn failure(&self) -> Option<Arc<str>> {
        None
    }

    /// Waits until nothing can be kept any more, whatever is done but a restart; why.
    fn failed(&self) -> BoxFuture<'static, Arc<str>> {
        Box::pin(std::future::pending())
    }

    /// Ends writing, and lets go of what only one engine at a time can have. Reads still work.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
