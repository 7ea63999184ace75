//! The redb engine: a state in memory, and one file that it can be made from again.
//!
//! Reads never touch the file. Writes go through one thread that makes many of them durable with one sync,
//! and only then shows them to anybody: what was acknowledged, or seen by a watcher, survives a `kill -9`
//! and a power cut. `docs/storage.md` has the format of the file.

mod batch;
mod fault;
mod file;
mod guard;
mod health;
mod load;
mod medium;
mod migrate;
mod open_error;
mod reserve;
mod restore;
mod retired;
pub(super) mod row;
mod shortage;
mod worker;
mod writer;

#[cfg(test)]
mod crash_consistency;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod faulty_disk;
#[cfg(test)]
mod power_cuts;

use std::path::Path;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use jiff::Timestamp;
use setpoint_env::Env;

use self::file::File;
pub(super) use self::file::KNOWN_FORMAT;
pub(crate) use self::medium::Durability;
use self::medium::{FilePath, Medium};
pub use self::open_error::OpenError;
pub(crate) use self::restore::restore;
pub use self::restore::{RestoreError, Restored};
use self::writer::Writer;
use super::state::State;
use super::view::View;
use super::{
    Change, CommitError, Field, Found, Freshness, Key, Limits, ListQuery, ReadError, Record, Revision, Scan,
    Snapshot, Stats, Storage, Watch,
};
use crate::folder;

/// The name of the file.
pub(crate) const FILE: &str = "objects.redb";
/// How many expired records are removed at once, so that clients get their turn in between.
const EXPIRE_CHUNK: usize = 256;

/// Keeps everything in memory and in a file.
#[derive(Debug)]
pub(crate) struct Redb {
    env: Env,
    view: View,
    writer: Writer,
}

impl Redb {
    /// Opens the file in a folder, and makes both if they are not there.
    pub(crate) async fn open_in(
        folder: &Path,
        limits: Limits,
        durability: Durability,
    ) -> Result<Redb, OpenError> {
        folder::create(folder)
            .map_err(|source| OpenError::CreateFolder { folder: folder.to_owned(), source })?;
        Redb::open_on(Box::new(FilePath::new(&folder.join(FILE), durability)), limits).await
    }

    async fn open_on(medium: Box<dyn Medium>, limits: Limits) -> Result<Redb, OpenError> {
        let (writer, view) = Writer::start(medium, limits).await?;
        Ok(Redb { env: Env::system(), view, writer })
    }

    /// The same, with another clock.
    pub(crate) fn timed(self, env: Env) -> Redb {
        Redb { env, ..self }
    }
}

/// Everything in the store of a folder that no server uses.
pub(crate) fn snapshot_of(folder: &Path) -> Result<Snapshot, OpenError> {
    let medium = FilePath::new(&folder.join(FILE), Durability::Synced);
    let path = medium.path().to_owned();
    if !path.exists() {
        return Err(OpenError::NoStore { path });
    }
    // History is no part of a backup.
    let limits = Limits { events: 0, bytes: 0 };
    let (_file, state, _) = File::open(Box::new(medium), limits).map_err(|fault| fault.at(&path))?;
    Ok(state.snapshot())
}

impl Storage for Redb {
    fn get<'a>(&'a self, key: &'a Key, fresh: Freshness) -> BoxFuture<'a, Result<Found, ReadError>> {
        self.view.get(key, fresh)
    }

    fn scan<'a>(&'a self, query: &'a ListQuery) -> BoxFuture<'a, Result<Box<dyn Scan>, ReadError>> {
        self.view.scan(query)
    }

    fn reached(&self, revision: Revision) -> BoxFuture<'_, ()> {
        self.view.reached(revision)
    }

    fn commit(&self, change: Change) -> BoxFuture<'_, Result<Arc<Record>, CommitError>> {
        self.writer.commit(change, self.env.now()).boxed()
    }

    fn watch(&self, collection: &Arc<str>, after: Revision) -> Result<Watch, ReadError> {
        self.view.watch(collection, after)
    }

    fn watch_value(
        &self,
        collection: &Arc<str>,
        after: Revision,
        field: Field,
        value: &str,
    ) -> Result<Watch, ReadError> {
        self.view.watch_value(collection, after, field, value)
    }

    fn revision(&self) -> Revision {
        self.view.read(State::revision)
    }

    fn expire(&self, now: Timestamp) -> BoxFuture<'_, usize> {
        self.writer.trim();
        let changes = self.view.read(|state| state.expired(now));
        async move {
            let mut count = 0;
            for chunk in changes.chunks(EXPIRE_CHUNK) {
                // One that was written again meanwhile conflicts, and stays.
                let outcomes =
                    join_all(chunk.iter().map(|change| self.writer.commit(change.clone(), now))).await;
                count += outcomes.iter().filter(|outcome| outcome.is_ok()).count();
            }
            count
        }
        .boxed()
    }

    fn compact(&self, up_to: Revision) {
        self.writer.compact(up_to);
    }

    fn age(&self, up_to: Revision) {
        self.writer.age(up_to);
    }

    fn stats(&self) -> Stats {
        let mut stats = self.view.read(State::stats);
        self.writer.add_stats(&mut stats);
        stats
    }

    fn failure(&self) -> Option<Arc<str>> {
        self.writer.failure()
    }

    fn failed(&self) -> BoxFuture<'static, Arc<str>> {
        self.writer.failed()
    }

    fn snapshot(&self) -> Snapshot {
        self.view.read(State::snapshot)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.writer.close().boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::faulty_disk::Disk;
    use super::*;

    crate::storage::conformance::conformance!(async |limits| {
        Redb::open_on(Box::new(Disk::default()), limits).await.expect("an empty disk has room for a store")
    });
}
