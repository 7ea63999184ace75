//! Beside stage 4: the read side of a cache.

use std::sync::Arc;

use kube::core::{Selector, SelectorExt};

use crate::{Held, IndexError, Indexer, Object, ObjectKey, ResourceVersion, Scope, View};

/// Reads from the cache of an informer; never asks the server. (For that there is [`kube::Api`].)
///
/// `None` means that the object is not in the cache: since the cache follows the server, deleted or never
/// created, as of the cache's [watermark](Lister::watermark).
pub struct Lister<T> {
    indexer: Arc<Indexer<T>>,
}

impl<T> Clone for Lister<T> {
    fn clone(&self) -> Lister<T> {
        Lister { indexer: self.indexer.clone() }
    }
}

impl<T: Object> Lister<T> {
    pub(crate) fn new(indexer: Arc<Indexer<T>>) -> Lister<T> {
        Lister { indexer }
    }

    pub(crate) fn indexer(&self) -> &Arc<Indexer<T>> {
        &self.indexer
    }

    /// Whether two read from the same cache.
    pub(crate) fn is_same(&self, other: &Lister<T>) -> bool {
        Arc::ptr_eq(&self.indexer, &other.indexer)
    }

    /// The object of this key.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<T>> {
        self.indexer.get(key)
    }

    /// The object of this key, not decoded if nobody has read it: for looking at its metadata only.
    pub fn held(&self, key: &ObjectKey) -> Option<Held<T>> {
        self.indexer.held(key)
    }

    /// The keys of all objects, in no particular order.
    pub fn keys(&self) -> Vec<ObjectKey> {
        self.indexer.view(|view| view.keys(&Scope::Cluster))
    }

    /// Every object, in no particular order.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.indexer.list()
    }

    /// The objects of one namespace.
    pub fn namespace<'a>(&'a self, namespace: &'a str) -> NamespaceLister<'a, T> {
        NamespaceLister { lister: self, namespace }
    }

    /// The objects whose labels match, in no particular order.
    pub fn select(&self, selector: &Selector) -> Vec<Arc<T>> {
        selected(selector, self.indexer.view(|view| view.all()))
    }

    /// The objects that an index has under `value`, ordered by key.
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<T>>, IndexError> {
        self.indexer.by_index(name, value)
    }

    /// The keys that an index has under `value`, in order.
    pub fn index_keys(&self, name: &str, value: &str) -> Result<Vec<ObjectKey>, IndexError> {
        self.indexer.index_keys(name, value)
    }

    /// Every value that an index has objects for, in order.
    pub fn index_values(&self, name: &str) -> Result<Vec<String>, IndexError> {
        self.indexer.index_values(name)
    }

    /// Reads several things at one moment (see [`Indexer::view`]).
    pub fn view<R>(&self, read: impl FnOnce(&View<'_, T>) -> R) -> R {
        self.indexer.view(read)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.indexer.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.indexer.is_empty()
    }

    /// The resourceVersion that the objects of `scope` are at; `None` before its first list.
    pub fn watermark(&self, scope: &Scope) -> Option<ResourceVersion> {
        self.indexer.watermark(scope)
    }
}

/// Those whose labels match. Only they are decoded.
fn selected<T: Object>(selector: &Selector, objects: Vec<Held<T>>) -> Vec<Arc<T>> {
    static NO_LABELS: std::collections::BTreeMap<String, String> = std::collections::BTreeMap::new();
    let matches = |object: &Held<T>| selector.matches(object.meta().labels.as_ref().unwrap_or(&NO_LABELS));
    objects.into_iter().filter(matches).map(Held::into_kept).collect()
}

/// The objects of one namespace in a cache.
pub struct NamespaceLister<'a, T> {
    lister: &'a Lister<T>,
    namespace: &'a str,
}

impl<T: Object> NamespaceLister<'_, T> {
    /// The object of this name.
    pub fn get(&self, name: &str) -> Option<Arc<T>> {
        self.lister.get(&ObjectKey::namespaced(self.namespace, name))
    }

    /// Every object, ordered by name.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.lister.indexer.list_namespace(self.namespace)
    }

    /// The objects whose labels match, ordered by name.
    pub fn select(&self, selector: &Selector) -> Vec<Arc<T>> {
        selected(selector, self.lister.indexer.view(|view| view.in_namespace(self.namespace)))
    }
}
