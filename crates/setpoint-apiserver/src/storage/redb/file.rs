//! The file: its tables, how a state is made from them, and how writes get into them.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;

use ::redb::{Database, ReadableDatabase, ReadableTable, Table, TableDefinition, WriteTransaction};

use super::super::state::State;
use super::super::write::Write;
use super::super::{Limits, Revision};
use super::fault::Fault;
use super::medium::Medium;
use super::retired::Retired;
use super::row;

/// Every write that is live, or that history needs, by its revision.
const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("log");
/// Single numbers, by the names below.
const POSITION: TableDefinition<&str, u64> = TableDefinition::new("position");
/// The newest event that history has forgotten, by collection.
const FORGOTTEN: TableDefinition<&str, u64> = TableDefinition::new("forgotten");

const FORMAT: &str = "format";
const REVISION: &str = "revision";
const FLOOR: &str = "floor";
const COMPACTED: &str = "compacted";

/// The format of the file that this version reads and writes.
pub(super) const KNOWN_FORMAT: u64 = 1;

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
}

impl File {
    /// Opens the store and reads all of it.
    pub(super) fn open(medium: Box<dyn Medium>, limits: Limits) -> Result<(File, State, Retired), Fault> {
        let database = open(&*medium)?;
        let (state, retired) = load(&database, limits)?;
        Ok((File { medium, database: Some(database) }, state, retired))
    }

    pub(super) fn is_open(&self) -> bool {
        self.database.is_some()
    }

    /// Opens the store again. Gives the writes after `known`, which is what the caller knows of: a commit
    /// that failed may have come through.
    pub(super) fn reopen(&mut self, known: Revision) -> Result<Vec<Write>, Fault> {
        let database = open(&*self.medium)?;
        let writes = writes_after(&database, known)?;
        let newest = writes.last().map_or(known, |write| write.record.revision);
        if position(&database, REVISION)?.max(1) != newest {
            return Err(Fault::Damaged("lost changes"));
        }
        self.database = Some(database);
        Ok(writes)
    }

    /// Makes writes durable, and removes what is retired. All of it happens, or nothing.
    pub(super) fn commit(&mut self, writes: &[Write], retired: &Retired) -> Result<(), Fault> {
        // redb takes no more orders after a failure, so the store is open again only if all went well.
        let closed = || ::redb::StorageError::DatabaseClosed;
        let database = self.database.take().ok_or_else(closed)?;
        commit(&database, writes, retired)?;
        self.database = Some(database);
        Ok(())
    }
}

fn open(medium: &dyn Medium) -> Result<Database, Fault> {
    let database = medium.open()?;
    match position(&database, FORMAT)? {
        KNOWN_FORMAT => Ok(database),
        0 => Err(Fault::Damaged("no format version")),
        found => Err(Fault::Newer { found }),
    }
}

/// One of the single numbers; 0 if it is not there.
fn position(database: &Database, name: &str) -> Result<u64, Fault> {
    let table = database.begin_read()?.open_table(POSITION)?;
    Ok(table.get(name)?.map_or(0, |number| number.value()))
}

fn writes_after(database: &Database, revision: Revision) -> Result<Vec<Write>, Fault> {
    let log = database.begin_read()?.open_table(LOG)?;
    let mut writes = Vec::new();
    for entry in log.range(revision + 1..)? {
        let (revision, row) = entry?;
        writes.push(decode(revision.value(), row.value(), |name| name.into())?);
    }
    Ok(writes)
}

fn decode(revision: Revision, row: &[u8], name: impl FnMut(&str) -> Arc<str>) -> Result<Write, Fault> {
    row::decode(revision, row, name).ok_or(Fault::Damaged("an unreadable row"))
}

fn commit(database: &Database, writes: &[Write], retired: &Retired) -> Result<(), ::redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut log = transaction.open_table(LOG)?;
        append(&mut log, writes)?;
        for row in &retired.rows {
            log.remove(row)?;
        }
        let mut position = transaction.open_table(POSITION)?;
        if let Some(last) = writes.last() {
            position.insert(REVISION, last.record.revision)?;
        }
        retire(&transaction, &mut position, retired)?;
    }
    transaction.commit()?;
    Ok(())
}

/// Revisions grow, so that every row goes to the end, where pages can be filled up.
fn append(log: &mut Table<'_, u64, &'static [u8]>, writes: &[Write]) -> Result<(), ::redb::Error> {
    let mut end = log.upper_bound_mut(Bound::Unbounded::<u64>)?;
    let mut row = Vec::new();
    for write in writes {
        row::encode(write, &mut row);
        end.insert_before(write.record.revision, row.as_slice())?;
    }
    end.close()?;
    Ok(())
}

fn retire(
    transaction: &WriteTransaction,
    position: &mut Table<'_, &'static str, u64>,
    retired: &Retired,
) -> Result<(), ::redb::Error> {
    if !retired.forgotten.is_empty() {
        position.insert(FLOOR, retired.floor)?;
        let mut forgotten = transaction.open_table(FORGOTTEN)?;
        for (collection, revision) in &retired.forgotten {
            forgotten.insert(&**collection, revision)?;
        }
    }
    if let Some(compacted) = retired.compacted {
        position.insert(COMPACTED, compacted)?;
    }
    Ok(())
}

/// Makes the state from the log: rows up to the floor are live records of the time before history, rows
/// after it are history, and are lived through again.
fn load(database: &Database, limits: Limits) -> Result<(State, Retired), Fault> {
    let transaction = database.begin_read()?;
    let (revision, floor) = (position(database, REVISION)?, position(database, FLOOR)?);

    let mut state = State::new(limits);
    let mut retired = Retired::default();
    let mut names: HashMap<Box<str>, Arc<str>> = HashMap::new();
    for entry in transaction.open_table(LOG)?.iter()? {
        let (key, row) = entry?;
        let shared = |name: &str| Arc::clone(names.entry(name.into()).or_insert_with(|| name.into()));
        let write = decode(key.value(), row.value(), shared)?;
        if key.value() > floor {
            state.apply(write);
        } else if !state.restore(write) {
            return Err(Fault::Damaged("two states of one record"));
        }
    }
    if state.revision() > revision.max(1) {
        return Err(Fault::Damaged("rows of the future"));
    }
    state.restore_position(revision, position(database, COMPACTED)?);
    for entry in transaction.open_table(FORGOTTEN)?.iter()? {
        let (collection, revision) = entry?;
        state.restore_forgotten(collection.value(), revision.value());
    }
    // This run may be allowed less history than the one before.
    state.trim(|collection, event| retired.add(collection, event));
    Ok((state, retired))
}
