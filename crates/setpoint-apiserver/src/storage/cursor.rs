//! A place in a scan of a state that goes on changing.
//!
//! The records of today are read in the order of their paths. Those that have changed since the revision of the scan are
//! replaced by what they were then, which the history since tells. Both are read only as far as the scan has come: a
//! chunk costs its own length and the changes since the chunk before.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::collection::Collection;
use super::{Chunk, Event, Hint, ListQuery, ReadError, Record, Revision};

/// About how many changes are looked at in one go, while others wait for the lock.
const EVENTS: usize = 4096;

#[derive(Debug)]
pub(super) struct Cursor {
    /// Its `after` moves on with the scan.
    query: ListQuery,
    revision: Revision,
    /// Records that lie ahead and have changed since the revision, as they were then.
    changed: BTreeMap<Box<str>, Option<Arc<Record>>>,
    /// Every change up to here is accounted for.
    seen: Revision,
    /// How many more records the prefix has today than at the revision.
    growth: isize,
    /// How many records of the prefix the scan has passed, if it knows.
    passed: Option<usize>,
    visited: usize,
    ended: bool,
}

impl Cursor {
    /// At the beginning of what the query asks for, at a revision whose history since is there.
    pub(super) fn new(query: &ListQuery, revision: Revision) -> Cursor {
        Cursor {
            query: query.clone(),
            revision,
            changed: BTreeMap::new(),
            seen: revision,
            growth: 0,
            passed: query.before.filter(|_| query.hint.is_none()),
            visited: 0,
            ended: false,
        }
    }

    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    pub(super) fn visited(&self) -> usize {
        self.visited
    }

    pub(super) fn collection(&self) -> &Arc<str> {
        &self.query.collection
    }

    /// At most `limit` more records. `now` is the revision that the collection is at.
    pub(super) fn advance(
        &mut self,
        collection: &Collection,
        now: Revision,
        limit: usize,
    ) -> Result<Chunk, ReadError> {
        if self.ended || !self.catch_up(collection, now)? {
            return Ok(Chunk { records: Vec::new(), end: self.ended, remaining: None });
        }
        let index = match &self.query.hint {
            Some(Hint::Field(field, _)) => {
                let mut index = collection.index(*field, now);
                let (steps, is_complete) = index.catch_up(collection, now);
                self.visited += steps;
                if !is_complete {
                    return Ok(Chunk { records: Vec::new(), end: false, remaining: None });
                }
                Some(index)
            }
            _ => None,
        };
        let after = self.query.after.take();
        let hint = self.query.hint.as_ref().map(|hint| (hint, index.as_deref()));
        let today = collection.range(&self.query.prefix, after.as_deref(), hint);
        let mut today = today.peekable();
        let mut records: Vec<Arc<Record>> = Vec::new();
        while records.len() < limit {
            let changed = self.changed.first_key_value().map(|(path, _)| &**path);
            let next = today.peek().map(|record| &*record.path);
            let is_changed = match (changed, next) {
                (None, None) => break,
                (Some(changed), Some(next)) => changed <= next,
                (changed, _) => changed.is_some(),
            };
            let found = if !is_changed || changed == next { today.next() } else { None };
            self.visited += 1;
            if is_changed {
                records.extend(self.changed.pop_first().and_then(|(_, then)| then));
            } else {
                records.extend(found.cloned());
            }
        }
        // Looked at, but not passed: the next chunk begins after the last record of this one.
        let follows = today.any(|record| !self.changed.contains_key(&record.path))
            || self.changed.values().any(Option::is_some);
        drop(today);
        self.query.after = records.last().map(|record| record.path.clone()).or(after);
        self.passed = self.passed.map(|passed| passed.saturating_add(records.len()));
        self.ended = !follows;
        let remaining = if follows { self.remaining(collection) } else { None };
        Ok(Chunk { records, end: self.ended, remaining })
    }

    /// Takes in the changes since the last time; false if there are more of them than are looked at in one go.
    fn catch_up(&mut self, collection: &Collection, now: Revision) -> Result<bool, ReadError> {
        let floor = collection.log.forgotten();
        if self.seen < floor {
            return Err(ReadError::Compacted { asked: self.revision, floor });
        }
        let (events, complete) = collection.log.some_after(self.seen, EVENTS);
        for event in events {
            self.visited += 1;
            self.seen = event.revision();
            self.take_in(event);
        }
        if complete {
            self.seen = now;
        }
        Ok(complete)
    }

    fn take_in(&mut self, event: &Event) {
        let path = &*event.record.path;
        if !path.starts_with(&*self.query.prefix) {
            return;
        }
        match (event.previous.is_some(), event.deleted) {
            (false, false) => self.growth += 1,
            (true, true) => self.growth -= 1,
            _ => {}
        }
        let is_ahead = self.query.after.as_deref().is_none_or(|after| path > after);
        // Only the first change since the revision tells what was there.
        if is_ahead && !self.changed.contains_key(path) {
            self.changed.insert(path.into(), event.previous.clone());
        }
    }

    /// How many records follow. What the caller says about those before may be wrong, so it is never more than there are.
    fn remaining(&self, collection: &Collection) -> Option<usize> {
        let then = collection.count(&self.query.prefix)?.saturating_add_signed(self.growth.saturating_neg());
        // At least the one that was seen to follow.
        Some(then.saturating_sub(self.passed?).max(1))
    }
}

#[cfg(test)]
mod tests;
