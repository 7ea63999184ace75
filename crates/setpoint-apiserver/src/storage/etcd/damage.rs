//! Values that cannot be read: others wrote them, or something else has. They are not part of their collection, and named.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::super::Key;

/// So many are told of one collection.
const TOLD: usize = 10;

#[derive(Debug, Default)]
pub(super) struct Damage {
    by_key: Mutex<BTreeMap<Key, Arc<str>>>,
}

impl Damage {
    pub(super) fn note(&self, key: Key, why: &str) {
        tracing::error!(
            collection = &*key.collection,
            path = &*key.path,
            why,
            "a stored object cannot be decoded"
        );
        self.by_key.lock().insert(key, why.into());
    }

    pub(super) fn mended(&self, key: &Key) {
        self.by_key.lock().remove(key);
    }

    pub(super) fn clear(&self) {
        self.by_key.lock().clear();
    }

    /// One of all, and why it cannot be read.
    pub(super) fn any(&self) -> Option<(String, Arc<str>)> {
        let by_key = self.by_key.lock();
        by_key.iter().next().map(|(key, why)| (format!("{}/{}", key.collection, key.path), Arc::clone(why)))
    }

    /// Why the record at a key cannot be read, if it cannot.
    pub(super) fn of(&self, key: &Key) -> Option<String> {
        self.by_key.lock().get(key).map(ToString::to_string)
    }

    /// The paths in a collection that cannot be read, and why.
    pub(super) fn in_collection(&self, collection: &str) -> Vec<(String, Arc<str>)> {
        let by_key = self.by_key.lock();
        let damaged = by_key.iter().filter(|(key, _)| &*key.collection == collection);
        damaged.take(TOLD).map(|(key, why)| (key.path.to_string(), Arc::clone(why))).collect()
    }
}
