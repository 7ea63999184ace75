//! Where an [`Indexer`](crate::Indexer) keeps its objects.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};

use hashbrown::HashTable;

use crate::held::Stored;
use crate::{Held, Object, ObjectKey};

/// A hash map whose order depends on its history alone, so that runs can be replayed.
pub(crate) type FixedMap<K, V> = HashMap<K, V, foldhash::quality::FixedState>;

/// The same as a set.
pub(crate) type FixedSet<K> = HashSet<K, foldhash::quality::FixedState>;

/// The place of an object in a store. It stays the same while an object of its key is there, however often
/// that is replaced; so an index of slots need not change when an object does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// A map from key to object. The indexer brings the locks and the indices.
///
/// What is stored is a [`Held`]: a store may take the object out of it and keep it in a form of its own.
pub trait Store<T: Object>: Send + Sync {
    /// Where the object of this key is.
    fn find(&self, key: &ObjectKey) -> Option<Slot>;

    /// The object in a slot.
    fn get(&self, slot: Slot) -> Option<Held<T>>;

    /// The object in a slot, if it is decoded.
    fn decoded(&self, slot: Slot) -> Option<Arc<T>> {
        self.get(slot)?.decoded().cloned()
    }

    /// Says which slots will be read next. A store may fetch what they need at once instead of one by one.
    fn will_read(&self, slots: &[Slot]) {
        let _ = slots;
    }

    /// Puts an object in under its key. Gives back where it is now and the one that it replaces.
    fn insert(&mut self, object: Held<T>) -> (Slot, Option<Held<T>>);

    /// Takes an object out. Its slot may be given to another one afterwards.
    fn remove(&mut self, key: &ObjectKey) -> Option<(Slot, Held<T>)>;

    /// How many objects there are.
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Visits every object, in an order that depends on the store's history alone.
    fn for_each(&self, visit: &mut dyn FnMut(Slot, &Held<T>));

    /// Makes room for so many more objects.
    fn reserve(&mut self, additional: usize) {
        let _ = additional;
    }
}

/// The store for most: slots in a row, found by the hash of their key.
pub struct MapStore<T> {
    hasher: foldhash::quality::FixedState,
    by_key: HashTable<u32>,
    slots: Vec<Option<Entry<T>>>,
    /// Slots that are empty, the last to be used next.
    free: Vec<u32>,
}

/// What is in a slot. What a get asks for is here too, not only behind `stored`: with many objects, each further
/// place in memory is one that the processor waits for.
struct Entry<T> {
    key: ObjectKey,
    stored: Stored<T>,
    /// The object, from its second read on.
    decoded: OnceLock<Arc<T>>,
}

impl<T: Object> Entry<T> {
    fn new(object: Held<T>) -> Entry<T> {
        Entry { key: object.key().clone(), stored: Stored::new(object), decoded: OnceLock::new() }
    }

    fn decoded(&self) -> Option<&Arc<T>> {
        self.decoded.get().or_else(|| {
            let decoded = self.stored.decoded()?;
            Some(self.decoded.get_or_init(|| decoded.clone()))
        })
    }
}

impl<T> Default for MapStore<T> {
    fn default() -> MapStore<T> {
        MapStore {
            hasher: foldhash::quality::FixedState::default(),
            by_key: HashTable::new(),
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> fmt::Debug for MapStore<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapStore").field("len", &self.by_key.len()).finish_non_exhaustive()
    }
}

/// Whether the object in a slot has this key.
fn has_key<T>(slots: &[Option<Entry<T>>], slot: u32, key: &ObjectKey) -> bool {
    slots[slot as usize].as_ref().is_some_and(|entry| entry.key == *key)
}

impl<T: Object> MapStore<T> {
    fn entry(&self, Slot(slot): Slot) -> Option<&Entry<T>> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// An empty slot.
    fn take_slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            let slot = u32::try_from(self.slots.len()).expect("fewer than four billion objects");
            self.slots.push(None);
            slot
        })
    }
}

impl<T: Object> Store<T> for MapStore<T> {
    fn find(&self, key: &ObjectKey) -> Option<Slot> {
        let hash = self.hasher.hash_one(key);
        self.by_key.find(hash, |slot| has_key(&self.slots, *slot, key)).copied().map(Slot)
    }

    fn get(&self, slot: Slot) -> Option<Held<T>> {
        self.entry(slot).map(|entry| entry.stored.held())
    }

    fn decoded(&self, slot: Slot) -> Option<Arc<T>> {
        self.entry(slot)?.decoded().cloned()
    }

    /// What objects need are two places in memory that are far apart. Reading these here, without acting on
    /// them, lets the processor wait for many of them at the same time.
    fn will_read(&self, slots: &[Slot]) {
        let entries = || slots.iter().filter_map(|slot| self.entry(*slot));
        let decoded: usize = entries().filter(|entry| entry.decoded().is_some()).count();
        let counts: usize = entries().filter_map(Entry::decoded).map(Arc::strong_count).sum();
        std::hint::black_box((decoded, counts));
    }

    fn insert(&mut self, object: Held<T>) -> (Slot, Option<Held<T>>) {
        let hash = self.hasher.hash_one(object.key());
        if let Some(slot) = self.by_key.find(hash, |slot| has_key(&self.slots, *slot, object.key())).copied()
        {
            let old = self.slots[slot as usize].replace(Entry::new(object));
            return (Slot(slot), old.map(|old| old.stored.into_held()));
        }
        let slot = self.take_slot();
        self.slots[slot as usize] = Some(Entry::new(object));
        let MapStore { hasher, by_key, slots, .. } = self;
        let hash_of =
            |slot: &u32| slots[*slot as usize].as_ref().map_or(0, |entry| hasher.hash_one(&entry.key));
        by_key.insert_unique(hash, slot, hash_of);
        (Slot(slot), None)
    }

    fn remove(&mut self, key: &ObjectKey) -> Option<(Slot, Held<T>)> {
        let hash = self.hasher.hash_one(key);
        let found = self.by_key.find_entry(hash, |slot| has_key(&self.slots, *slot, key)).ok()?;
        let (slot, _) = found.remove();
        let object = self.slots[slot as usize].take()?;
        self.free.push(slot);
        Some((Slot(slot), object.stored.into_held()))
    }

    fn len(&self) -> usize {
        self.by_key.len()
    }

    fn for_each(&self, visit: &mut dyn FnMut(Slot, &Held<T>)) {
        for (slot, entry) in self.slots.iter().enumerate() {
            if let Some(entry) = entry {
                visit(Slot(slot as u32), &entry.stored.held());
            }
        }
    }

    fn reserve(&mut self, additional: usize) {
        let MapStore { hasher, by_key, slots, .. } = self;
        let hash_of =
            |slot: &u32| slots[*slot as usize].as_ref().map_or(0, |entry| hasher.hash_one(&entry.key));
        by_key.reserve(additional, hash_of);
        slots.reserve(additional);
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! A store that panics when it is told to.

    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Counts down before and after each change, and panics when it gets to 0.
    pub(crate) struct Trapped<T>(pub(crate) MapStore<T>, pub(crate) Arc<AtomicUsize>);

    impl<T> Trapped<T> {
        fn count_down(&self) {
            let left = self.1.load(Ordering::Relaxed);
            self.1.store(left.saturating_sub(1), Ordering::Relaxed);
            assert_ne!(left, 1, "as planned");
        }
    }

    impl<T: Object> Store<T> for Trapped<T> {
        fn find(&self, key: &ObjectKey) -> Option<Slot> {
            self.0.find(key)
        }
        fn get(&self, slot: Slot) -> Option<Held<T>> {
            self.0.get(slot)
        }
        fn insert(&mut self, object: Held<T>) -> (Slot, Option<Held<T>>) {
            self.count_down();
            let inserted = self.0.insert(object);
            self.count_down();
            inserted
        }
        fn remove(&mut self, key: &ObjectKey) -> Option<(Slot, Held<T>)> {
            self.count_down();
            let removed = self.0.remove(key);
            self.count_down();
            removed
        }
        fn len(&self) -> usize {
            self.0.len()
        }
        fn for_each(&self, visit: &mut dyn FnMut(Slot, &Held<T>)) {
            self.0.for_each(visit);
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::object::testing::held;

    #[test]
    fn an_object_keeps_its_slot_until_it_is_removed() {
        let mut store = MapStore::<ConfigMap>::default();
        let (first, _) = store.insert(held("a", "u", 1));
        let (second, _) = store.insert(held("b", "u", 1));
        assert_ne!(first, second);
        let (again, old) = store.insert(held("a", "u", 2));
        assert_eq!((again, old.unwrap().version()), (first, Some(&"1".into())));
        assert_eq!(store.find(&"a".into()), Some(first));
        assert_eq!(store.remove(&"a".into()).map(|(slot, _)| slot), Some(first));
        assert!(store.get(first).is_none() && store.find(&"a".into()).is_none());
        assert!(store.remove(&"a".into()).is_none());
        // It is used again, so that a store is as large as it ever was and no larger.
        assert_eq!(store.insert(held("c", "u", 1)).0, first);
        assert_eq!((store.len(), store.slots.len()), (2, 2));
    }

    #[test]
    fn all_objects_are_found_and_visited_however_many_there_are() {
        let mut store = MapStore::<ConfigMap>::default();
        store.reserve(10);
        for n in 0..1000_u64 {
            store.insert(held(&format!("o{n}"), "u", n + 1));
        }
        let mut seen = 0;
        store.for_each(&mut |slot, object| {
            assert_eq!(store.find(object.key()), Some(slot));
            seen += 1;
        });
        assert_eq!((seen, store.len()), (1000, 1000));
    }
}
