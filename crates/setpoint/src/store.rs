//! Where an [`Indexer`](crate::Indexer) keeps its objects.

use std::collections::{HashMap, HashSet};

use crate::held::Stored;
use crate::{Held, Object, ObjectKey};

/// A hash map whose order depends on its history alone, so that runs can be replayed.
pub(crate) type FixedMap<K, V> = HashMap<K, V, foldhash::quality::FixedState>;

/// The same as a set.
pub(crate) type FixedSet<K> = HashSet<K, foldhash::quality::FixedState>;

/// A map from key to object. The indexer brings the locks and the indices.
///
/// What is stored is a [`Held`]: a store may take the object out of it and keep it in a form of its own.
pub trait Store<T: Object>: Send + Sync {
    /// The object of this key.
    fn get(&self, key: &ObjectKey) -> Option<Held<T>>;

    /// Puts an object in under its key, and gives back the one that it replaces.
    fn insert(&mut self, object: Held<T>) -> Option<Held<T>>;

    /// Takes an object out.
    fn remove(&mut self, key: &ObjectKey) -> Option<Held<T>>;

    /// How many objects there are.
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Visits every object, in an order that depends on the store's history alone.
    fn for_each(&self, visit: &mut dyn FnMut(&Held<T>));

    /// Makes room for so many more objects.
    fn reserve(&mut self, additional: usize) {
        let _ = additional;
    }
}

/// The store for most: a hash map.
#[derive(Debug)]
pub struct MapStore<T> {
    objects: FixedMap<ObjectKey, Stored<T>>,
}

impl<T> Default for MapStore<T> {
    fn default() -> MapStore<T> {
        MapStore { objects: FixedMap::default() }
    }
}

impl<T: Object> Store<T> for MapStore<T> {
    fn get(&self, key: &ObjectKey) -> Option<Held<T>> {
        self.objects.get(key).map(Stored::held)
    }

    fn insert(&mut self, object: Held<T>) -> Option<Held<T>> {
        self.objects.insert(object.key().clone(), Stored::new(object)).map(Stored::into_held)
    }

    fn remove(&mut self, key: &ObjectKey) -> Option<Held<T>> {
        self.objects.remove(key).map(Stored::into_held)
    }

    fn len(&self) -> usize {
        self.objects.len()
    }

    fn for_each(&self, visit: &mut dyn FnMut(&Held<T>)) {
        self.objects.values().for_each(|object| visit(&object.held()));
    }

    fn reserve(&mut self, additional: usize) {
        self.objects.reserve(additional);
    }
}
