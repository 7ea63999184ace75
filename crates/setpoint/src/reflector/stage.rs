//! A list while it arrives, before it is swapped in.

use std::sync::Arc;

use crate::store::FixedMap;
use crate::{Indexer, Object, ObjectKey};

/// The objects of a list so far, in the order in which they came. An object that the cache holds in the same
/// version stays the cached one, so that a relist needs no second copy of the world.
pub(super) struct Stage<T> {
    indexer: Arc<Indexer<T>>,
    objects: Vec<Option<(ObjectKey, Arc<T>)>>,
    positions: FixedMap<ObjectKey, usize>,
}

impl<T: Object> Stage<T> {
    pub(super) fn new(indexer: Arc<Indexer<T>>) -> Stage<T> {
        Stage { indexer, objects: Vec::new(), positions: FixedMap::default() }
    }

    pub(super) fn insert(&mut self, key: ObjectKey, object: Arc<T>) {
        let cached =
            self.indexer.view(|view| if view.is_same_version(&key, &object) { view.get(&key) } else { None });
        let object = cached.unwrap_or(object);
        match self.positions.get(&key) {
            Some(&position) => self.objects[position] = Some((key, object)),
            None => {
                self.positions.insert(key.clone(), self.objects.len());
                self.objects.push(Some((key, object)));
            }
        }
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        if let Some(position) = self.positions.remove(key) {
            self.objects[position] = None;
        }
    }

    pub(super) fn into_list(self) -> Vec<(ObjectKey, Arc<T>)> {
        drop(self.positions);
        self.objects.into_iter().flatten().collect()
    }
}
