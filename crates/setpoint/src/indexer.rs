//! Stage 3: reads from the DeltaFifo (through the SharedInformer, which applies its batches), feeds listers.
//!
//! The cache: a thread-safe map with named indices, at one resourceVersion.

mod found;
mod index;
mod view;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;

use self::found::Found;
pub(crate) use self::index::IndexFn;
use self::index::{Buckets, Index};
pub use self::view::View;
use crate::{Held, MapStore, Object, ObjectKey, ResourceVersion, Scope, Store};

/// The name of the index that every indexer has: objects by namespace.
pub const NAMESPACE_INDEX: &str = "namespace";

/// A thread-safe map of objects with named indices.
///
/// - Objects are `Arc<T>`: a read never copies one, and nobody can change what is cached. Those that nobody
///   has read may not be decoded yet ([`Held`]).
/// - [`Indexer::write`] is a transaction: readers see all of it or nothing, indices and watermark included.
/// - [`Indexer::view`] reads several objects at one moment.
///
/// An informer keeps its indexer to itself and lends it out as a [`Lister`](crate::Lister); make one
/// yourself to index anything else.
///
/// ```
/// use std::sync::Arc;
/// use setpoint::k8s_openapi::api::core::v1::Pod;
/// use setpoint::{Indexer, ObjectKey};
///
/// let pods = Indexer::<Pod>::default();
/// pods.add_index("node", |pod: &Pod| pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect())?;
/// let pod: Pod = serde_json::from_str(r#"{"metadata": {"name": "web"}, "spec": {"nodeName": "n1"}}"#)?;
/// pods.write(|writer| writer.insert("web".into(), Arc::new(pod)));
/// assert_eq!(pods.by_index("node", "n1")?.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ThreadSafeStore")]
pub struct Indexer<T> {
    inner: RwLock<Inner<T>>,
}

struct Inner<T> {
    store: Box<dyn Store<T>>,
    namespaces: Buckets,
    indices: BTreeMap<String, Index<T>>,
    watermarks: BTreeMap<Scope, ResourceVersion>,
}

/// Why an index could not be added or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The name is taken.
    #[error("an index named {0:?} exists already; choose another name")]
    Exists(String),
    /// There is no index of this name.
    #[error("no index is named {0:?}; add it before looking something up")]
    Unknown(String),
}

impl<T: Object> Default for Indexer<T> {
    fn default() -> Indexer<T> {
        Indexer::new(MapStore::default())
    }
}

impl<T: Object> Indexer<T> {
    /// An indexer over an empty store.
    pub fn new(store: impl Store<T> + 'static) -> Indexer<T> {
        Indexer::from_box(Box::new(store))
    }

    pub(crate) fn from_box(store: Box<dyn Store<T>>) -> Indexer<T> {
        let inner = Inner {
            store,
            namespaces: Buckets::default(),
            indices: BTreeMap::new(),
            watermarks: BTreeMap::new(),
        };
        Indexer { inner: RwLock::new(inner) }
    }

    /// Adds an index. An object is found under every value that `function` gives for it; what is stored
    /// already is indexed now. `function` must depend on the object alone.
    pub fn add_index(
        &self,
        name: impl Into<String>,
        function: impl Fn(&T) -> Vec<String> + Send + Sync + 'static,
    ) -> Result<(), IndexError> {
        let name = name.into();
        let mut inner = self.inner.write();
        if name == NAMESPACE_INDEX || inner.indices.contains_key(&name) {
            return Err(IndexError::Exists(name));
        }
        Indexer::put_index(&mut inner, name, IndexFn::new(function));
        Ok(())
    }

    /// The same, but an index that is there already with this function is fine.
    pub(crate) fn ensure_index(&self, name: &str, function: IndexFn<T>) -> Result<(), IndexError> {
        let mut inner = self.inner.write();
        if inner.indices.get(name).is_some_and(|index| index.function.is_same(&function)) {
            return Ok(());
        }
        if name == NAMESPACE_INDEX || inner.indices.contains_key(name) {
            return Err(IndexError::Exists(name.to_owned()));
        }
        Indexer::put_index(&mut inner, name.to_owned(), function);
        Ok(())
    }

    fn put_index(inner: &mut Inner<T>, name: String, function: IndexFn<T>) {
        let mut index = Index::new(function);
        inner.store.for_each(&mut |slot, object| {
            let values = index.values_of(object);
            index.set(object.key(), slot, &values);
        });
        inner.indices.insert(name, index);
    }

    /// Reads several things at one moment: nothing changes while `read` runs. Keep it short, since writes
    /// wait for it, and do not call the indexer itself from inside.
    pub fn view<R>(&self, read: impl FnOnce(&View<'_, T>) -> R) -> R {
        read(&View::new(&self.inner.read()))
    }

    /// Changes the cache in one transaction: readers see none or all of it.
    pub fn write<R>(&self, change: impl FnOnce(&mut Writer<'_, T>) -> R) -> R {
        change(&mut Writer { inner: &mut self.inner.write() })
    }

    /// The object of this key.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<T>> {
        self.view(|view| view.find(key)).map(|found| found.unwrap_or_else(Held::into_kept))
    }

    /// The object of this key, not decoded if nobody has read it.
    pub fn held(&self, key: &ObjectKey) -> Option<Held<T>> {
        self.view(|view| view.held(key))
    }

    /// Every object, in no particular order.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.view(|view| view.find_all()).objects()
    }

    /// Every object of a namespace, ordered by key.
    pub fn list_namespace(&self, namespace: &str) -> Vec<Arc<T>> {
        self.view(|view| view.find_in(namespace)).objects()
    }

    /// The objects that an index has under `value`, ordered by key.
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<T>>, IndexError> {
        self.view(|view| view.find_indexed(name, value)).map(Found::objects)
    }

    /// The keys that an index has under `value`, in order.
    pub fn index_keys(&self, name: &str, value: &str) -> Result<Vec<ObjectKey>, IndexError> {
        self.view(|view| view.index_keys(name, value))
    }

    /// Every value that an index has objects for, in order.
    #[doc(alias = "ListIndexFuncValues")]
    pub fn index_values(&self, name: &str) -> Result<Vec<String>, IndexError> {
        self.view(|view| view.index_values(name))
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.view(|view| view.len())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The resourceVersion at which the objects of `scope` are; `None` before its first list.
    pub fn watermark(&self, scope: &Scope) -> Option<ResourceVersion> {
        self.view(|view| view.watermark(scope).cloned())
    }
}

/// The write side of a transaction (see [`Indexer::write`]).
pub struct Writer<'a, T> {
    inner: &'a mut Inner<T>,
}

impl<T: Object> Writer<'_, T> {
    /// The object of this key.
    pub fn get(&self, key: &ObjectKey) -> Option<Held<T>> {
        self.inner.held(key)
    }

    /// Puts an object in, and gives back the one that it replaces.
    pub fn insert(&mut self, key: ObjectKey, object: Arc<T>) -> Option<Held<T>> {
        self.put(Held::new(key, object))
    }

    /// The same with an object that may not be decoded. It stays so unless there is an index.
    pub fn put(&mut self, object: Held<T>) -> Option<Held<T>> {
        self.put_clone(&object)
    }

    /// The same with a clone. What indices read of `object`, it has for others to read.
    pub(crate) fn put_clone(&mut self, object: &Held<T>) -> Option<Held<T>> {
        let inner = &mut *self.inner;
        // Decoded before anything changes, if there is an index that reads it.
        let read: Option<&T> = if inner.indices.is_empty() { None } else { Some(object) };
        let key = object.key();
        let (slot, old) = inner.store.insert(object.clone());
        if old.is_none()
            && let Some(namespace) = key.namespace()
        {
            inner.namespaces.add(namespace, key, slot);
        }
        for index in inner.indices.values_mut() {
            let values = read.map(|object| index.values_of(object)).unwrap_or_default();
            index.set(key, slot, &values);
        }
        old
    }

    /// Makes room for so many more objects.
    pub(crate) fn reserve(&mut self, additional: usize) {
        self.inner.store.reserve(additional);
    }

    /// Takes an object out.
    pub fn remove(&mut self, key: &ObjectKey) -> Option<Held<T>> {
        let inner = &mut *self.inner;
        let (slot, old) = inner.store.remove(key)?;
        if let Some(namespace) = key.namespace() {
            inner.namespaces.remove(namespace, key);
        }
        for index in inner.indices.values_mut() {
            index.set(key, slot, &[]);
        }
        Some(old)
    }

    /// Builds all indices anew from what is stored.
    pub(crate) fn rebuild_indices(&mut self) {
        let Inner { store, namespaces, indices, .. } = &mut *self.inner;
        *namespaces = Buckets::default();
        indices.values_mut().for_each(Index::clear);
        store.for_each(&mut |slot, object| {
            let key = object.key();
            if let Some(namespace) = key.namespace() {
                namespaces.add(namespace, key, slot);
            }
            for index in indices.values_mut() {
                let values = index.values_of(object);
                index.set(key, slot, &values);
            }
        });
    }

    /// Says at which resourceVersion the objects of `scope` are after this transaction.
    pub fn set_watermark(&mut self, scope: &Scope, version: ResourceVersion) {
        match self.inner.watermarks.get_mut(scope) {
            Some(watermark) => *watermark = version,
            None => drop(self.inner.watermarks.insert(scope.clone(), version)),
        }
    }
}

impl<T: Object> Inner<T> {
    fn held(&self, key: &ObjectKey) -> Option<Held<T>> {
        self.store.get(self.store.find(key)?)
    }

    fn buckets(&self, name: &str) -> Result<&Buckets, IndexError> {
        match self.indices.get(name) {
            Some(index) => Ok(&index.buckets),
            None if name == NAMESPACE_INDEX => Ok(&self.namespaces),
            None => Err(IndexError::Unknown(name.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests;
