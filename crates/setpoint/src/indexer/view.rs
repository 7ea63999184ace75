//! A consistent look at the cache.

use std::sync::Arc;

use super::{IndexError, Inner};
use crate::{Object, ObjectKey, ResourceVersion, Scope};

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
        self.inner.store.get(key)
    }

    /// Whether the cache holds this very version of `object`.
    pub(crate) fn is_same_version(&self, key: &ObjectKey, object: &T) -> bool {
        self.inner.store.is_same_version(key, object)
    }

    /// Every object, in no particular order.
    pub fn list(&self) -> Vec<Arc<T>> {
        let mut objects = Vec::with_capacity(self.len());
        self.inner.store.for_each(&mut |_, object| objects.push(object.clone()));
        objects
    }

    /// Visits every object without making a list.
    pub fn for_each(&self, mut visit: impl FnMut(&ObjectKey, &Arc<T>)) {
        self.inner.store.for_each(&mut visit);
    }

    /// Every object of a namespace, ordered by key.
    pub fn list_namespace(&self, namespace: &str) -> Vec<Arc<T>> {
        let keys = self.inner.namespaces.get(namespace);
        keys.into_iter().flatten().filter_map(|key| self.get(key)).collect()
    }

    /// The objects that an index has under `value`, ordered by key.
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<T>>, IndexError> {
        let keys = self.inner.buckets(name)?.get(value);
        Ok(keys.into_iter().flatten().filter_map(|key| self.get(key)).collect())
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
                self.for_each(|key, _| keys.push(key.clone()));
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
