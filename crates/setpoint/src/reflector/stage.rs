//! A list while it arrives, before it is swapped in.

use std::sync::Arc;

use crate::store::FixedMap;
use crate::{Held, Indexer, Object, ObjectKey};

/// The objects of a list so far, in the order in which they came. An object that the cache holds in the same
/// version stays the cached one, so that a relist needs no second copy of the world.
pub(super) struct Stage<T> {
    indexer: Arc<Indexer<T>>,
    objects: Vec<Option<Held<T>>>,
    positions: FixedMap<ObjectKey, usize>,
}

impl<T: Object> Stage<T> {
    pub(super) fn new(indexer: Arc<Indexer<T>>) -> Stage<T> {
        Stage { indexer, objects: Vec::new(), positions: FixedMap::default() }
    }

    pub(super) fn insert(&mut self, object: Held<T>) {
        let cached = self.indexer.held(object.key()).filter(|cached| cached.is_same_version(&object));
        let object = cached.unwrap_or(object);
        match self.positions.get(object.key()) {
            Some(&position) => self.objects[position] = Some(object),
            None => {
                self.positions.insert(object.key().clone(), self.objects.len());
                self.objects.push(Some(object));
            }
        }
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        if let Some(position) = self.positions.remove(key) {
            self.objects[position] = None;
        }
    }

    pub(super) fn into_list(self) -> Vec<Held<T>> {
        drop(self.positions);
        self.objects.into_iter().flatten().collect()
    }
}
