//! The file: its tables, and how writes get into them.

use std::io;
use std::ops::Bound;
use std::path::Path;

use ::redb::{Database, ReadableDatabase, ReadableTable, Table, TableDefinition, WriteTransaction};

use super::super::state::State;
use super::super::write::Write;
use super::super::{Limits, Revision};
use super::fault::Fault;
use super::guard::Latch;
use super::load::load;
use super::medium::{Condition, Medium, Opened};
use super::migrate::migrate;
use super::retired::Retired;
use super::row;

/// Every write that is live, or that history needs, by its revision.
pub(super) const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("log");
/// Single numbers, by the names below.
pub(super) const POSITION: TableDefinition<&str, u64> = TableDefinition::new("position");
/// The newest event that history has forgotten, by collection.
pub(super) const FORGOTTEN: TableDefinition<&str, u64> = TableDefinition::new("forgotten");

pub(super) const FORMAT: &str = "format";
pub(super) const REVISION: &str = "revision";
pub(super) const FLOOR: &str = "floor";
pub(super) const COMPACTED: &str = "compacted";

/// The format of the file that this version reads and writes.
pub(in crate::storage) const KNOWN_FORMAT: u64 = 2;
/// How far revisions jump ahead when a file was not closed. redb takes back one commit at most, and that has at most
/// [`super::batch::CHANGES`] changes: what a lost one was called is never used again.
pub(super) const LEAP: Revision = 1_000;

/// Makes an empty database a store.
pub(super) fn initialize(database: &Database) -> Result<(), ::redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(LOG)?;
    transaction.open_table(FORGOTTEN)?;
    transaction.open_table(POSITION)?.insert(FORMAT, KNOWN_FORMAT)?;
    transaction.commit()?;
    Ok(())
}

/// A store on a medium. After a failure it is closed, and has to be [reopened](File::reopen).
#[derive(Debug)]
pub(super) struct File {
    medium: Box<dyn Medium>,
    database: Option<Database>,
    latch: Latch,
}

impl File {
    /// Opens the store and reads all of it.
    pub(super) fn open(medium: Box<dyn Medium>, limits: Limits) -> Result<(File, State, Retired), Fault> {
        let latch = Latch::default();
        let database = match open(&*medium, &latch) {
            // What has to be written before it can be used needs room, too.
            Err(fault) if fault.is_full() && latch.why().is_none() => {
                medium.release();
                open(&*medium, &latch)
            }
            outcome => outcome,
        }?;
        let (state, retired) = load(&database, limits)?;
        Ok((File { medium, database: Some(database), latch }, state, retired))
    }

    pub(super) fn path(&self) -> &Path {
        self.medium.path()
    }

    pub(super) fn is_open(&self) -> bool {
        self.database.is_some()
    }

    /// Why a sync has failed, if one has. Then the file must not be used any more.
    pub(super) fn lost_sync(&self) -> Option<&str> {
        self.latch.why()
    }

    /// Opens the store again. Gives its revision: a commit that failed may have come through.
    pub(super) fn reopen(&mut self) -> Result<Revision, Fault> {
        let Opened { database, .. } = self.medium.open(&self.latch)?;
        check_format(&database)?;
        let revision = position(&database, REVISION)?.max(1);
        self.database = Some(database);
        Ok(revision)
    }

    /// Makes rows durable, removes what is retired, and says which revision this is. All of it happens, or nothing.
    pub(super) fn commit(
        &mut self,
        rows: &[Write],
        revision: Option<Revision>,
        retired: &Retired,
    ) -> Result<(), Fault> {
        // redb takes no more orders after a failure, so the store is open again only if all went well.
        let closed = || ::redb::StorageError::DatabaseClosed;
        let database = self.database.take().ok_or_else(closed)?;
        commit(&database, rows, revision, retired)?;
        self.database = Some(database);
        Ok(())
    }

    /// Gives room that is free within the file back to the disk.
    pub(super) fn shrink(&mut self) -> Result<(), Fault> {
        let closed = || ::redb::StorageError::DatabaseClosed;
        let mut database = self.database.take().ok_or_else(closed)?;
        database.compact()?;
        self.database = Some(database);
        Ok(())
    }

    /// Sets room aside.
    pub(super) fn reserve(&self) -> io::Result<()> {
        self.medium.reserve()
    }

    /// Gives up the room that was set aside.
    pub(super) fn release(&self) {
        self.medium.release();
    }

    /// Closes the file.
    pub(super) fn close(&mut self) {
        self.database = None;
    }

    /// Closes the file for good. Who opens it next sees what is on the disk.
    pub(super) fn abandon(mut self) {
        self.database = None;
        self.medium.forget_cached();
    }
}

fn open(medium: &dyn Medium, latch: &Latch) -> Result<Database, Fault> {
    let Opened { database, condition } = medium.open(latch)?;
    let format = check_format(&database)?;
    if format < KNOWN_FORMAT {
        migrate(&database, format)?;
    }
    if condition != Condition::Whole {
        leap(&database, condition)?;
    }
    Ok(database)
}

fn check_format(database: &Database) -> Result<u64, Fault> {
    match position(database, FORMAT)? {
        0 => Err(Fault::Damaged("no format version")),
        found if found > KNOWN_FORMAT => Err(Fault::Newer { found }),
        found => Ok(found),
    }
}

/// Goes on with revisions that nobody has seen. Where changes may be missing that clients have seen, they must not
/// resume from them either.
pub(super) fn leap(database: &Database, condition: Condition) -> Result<(), Fault> {
    let revision = position(database, REVISION)?.max(1).saturating_add(LEAP);
    let transaction = database.begin_write()?;
    {
        let mut position = transaction.open_table(POSITION)?;
        position.insert(REVISION, revision)?;
        if condition == Condition::Repaired {
            position.insert(COMPACTED, revision)?;
        }
    }
    transaction.commit()?;
    Ok(())
}

/// One of the single numbers; 0 if it is not there.
pub(super) fn position(database: &Database, name: &str) -> Result<u64, Fault> {
    let table = database.begin_read()?.open_table(POSITION)?;
    Ok(table.get(name)?.map_or(0, |number| number.value()))
}

fn commit(
    database: &Database,
    rows: &[Write],
    revision: Option<Revision>,
    retired: &Retired,
) -> Result<(), Fault> {
    let transaction = database.begin_write()?;
    {
        let mut log = transaction.open_table(LOG)?;
        append(&mut log, rows)?;
        for row in &retired.rows {
            log.remove(row)?;
        }
        let mut position = transaction.open_table(POSITION)?;
        if let Some(revision) = revision {
            position.insert(REVISION, revision)?;
        }
        retire(&transaction, &mut position, retired)?;
    }
    transaction.commit()?;
    Ok(())
}

/// Revisions grow, so that every row goes to the end, where pages can be filled up.
fn append(log: &mut Table<'_, u64, &'static [u8]>, rows: &[Write]) -> Result<(), Fault> {
    let mut end = log.upper_bound_mut(Bound::Unbounded::<u64>)?;
    let mut row = Vec::new();
    for write in rows {
        row::encode(write, &mut row).map_err(|_| Fault::Damaged("a name that no row can hold"))?;
        end.insert_before(write.record.revision, row.as_slice())?;
    }
    end.close()?;
    Ok(())
}

fn retire(
    transaction: &WriteTransaction,
    position: &mut Table<'_, &'static str, u64>,
    retired: &Retired,
) -> Result<(), Fault> {
    if !retired.forgotten.is_empty() {
        raise(position, FLOOR, retired.floor)?;
        let mut forgotten = transaction.open_table(FORGOTTEN)?;
        for (collection, revision) in &retired.forgotten {
            raise(&mut forgotten, collection, *revision)?;
        }
    }
    if let Some(compacted) = retired.compacted {
        raise(position, COMPACTED, compacted)?;
    }
    Ok(())
}

/// Memory may remember more than the file does, and forgets it later: a number that has been reached stays.
fn raise(table: &mut Table<'_, &'static str, u64>, name: &str, number: u64) -> Result<(), Fault> {
    let known = table.get(name)?.map_or(0, |known| known.value());
    if known < number {
        table.insert(name, number)?;
    }
    Ok(())
}
