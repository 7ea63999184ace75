//! Making a state from the file.

use std::collections::HashMap;
use std::sync::Arc;

use ::redb::{Database, ReadableDatabase, ReadableTable};

use super::super::state::State;
use super::super::{Limits, Revision};
use super::fault::Fault;
use super::file::{COMPACTED, FLOOR, FORGOTTEN, LOG, REVISION, position};
use super::retired::Retired;
use super::row;

/// Makes the state from the log: rows up to the floor are of the time before history, rows after it are history, and are
/// lived through again.
pub(super) fn load(database: &Database, limits: Limits) -> Result<(State, Retired), Fault> {
    let transaction = database.begin_read()?;
    let (revision, floor) = (position(database, REVISION)?, position(database, FLOOR)?);

    let mut state = State::new(limits);
    let mut retired = Retired::default();
    let mut names: HashMap<Box<str>, Arc<str>> = HashMap::new();
    for entry in transaction.open_table(LOG)?.iter()? {
        let (key, row) = entry?;
        let shared = |name: &str| Arc::clone(names.entry(name.into()).or_insert_with(|| name.into()));
        let key: Revision = key.value();
        let write = row::decode(key, row.value(), shared).ok_or(Fault::Damaged("an unreadable row"))?;
        if key <= state.revision() {
            return Err(Fault::Damaged("rows of no time"));
        } else if key > floor {
            state.apply(write);
        } else {
            // A removal on a full disk goes step by step; what was left over when it ended is removed now.
            retired.rows.extend(state.restore(write));
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
