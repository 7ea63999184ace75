//! A consistent look at the cache.

use std::sync::Arc;

use super::{IndexError, Inner};
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
        self.held(key).map(|held| held.object().clone())
    }

    /// The object of this key, not decoded if nobody has read it.
    pub fn held(&self, key: &ObjectKey) -> Option<Held<T>> {
        self.inner.store.get(key)
    }

    /// Every object, in no particular order.
    pub fn list(&self) -> Vec<Arc<T>> {
        super::objects(self.all())
    }

    /// Visits every object without making a list.
    pub fn for_each(&self, mut visit: impl FnMut(&Held<T>)) {
        self.inner.store.for_each(&mut visit);
    }

    /// Every object of a namespace, ordered by key.
    pub fn list_namespace(&self, namespace: &str) -> Vec<Arc<T>> {
        super::objects(self.in_namespace(namespace))
    }

    /// The objects that an index has under `value`, ordered by key.
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<T>>, IndexError> {
        self.indexed(name, value).map(super::objects)
    }

    pub(crate) fn all(&self) -> Vec<Held<T>> {
        let mut objects = Vec::with_capacity(self.len());
        self.for_each(|object| objects.push(object.clone()));
        objects
    }

    pub(crate) fn in_namespace(&self, namespace: &str) -> Vec<Held<T>> {
        let keys = self.inner.namespaces.get(namespace);
        keys.into_iter().flatten().filter_map(|key| self.held(key)).collect()
    }

    pub(super) fn indexed(&self, name: &str, value: &str) -> Result<Vec<Held<T>>, IndexError> {
        let keys = self.inner.buckets(name)?.get(value);
        Ok(keys.into_iter().flatten().filter_map(|key| self.held(key)).collect())
    }

    /// The keys that an index has under `value`, in order.
    pub fn index_keys(&self, name: &str, value: &str) -> Result<Vec<ObjectKey>, IndexError> {
        Ok(self.inner.buckets(name)?.get(value).into_iter().flatten().cloned().collect())
    }

    /// Every value that an index has objects for, in order.
    pub fn index_values(&self, name: &str) -> Result<Vec<String>, IndexError> {
        Ok(self.inner.buckets(name)?.keys().cloned().collect())
    }

    /// The keys of the objects in `scope`.
    pub(crate) fn keys(&self, scope: &Scope) -> Vec<ObjectKey> {
        match scope.namespace() {
            Some(namespace) => self.inner.namespaces.get(namespace).into_iter().flatten().cloned().collect(),
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
