//! One index: where objects are, by value.

mod bucket;

use std::any::TypeId;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use self::bucket::Bucket;
use crate::store::FixedMap;
use crate::{Object, ObjectKey, Slot};

/// The values of an object.
type ValuesOf<T> = dyn Fn(&T) -> Vec<String> + Send + Sync;

/// What gives the values of an object, and whether another one does the same.
pub(crate) struct IndexFn<T> {
    call: Arc<ValuesOf<T>>,
    /// The type of one that has no state: it says what the function does. Of others it is not known.
    written_as: Option<TypeId>,
}

impl<T> IndexFn<T> {
    pub(crate) fn new<F: Fn(&T) -> Vec<String> + Send + Sync + 'static>(function: F) -> IndexFn<T> {
        let written_as = (size_of::<F>() == 0).then(TypeId::of::<F>);
        IndexFn { call: Arc::new(function), written_as }
    }

    pub(super) fn is_same(&self, other: &IndexFn<T>) -> bool {
        match (self.written_as, other.written_as) {
            (Some(one), Some(two)) => one == two,
            (None, None) => Arc::ptr_eq(&self.call, &other.call),
            _ => false,
        }
    }
}

impl<T> Clone for IndexFn<T> {
    fn clone(&self) -> IndexFn<T> {
        IndexFn { call: self.call.clone(), written_as: self.written_as }
    }
}

/// Slots by value; those of a value ordered by key, so that what is read does not depend on the order of events.
#[derive(Default)]
pub(super) struct Buckets {
    by_value: FixedMap<Arc<str>, Bucket>,
}

impl Buckets {
    /// Adds an object to a value, and gives the value as it is kept.
    pub(super) fn add(&mut self, value: &str, key: &ObjectKey, slot: Slot) -> Arc<str> {
        let value: Arc<str> = match self.by_value.get_key_value(value) {
            Some((value, _)) => value.clone(),
            None => value.into(),
        };
        self.by_value.entry(value.clone()).or_default().insert(key, slot);
        value
    }

    /// Takes an object out; a value without objects vanishes.
    pub(super) fn remove(&mut self, value: &str, key: &ObjectKey) {
        if let Some(bucket) = self.by_value.get_mut(value) {
            bucket.remove(key);
            if bucket.len() == 0 {
                self.by_value.remove(value);
            }
        }
    }

    pub(super) fn slots(&self, value: &str) -> impl Iterator<Item = Slot> {
        self.by_value.get(value).into_iter().flat_map(Bucket::slots)
    }

    pub(super) fn keys(&self, value: &str) -> Vec<ObjectKey> {
        self.by_value.get(value).into_iter().flat_map(Bucket::keys).cloned().collect()
    }

    /// How many objects a value has.
    pub(super) fn count(&self, value: &str) -> usize {
        self.by_value.get(value).map_or(0, Bucket::len)
    }

    /// Every value, in order.
    pub(super) fn values(&self) -> Vec<String> {
        let mut values: Vec<_> = self.by_value.keys().map(|value| value.to_string()).collect();
        values.sort_unstable();
        values
    }
}

/// An index that a user has added.
pub(super) struct Index<T> {
    pub(super) function: IndexFn<T>,
    pub(super) buckets: Buckets,
    /// The values under which the object of a slot is found now. So an object that was replaced need not be
    /// read again, which in a compact cache would mean to decode it.
    values: Vec<Values>,
}

/// The values of one object. Most have one: it is kept without another place in memory.
#[derive(Default)]
enum Values {
    #[default]
    None,
    One(Arc<str>),
    Many(Box<[Arc<str>]>),
}

impl Values {
    fn as_slice(&self) -> &[Arc<str>] {
        match self {
            Values::None => &[],
            Values::One(value) => std::slice::from_ref(value),
            Values::Many(values) => values,
        }
    }
}

impl<T: Object> Index<T> {
    pub(super) fn new(function: IndexFn<T>) -> Index<T> {
        Index { function, buckets: Buckets::default(), values: Vec::new() }
    }

    /// Takes every object out.
    pub(super) fn clear(&mut self) {
        self.buckets = Buckets::default();
        self.values.clear();
    }

    /// The values of an object. An index function that panics costs its object a place in the index; the
    /// transaction around it goes on.
    pub(super) fn values_of(&self, object: &T) -> Vec<String> {
        catch_unwind(AssertUnwindSafe(|| (self.function.call)(object))).unwrap_or_else(|_| {
            tracing::error!("an index function panicked; the object is not in that index");
            Vec::new()
        })
    }

    /// The object in a slot has these values from now on.
    pub(super) fn set(&mut self, key: &ObjectKey, Slot(slot): Slot, values: &[String]) {
        let at = slot as usize;
        if at >= self.values.len() {
            self.values.resize_with(at + 1, Values::default);
        }
        let before = self.values[at].as_slice();
        if before.len() == values.len() && before.iter().zip(values).all(|(old, new)| **old == **new) {
            return;
        }
        for value in std::mem::take(&mut self.values[at]).as_slice() {
            self.buckets.remove(value, key);
        }
        let mut add = |value: &String| self.buckets.add(value, key, Slot(slot));
        self.values[at] = match values {
            [] => Values::None,
            [value] => Values::One(add(value)),
            values => Values::Many(values.iter().map(add).collect()),
        };
    }
}
