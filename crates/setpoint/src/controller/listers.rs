//! The caches that a controller can read, by what is in them.

use std::any::{Any, TypeId, type_name};
use std::collections::BTreeMap;

use parking_lot::RwLock;

use crate::watch::{Watch, WatchId};
use crate::{Lister, Object, ObjectKey};

/// There is no such cache to read, or more than one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListerError {
    /// The controller does not watch this.
    #[error(
        "the controller {controller:?} has no cache of {watch}: name it with `owns`, `watches` or `reads`{}",
        other_kind(others)
    )]
    NotWatched {
        /// The controller.
        controller: String,
        /// What was asked for.
        watch: String,
        /// What it has caches of.
        others: Vec<String>,
    },
    /// The controller has several caches of this type.
    #[error(
        "the controller {controller:?} has several caches of {kind}: {}; say which one with `Context::lister_of`",
        watches.join(", ")
    )]
    Ambiguous {
        /// The controller.
        controller: String,
        /// The type.
        kind: String,
        /// What each of them is of.
        watches: Vec<String>,
    },
}

fn other_kind(others: &[String]) -> String {
    if others.is_empty() { String::new() } else { format!(" (it has {})", others.join(", ")) }
}

/// The listers of a controller.
#[derive(Default)]
pub(super) struct Listers(RwLock<BTreeMap<TypeId, Vec<Entry>>>);

struct Entry {
    id: WatchId,
    watch: String,
    lister: Box<dyn Any + Send + Sync>,
    index_keys: Box<IndexKeys>,
}

/// The keys that an index has under a value.
type IndexKeys = dyn Fn(&str, &str) -> Vec<ObjectKey> + Send + Sync;

impl Entry {
    fn of<T: Object>(&self) -> Option<&Lister<T>> {
        self.lister.downcast_ref()
    }
}

impl Listers {
    pub(super) fn add<T: Object>(&self, (id, watch): (WatchId, String), lister: Lister<T>) {
        let mut all = self.0.write();
        let indexed = lister.clone();
        let index_keys =
            Box::new(move |name: &str, value: &str| indexed.index_keys(name, value).unwrap_or_default());
        let entry = Entry { id, watch, lister: Box::new(lister), index_keys };
        all.entry(TypeId::of::<T>()).or_default().push(entry);
    }

    /// The keys that an index of a watch's cache has under a value; none before there is such a cache.
    pub(super) fn index_keys(&self, id: &WatchId, name: &str, value: &str) -> Vec<ObjectKey> {
        let all = self.0.read();
        let found = all.values().flatten().find(|entry| entry.id == *id);
        found.map(|entry| (entry.index_keys)(name, value)).unwrap_or_default()
    }

    /// Removes one of a watch; there may be another of the same.
    pub(super) fn remove(&self, id: &WatchId) {
        let mut all = self.0.write();
        all.retain(|_, entries| {
            if let Some(at) = entries.iter().rposition(|entry| entry.id == *id) {
                entries.remove(at);
            }
            !entries.is_empty()
        });
    }

    /// The only cache of a type.
    pub(super) fn only<T: Object>(&self, controller: &str) -> Result<Lister<T>, ListerError> {
        let all = self.0.read();
        let entries = all.get(&TypeId::of::<T>()).map_or(&[][..], Vec::as_slice);
        let mut listers = entries.iter().filter_map(Entry::of::<T>);
        let Some(first) = listers.next() else {
            return Err(not_watched(&all, controller, type_name::<T>().to_owned()));
        };
        // Equal watches share a cache.
        if listers.all(|other| other.is_same(first)) {
            return Ok(first.clone());
        }
        let watches = entries.iter().map(|entry| entry.watch.clone()).collect();
        let (controller, kind) = (controller.to_owned(), type_name::<T>().to_owned());
        Err(ListerError::Ambiguous { controller, kind, watches })
    }

    /// The cache of a watch.
    pub(super) fn of<T: Object>(
        &self,
        id: &WatchId,
        watch: &Watch<T>,
        controller: &str,
    ) -> Result<Lister<T>, ListerError> {
        let all = self.0.read();
        let mut entries = all.get(&TypeId::of::<T>()).into_iter().flatten().filter(|entry| entry.id == *id);
        let lister = entries.find_map(Entry::of::<T>);
        lister.cloned().ok_or_else(|| not_watched(&all, controller, watch.to_string()))
    }
}

fn not_watched(all: &BTreeMap<TypeId, Vec<Entry>>, controller: &str, watch: String) -> ListerError {
    let mut others: Vec<String> = all.values().flatten().map(|entry| entry.watch.clone()).collect();
    others.sort_unstable();
    others.dedup();
    ListerError::NotWatched { controller: controller.to_owned(), watch, others }
}
