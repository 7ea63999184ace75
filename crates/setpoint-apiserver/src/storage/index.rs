//! Paths by the value of a field, for selectors that leave few of many records.
//!
//! An index is made when a scan first asks for it, and brought up to date from history when the next one does. So writes cost
//! nothing, nor do collections that nobody reads in this way.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::collection::Collection;
use super::{Field, Record, Revision};

/// About how many records or changes are taken in at once, while others wait for the lock. Each may have to be parsed.
const STEP: usize = 32;

#[derive(Debug)]
pub(super) struct Index {
    field: Field,
    paths: BTreeMap<Box<str>, BTreeSet<Box<str>>>,
    reach: Reach,
    /// Every change up to here is accounted for.
    seen: Revision,
}

/// Which records are in the index.
#[derive(Debug)]
enum Reach {
    UpTo(Option<Box<str>>),
    All,
}

impl Index {
    /// Of nothing yet.
    pub(super) fn new(field: Field, now: Revision) -> Index {
        Index { field, paths: BTreeMap::new(), reach: Reach::UpTo(None), seen: now }
    }

    /// Takes in some of what is missing; how much that was, and whether the index is complete.
    pub(super) fn catch_up(&mut self, collection: &Collection, now: Revision) -> (usize, bool) {
        if self.seen < collection.log.forgotten() {
            *self = Index::new(self.field, now);
        }
        let (events, is_all) = collection.log.some_after(self.seen, STEP);
        let changes = events.len();
        for event in events {
            self.replace(event.previous.as_deref(), Some(&*event.record).filter(|_| !event.deleted));
            self.seen = event.revision();
        }
        if !is_all {
            return (changes, false);
        }
        self.seen = now;
        let Reach::UpTo(reach) = &self.reach else { return (changes, true) };
        let ahead: Vec<_> = collection.range("", reach.as_deref(), None).take(STEP).cloned().collect();
        for record in &ahead {
            self.insert(record);
        }
        if ahead.len() == STEP {
            self.reach = Reach::UpTo(ahead.last().map(|record| record.path.clone()));
            return (changes + STEP, false);
        }
        self.reach = Reach::All;
        (changes + ahead.len(), true)
    }

    /// The paths of the records with a value, under a prefix and after a path.
    pub(super) fn paths<'a>(
        &'a self,
        value: &str,
        prefix: &'a str,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = &'a str> {
        let start = match after {
            Some(path) if path >= prefix => Bound::Excluded(path),
            _ => Bound::Included(prefix),
        };
        let paths = self.paths.get(value).into_iter();
        let paths = paths.flat_map(move |paths| paths.range::<str, _>((start, Bound::Unbounded)));
        paths.map(|path| &**path).take_while(move |path| path.starts_with(prefix))
    }

    fn replace(&mut self, previous: Option<&Record>, record: Option<&Record>) {
        if let Some(previous) = previous.filter(|record| self.reaches(&record.path)) {
            let value = self.field.value(previous);
            if let Some(paths) = self.paths.get_mut(value) {
                paths.remove(&previous.path);
                if paths.is_empty() {
                    self.paths.remove(value);
                }
            }
        }
        // What lies ahead is taken in when it is its turn.
        if let Some(record) = record.filter(|record| self.reaches(&record.path)) {
            self.insert(record);
        }
    }

    fn insert(&mut self, record: &Record) {
        let value = self.field.value(record);
        match self.paths.get_mut(value) {
            Some(paths) => drop(paths.insert(record.path.clone())),
            None => drop(self.paths.insert(value.into(), BTreeSet::from([record.path.clone()]))),
        }
    }

    fn reaches(&self, path: &str) -> bool {
        match &self.reach {
            Reach::All => true,
            Reach::UpTo(reach) => reach.as_deref().is_some_and(|reach| path <= reach),
        }
    }
}
