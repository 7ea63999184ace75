//! What history no longer needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::write::Write;
use super::super::{Event, Revision};

/// Rows that nobody can ask for any more, and what is forgotten with them. They leave memory at once, and
/// the file with the next commit: until then the file remembers a little more than it must.
#[derive(Debug, Default)]
pub(super) struct Retired {
    /// Rows to remove.
    pub(super) rows: Vec<Revision>,
    /// The newest forgotten event, over all collections.
    pub(super) floor: Revision,
    /// The newest forgotten event of each collection.
    pub(super) forgotten: BTreeMap<Arc<str>, Revision>,
    /// History up to here was given up on purpose.
    pub(super) compacted: Option<Revision>,
}

impl Retired {
    /// Takes in a forgotten event. The record that it replaced was there for its sake alone; its own row
    /// stays while its record is live, and if it is replaced, until the event that did so is forgotten.
    pub(super) fn add(&mut self, collection: &Arc<str>, event: &Event) {
        self.rows.extend(event.previous.as_ref().map(|record| record.revision));
        if event.deleted {
            self.rows.push(event.revision());
        }
        self.forget(collection, event.revision());
    }

    /// What a write leaves if the file has no history: the row that it replaces, and itself as an event.
    pub(super) fn at_once(write: &Write, previous: Option<Revision>) -> Retired {
        let mut retired = Retired { rows: previous.into_iter().collect(), ..Retired::default() };
        retired.forget(&write.key.collection, write.record.revision);
        retired
    }

    fn forget(&mut self, collection: &Arc<str>, revision: Revision) {
        self.floor = self.floor.max(revision);
        let newest = self.forgotten.entry(Arc::clone(collection)).or_default();
        *newest = revision.max(*newest);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.forgotten.is_empty() && self.compacted.is_none()
    }

    /// Takes back what could not be removed.
    pub(super) fn put_back(&mut self, older: Retired) {
        self.rows.extend(older.rows);
        self.floor = self.floor.max(older.floor);
        for (collection, revision) in older.forgotten {
            self.forget(&collection, revision);
        }
        self.compacted = self.compacted.max(older.compacted);
    }
}
