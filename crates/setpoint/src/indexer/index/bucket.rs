//! The objects of one value of an index.

use std::collections::{BTreeMap, btree_map};
use std::iter::Copied;
use std::slice;

use crate::{ObjectKey, Slot};

/// More than so many are kept in a tree: in a row, each new one would move half of the others.
const FEW: usize = 64;

/// Slots ordered by key.
pub(super) enum Bucket {
    /// In a row: a tree of a few would be several places in memory instead of one.
    Few {
        keys: Vec<ObjectKey>,
        slots: Vec<Slot>,
    },
    Many(BTreeMap<ObjectKey, Slot>),
}

impl Default for Bucket {
    fn default() -> Bucket {
        Bucket::Few { keys: Vec::new(), slots: Vec::new() }
    }
}

impl Bucket {
    pub(super) fn insert(&mut self, key: &ObjectKey, slot: Slot) {
        match self {
            Bucket::Few { keys, slots } => match keys.binary_search(key) {
                Ok(at) => slots[at] = slot,
                Err(at) if keys.len() < FEW => {
                    keys.insert(at, key.clone());
                    slots.insert(at, slot);
                }
                Err(_) => {
                    let mut tree: BTreeMap<_, _> = keys.drain(..).zip(slots.drain(..)).collect();
                    tree.insert(key.clone(), slot);
                    *self = Bucket::Many(tree);
                }
            },
            Bucket::Many(tree) => drop(tree.insert(key.clone(), slot)),
        }
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        match self {
            Bucket::Few { keys, slots } => {
                if let Ok(at) = keys.binary_search(key) {
                    keys.remove(at);
                    slots.remove(at);
                }
            }
            Bucket::Many(tree) => drop(tree.remove(key)),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Bucket::Few { slots, .. } => slots.len(),
            Bucket::Many(tree) => tree.len(),
        }
    }

    pub(super) fn slots(&self) -> Slots<'_> {
        match self {
            Bucket::Few { slots, .. } => Slots::Few(slots.iter().copied()),
            Bucket::Many(tree) => Slots::Many(tree.values().copied()),
        }
    }

    pub(super) fn keys(&self) -> Keys<'_> {
        match self {
            Bucket::Few { keys, .. } => Keys::Few(keys.iter()),
            Bucket::Many(tree) => Keys::Many(tree.keys()),
        }
    }
}

pub(super) enum Slots<'a> {
    Few(Copied<slice::Iter<'a, Slot>>),
    Many(Copied<btree_map::Values<'a, ObjectKey, Slot>>),
}

impl Iterator for Slots<'_> {
    type Item = Slot;

    fn next(&mut self) -> Option<Slot> {
        match self {
            Slots::Few(slots) => slots.next(),
            Slots::Many(slots) => slots.next(),
        }
    }
}

pub(super) enum Keys<'a> {
    Few(slice::Iter<'a, ObjectKey>),
    Many(btree_map::Keys<'a, ObjectKey, Slot>),
}

impl<'a> Iterator for Keys<'a> {
    type Item = &'a ObjectKey;

    fn next(&mut self) -> Option<&'a ObjectKey> {
        match self {
            Keys::Few(keys) => keys.next(),
            Keys::Many(keys) => keys.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_objects_are_found_in_the_order_of_their_keys() {
        let mut bucket = Bucket::default();
        let mut expected = BTreeMap::new();
        // Up beyond what is kept in a row, with every seventh taken out again, and then down to nothing.
        for n in 0..200_u32 {
            let key = ObjectKey::from(format!("o{:03}", n * 37 % 200).as_str());
            bucket.insert(&key, Slot(n));
            expected.insert(key.clone(), Slot(n));
            if n % 7 == 0 {
                bucket.remove(&key);
                expected.remove(&key);
            }
            check(&bucket, &expected);
        }
        assert!(matches!(bucket, Bucket::Many(_)));
        while let Some((key, _)) = expected.pop_first() {
            bucket.remove(&key);
            bucket.remove(&key);
            check(&bucket, &expected);
        }
    }

    #[test]
    fn an_object_is_in_a_bucket_once() {
        let mut bucket = Bucket::default();
        for round in 0..2 {
            for n in 0..100_u32 {
                bucket.insert(&ObjectKey::from(format!("o{n:03}").as_str()), Slot(n + round));
                bucket.insert(&ObjectKey::from(format!("o{n:03}").as_str()), Slot(n + round));
            }
            assert_eq!(bucket.len(), 100);
            assert!(bucket.slots().eq((0..100).map(|n| Slot(n + round))));
        }
    }

    fn check(bucket: &Bucket, expected: &BTreeMap<ObjectKey, Slot>) {
        assert_eq!(bucket.len(), expected.len());
        assert!(bucket.slots().eq(expected.values().copied()));
        assert!(bucket.keys().eq(expected.keys()));
    }
}
