//! The queue inside a DeltaFifo: `queue` keeps the order of keys, `positions` finds a key in it.

use super::Delta;
use crate::store::FixedMap;
use crate::{Object, ObjectKey, ResourceVersion};

/// Changes by key, in order of the keys' first change. A key is in `queue` exactly when it is in
/// `positions`.
pub(super) struct Pending<T> {
    queue: Vec<(ObjectKey, Deltas<T>)>,
    positions: FixedMap<ObjectKey, usize>,
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
        Pending { queue: Vec::new(), positions: FixedMap::default(), version: None, replaced: false }
    }
}

impl<T> Pending<T> {
    pub(super) fn push(&mut self, delta: Delta<T>)
    where
        T: Object,
    {
        match self.positions.get(delta.key()) {
            Some(&position) => self.queue[position].1.push(delta),
            None => {
                let key = delta.key().clone();
                self.positions.insert(key.clone(), self.queue.len());
                self.queue.push((key, Deltas::One([delta])));
            }
        }
    }

    pub(super) fn reserve(&mut self, additional: usize) {
        self.queue.reserve_exact(additional);
        self.positions.reserve(additional);
    }

    pub(super) fn last(&self, key: &ObjectKey) -> Option<&Delta<T>> {
        let position = *self.positions.get(key)?;
        self.queue[position].1.as_slice().last()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.queue.iter().map(|(key, _)| key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &[Delta<T>])> {
        self.queue.iter().map(|(key, deltas)| (key, deltas.as_slice()))
    }

    pub(super) fn len(&self) -> usize {
        debug_assert_eq!(self.queue.len(), self.positions.len());
        self.queue.len()
    }

    /// Neither changes nor a new version nor an (empty) list.
    pub(super) fn is_nothing(&self) -> bool {
        self.queue.is_empty() && self.version.is_none() && !self.replaced
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
