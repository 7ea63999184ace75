//! Stage 3: reads from the DeltaFifo (through the SharedInformer, which applies its batches), feeds listers.
//!
//! The cache: a thread-safe map with named indices, at one resourceVersion.

mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::RwLock;

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

type IndexFn<T> = Arc<dyn Fn(&T) -> Vec<String> + Send + Sync>;

/// Keys by index value. Sorted, so that what is read does not depend on the order of events.
type Buckets = BTreeMap<String, BTreeSet<ObjectKey>>;

struct Inner<T> {
    store: Box<dyn Store<T>>,
    namespaces: Buckets,
    indices: BTreeMap<String, Index<T>>,
    watermarks: BTreeMap<Scope, ResourceVersion>,
}

struct Index<T> {
    function: IndexFn<T>,
    buckets: Buckets,
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
            namespaces: Buckets::new(),
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
        let mut index = Index { function: Arc::new(function), buckets: Buckets::new() };
        inner.store.for_each(&mut |object| index.add(object.key(), index.values(object)));
        inner.indices.insert(name, index);
        Ok(())
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
        self.held(key).map(|held| held.object().clone())
    }

    /// The object of this key, not decoded if nobody has read it.
    pub fn held(&self, key: &ObjectKey) -> Option<Held<T>> {
        self.view(|view| view.held(key))
    }

    /// Every object, in no particular order.
    pub fn list(&self) -> Vec<Arc<T>> {
        objects(self.view(|view| view.all()))
    }

    /// Every object of a namespace, ordered by key.
    pub fn list_namespace(&self, namespace: &str) -> Vec<Arc<T>> {
        objects(self.view(|view| view.in_namespace(namespace)))
    }

    /// The objects that an index has under `value`, ordered by key.
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<T>>, IndexError> {
        self.view(|view| view.indexed(name, value)).map(objects)
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
        self.inner.store.get(key)
    }

    /// Puts an object in, and gives back the one that it replaces.
    pub fn insert(&mut self, key: ObjectKey, object: Arc<T>) -> Option<Held<T>> {
        self.put(Held::new(key, object))
    }

    /// The same with an object that may not be decoded. It stays so unless there is an index.
    pub fn put(&mut self, object: Held<T>) -> Option<Held<T>> {
        let inner = &mut *self.inner;
        let key = object.key().clone();
        let after: Vec<_> = inner.indices.values().map(|index| index.values(&object)).collect();
        let old = inner.store.insert(object);
        if old.is_none()
            && let Some(namespace) = key.namespace()
        {
            add_to(&mut inner.namespaces, namespace, &key);
        }
        for (index, after) in inner.indices.values_mut().zip(after) {
            let before = old.as_ref().map(|old| index.values(old));
            if before.as_ref() != Some(&after) {
                index.remove(&key, before.unwrap_or_default());
                index.add(&key, after);
            }
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
        let old = inner.store.remove(key)?;
        if let Some(namespace) = key.namespace() {
            remove_from(&mut inner.namespaces, namespace, key);
        }
        for index in inner.indices.values_mut() {
            index.remove(key, index.values(&old));
        }
        Some(old)
    }

    /// Says at which resourceVersion the objects of `scope` are after this transaction.
    pub fn set_watermark(&mut self, scope: &Scope, version: ResourceVersion) {
        match self.inner.watermarks.get_mut(scope) {
            Some(watermark) => *watermark = version,
            None => drop(self.inner.watermarks.insert(scope.clone(), version)),
        }
    }
}

impl<T> Inner<T> {
    fn buckets(&self, name: &str) -> Result<&Buckets, IndexError> {
        match self.indices.get(name) {
            Some(index) => Ok(&index.buckets),
            None if name == NAMESPACE_INDEX => Ok(&self.namespaces),
            None => Err(IndexError::Unknown(name.to_owned())),
        }
    }
}

impl<T: Object> Index<T> {
    /// The values of an object. An index function that panics costs its object a place in the index; the
    /// transaction around it goes on.
    fn values(&self, object: &T) -> Vec<String> {
        catch_unwind(AssertUnwindSafe(|| (self.function)(object))).unwrap_or_else(|_| {
            tracing::error!("an index function panicked; the object is not in that index");
            Vec::new()
        })
    }

    fn add(&mut self, key: &ObjectKey, values: Vec<String>) {
        for value in values {
            add_to(&mut self.buckets, &value, key);
        }
    }

    fn remove(&mut self, key: &ObjectKey, values: Vec<String>) {
        for value in values {
            remove_from(&mut self.buckets, &value, key);
        }
    }
}

/// Decodes what is not decoded; not under the lock.
fn objects<T: Object>(held: Vec<Held<T>>) -> Vec<Arc<T>> {
    held.into_iter().map(Held::into_object).collect()
}

fn add_to(buckets: &mut Buckets, value: &str, key: &ObjectKey) {
    match buckets.get_mut(value) {
        Some(keys) => drop(keys.insert(key.clone())),
        None => drop(buckets.insert(value.to_owned(), BTreeSet::from([key.clone()]))),
    }
}

/// Takes a key out; a value without keys vanishes.
fn remove_from(buckets: &mut Buckets, value: &str, key: &ObjectKey) {
    if let Some(keys) = buckets.get_mut(value) {
        keys.remove(key);
        if keys.is_empty() {
            buckets.remove(value);
        }
    }
}

#[cfg(test)]
mod tests;
