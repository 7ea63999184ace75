//! Where an [`Indexer`](crate::Indexer) keeps its objects.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use crate::{Object, ObjectKey};

/// A hash map whose order depends on its history alone, so that runs can be replayed.
pub(crate) type FixedMap<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;

/// A map from key to object. The indexer brings the locks and the indices.
///
/// A store may keep objects in another form and build them on each read; then [`Store::is_same_version`]
/// should answer without building one.
pub trait Store<T: Object>: Send + Sync {
    /// The object of this key.
    fn get(&self, key: &ObjectKey) -> Option<Arc<T>>;

    /// Puts an object in, and gives back the one that it replaces.
    fn insert(&mut self, key: ObjectKey, object: Arc<T>) -> Option<Arc<T>>;

    /// Takes an object out.
    fn remove(&mut self, key: &ObjectKey) -> Option<Arc<T>>;

    /// How many objects there are.
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Visits every object, in an order that depends on the store's history alone.
    fn for_each(&self, visit: &mut dyn FnMut(&ObjectKey, &Arc<T>));

    /// Whether the store holds this very version of `object` (the same uid and resourceVersion).
    fn is_same_version(&self, key: &ObjectKey, object: &T) -> bool {
        self.get(key).is_some_and(|held| crate::object::same_version(&*held, object))
    }
}

/// The store for most: decoded objects in a hash map.
#[derive(Debug)]
pub struct MapStore<T> {
    objects: FixedMap<ObjectKey, Arc<T>>,
}

impl<T> Default for MapStore<T> {
    fn default() -> MapStore<T> {
        MapStore { objects: FixedMap::default() }
    }
}

impl<T: Object> Store<T> for MapStore<T> {
    fn get(&self, key: &ObjectKey) -> Option<Arc<T>> {
        self.objects.get(key).cloned()
    }

    fn insert(&mut self, key: ObjectKey, object: Arc<T>) -> Option<Arc<T>> {
        self.objects.insert(key, object)
    }

    fn remove(&mut self, key: &ObjectKey) -> Option<Arc<T>> {
        self.objects.remove(key)
    }

    fn len(&self) -> usize {
        self.objects.len()
    }

    fn for_each(&self, visit: &mut dyn FnMut(&ObjectKey, &Arc<T>)) {
        for (key, object) in &self.objects {
            visit(key, object);
        }
    }
}
