//! A consistent look at the cache.

use std::sync::Arc;

use super::{Found, IndexError, Inner};
use crate::{Held, Object, ObjectKey, ResourceVersion, Scope};

/// The cache at one moment: everything read through one view belongs together.
pub struct View<'a, T> {
    inner: &'a Inner<T>,
}

impl<'a, T: Object> View<'a, T> {
    pub(super) fn new(inner: &'a Inner<T>) -> View<'a, T> {
        View { inner }
    }

    /// The object of this key.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<T>> {
        self.find(key).map(|found| found.unwrap_or_else(Held::into_kept))
    }

    /// The object of this key, not decoded if nobody has read it.
    pub fn held(&self, key: &ObjectKey) -> Option<Held<T>> {
        self.inner.held(key)
    }

    /// Every object, in no particular order.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.find_all().objects()
    }

    /// Visits every object without making a list.
    pub fn for_each(&self, mut visit: impl FnMut(&Held<T>)) {
        self.inner.store.for_each(&mut |_, object| visit(object));
    }

    /// Every object of a namespace, ordered by key.
    pub fn list_namespace(&self, namespace: &str) -> Vec<Arc<T>> {
        self.find_in(namespace).objects()
    }

    /// The objects that an index has under `value`, ordered by key.
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<T>>, IndexError> {
        self.find_indexed(name, value).map(Found::objects)
    }

    pub(crate) fn all(&self) -> Vec<Held<T>> {
        let mut objects = Vec::with_capacity(self.len());
        self.for_each(|object| objects.push(object.clone()));
        objects
    }

    pub(crate) fn in_namespace(&self, namespace: &str) -> Vec<Held<T>> {
        let slots = self.inner.namespaces.slots(namespace);
        slots.filter_map(|slot| self.inner.store.get(slot)).collect()
    }

    /// The object of this key; what it is held as if it is not decoded.
    pub(super) fn find(&self, key: &ObjectKey) -> Option<Result<Arc<T>, Held<T>>> {
        let store = &self.inner.store;
        let slot = store.find(key)?;
        match store.decoded(slot) {
            Some(object) => Some(Ok(object)),
            None => store.get(slot).map(Err),
        }
    }

    pub(super) fn find_all(&self) -> Found<T> {
        let mut slots = Vec::with_capacity(self.len());
        self.inner.store.for_each(&mut |slot, _| slots.push(slot));
        Found::read(&*self.inner.store, slots.len(), slots.into_iter())
    }

    pub(super) fn find_in(&self, namespace: &str) -> Found<T> {
        let buckets = &self.inner.namespaces;
        Found::read(&*self.inner.store, buckets.count(namespace), buckets.slots(namespace))
    }

    pub(super) fn find_indexed(&self, name: &str, value: &str) -> Result<Found<T>, IndexError> {
        let buckets = self.inner.buckets(name)?;
        Ok(Found::read(&*self.inner.store, buckets.count(value), buckets.slots(value)))
    }

    /// The keys that an index has under `value`, in order.
    pub fn index_keys(&self, name: &str, value: &str) -> Result<Vec<ObjectKey>, IndexError> {
        Ok(self.inner.buckets(name)?.keys(value))
    }

    /// Every value that an index has objects for, in order.
    pub fn index_values(&self, name: &str) -> Result<Vec<String>, IndexError> {
        Ok(self.inner.buckets(name)?.values())
    }

    /// The keys of the objects in `scope`.
    pub(crate) fn keys(&self, scope: &Scope) -> Vec<ObjectKey> {
        match scope.namespace() {
            Some(namespace) => self.inner.namespaces.keys(namespace),
            None => {
                let mut keys = Vec::with_capacity(self.len());
                self.for_each(|object| keys.push(object.key().clone()));
                keys
            }
        }
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.inner.store.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The resourceVersion at which the objects of `scope` are; `None` before its first list.
    pub fn watermark(&self, scope: &Scope) -> Option<&ResourceVersion> {
        self.inner.watermarks.get(scope)
    }
}
