//! The queue inside a DeltaFifo: `queue` keeps the order of keys, `positions` finds a key in it.

use std::hash::BuildHasher;

use foldhash::quality::FixedState;
use hashbrown::HashTable;

use super::Delta;
use crate::{Object, ObjectKey, ResourceVersion};

/// Changes by key, in order of the keys' first change. A key is in `queue` exactly when it is in
/// `positions`.
pub(super) struct Pending<T> {
    queue: Vec<Deltas<T>>,
    positions: HashTable<u32>,
    hasher: FixedState,
    /// How many changes beyond the first of each key.
    further: usize,
    /// How many bytes they came in.
    pub(super) bytes: usize,
    pub(super) version: Option<ResourceVersion>,
    pub(super) replaced: bool,
}

/// Most keys have one change in a batch, which needs no vector.
enum Deltas<T> {
    One([Delta<T>; 1]),
    Many(Vec<Delta<T>>),
}

impl<T> Default for Pending<T> {
    fn default() -> Pending<T> {
        Pending {
            queue: Vec::new(),
            positions: HashTable::new(),
            hasher: FixedState::default(),
            further: 0,
            bytes: 0,
            version: None,
            replaced: false,
        }
    }
}

impl<T: Object> Pending<T> {
    pub(super) fn push(&mut self, delta: Delta<T>) {
        let hash = self.hasher.hash_one(delta.key());
        if let Some(position) = self.position(hash, delta.key()) {
            self.further += 1;
            return self.queue[position].push(delta);
        }
        let position = u32::try_from(self.queue.len()).expect("fewer than four billion objects");
        self.queue.push(Deltas::One([delta]));
        let Pending { queue, positions, hasher, .. } = self;
        positions.insert_unique(hash, position, |at| hasher.hash_one(queue[*at as usize].key()));
    }

    pub(super) fn reserve(&mut self, additional: usize) {
        self.queue.reserve_exact(additional);
        let Pending { queue, positions, hasher, .. } = self;
        positions.reserve(additional, |at| hasher.hash_one(queue[*at as usize].key()));
    }

    fn position(&self, hash: u64, key: &ObjectKey) -> Option<usize> {
        let position = self.positions.find(hash, |at| self.queue[*at as usize].key() == key);
        position.map(|at| *at as usize)
    }

    pub(super) fn last(&self, key: &ObjectKey) -> Option<&Delta<T>> {
        let position = self.position(self.hasher.hash_one(key), key)?;
        self.queue[position].as_slice().last()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.queue.iter().map(Deltas::key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &[Delta<T>])> {
        self.queue.iter().map(|deltas| (deltas.key(), deltas.as_slice()))
    }
}

impl<T> Pending<T> {
    pub(super) fn len(&self) -> usize {
        debug_assert_eq!(self.queue.len(), self.positions.len());
        self.queue.len()
    }

    /// How many changes there are; two deletions that are one count as two.
    pub(super) fn changes(&self) -> usize {
        self.queue.len() + self.further
    }

    /// Neither changes nor a new version nor an (empty) list.
    pub(super) fn is_nothing(&self) -> bool {
        self.queue.is_empty() && self.version.is_none() && !self.replaced
    }
}

impl<T: Object> Deltas<T> {
    /// The key of all of them; there is at least one.
    fn key(&self) -> &ObjectKey {
        match self {
            Deltas::One([delta]) => delta.key(),
            Deltas::Many(deltas) => deltas[0].key(),
        }
    }
}

impl<T> Deltas<T> {
    fn as_slice(&self) -> &[Delta<T>] {
        match self {
            Deltas::One(delta) => delta,
            Deltas::Many(deltas) => deltas,
        }
    }

    /// Adds a change. Of two deletions in a row the one that saw the final state stays.
    fn push(&mut self, delta: Delta<T>) {
        if let (Some(Delta::Deleted(last)), Delta::Deleted(next)) = (self.as_slice().last(), &delta) {
            if last.is_tombstone && !next.is_tombstone {
                self.replace_last(delta);
            }
            return;
        }
        match self {
            Deltas::Many(deltas) => deltas.push(delta),
            Deltas::One([first]) => *self = Deltas::Many(vec![first.clone(), delta]),
        }
    }

    fn replace_last(&mut self, delta: Delta<T>) {
        match self {
            Deltas::One(only) => *only = [delta],
            Deltas::Many(deltas) => {
                deltas.pop();
                deltas.push(delta);
            }
        }
    }
}
