//! What history no longer needs.

use std::collections::BTreeMap;
use std::sync::Arc;

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
        self.floor = event.revision();
        self.forgotten.insert(Arc::clone(collection), event.revision());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.forgotten.is_empty() && self.compacted.is_none()
    }

    /// Takes back what could not be removed; it is older than what is here.
    pub(super) fn put_back(&mut self, older: Retired) {
        self.rows.extend(older.rows);
        self.floor = self.floor.max(older.floor);
        for (collection, revision) in older.forgotten {
            let newest = self.forgotten.entry(collection).or_default();
            *newest = revision.max(*newest);
        }
        self.compacted = self.compacted.max(older.compacted);
    }
}
