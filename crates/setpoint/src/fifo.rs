//! Beside stage 2: a queue that keeps only the newest object of each key.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::store::FixedMap;
use crate::{Object, ObjectKey};

/// The newest object of each key, first in first out.
///
/// For consumers that want the present state of what changed, and no history: no deltas, no old state. A
/// key that is deleted before it is taken is never seen.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use std::sync::Arc;
/// use setpoint::Fifo;
/// use setpoint::k8s_openapi::api::core::v1::Pod;
///
/// let fifo = Fifo::<Pod>::default();
/// for name in ["a", "b", "a"] {
///     fifo.add(name.into(), Arc::new(Pod::default()));
/// }
/// assert_eq!(fifo.pop().await.0.name(), "a");
/// assert_eq!(fifo.pop().await.0.name(), "b");
/// assert!(fifo.is_empty());
/// # });
/// ```
pub struct Fifo<T> {
    state: Mutex<State<T>>,
    readable: Notify,
}

struct State<T> {
    queue: VecDeque<ObjectKey>,
    items: FixedMap<ObjectKey, Arc<T>>,
    /// How many keys of the first list were not taken yet; `None` before the first list.
    initial: Option<usize>,
}

impl<T> Default for Fifo<T> {
    fn default() -> Fifo<T> {
        let state = State { queue: VecDeque::new(), items: FixedMap::default(), initial: None };
        Fifo { state: Mutex::new(state), readable: Notify::new() }
    }
}

impl<T: Object> Fifo<T> {
    /// Queues an object, or makes it the one that its queued key stands for.
    #[doc(alias = "update")]
    pub fn add(&self, key: ObjectKey, object: Arc<T>) {
        let state = &mut *self.state.lock();
        state.initial.get_or_insert(0);
        if state.items.insert(key.clone(), object).is_none() {
            state.queue.push_back(key);
        }
        self.readable.notify_one();
    }

    /// Forgets an object.
    pub fn delete(&self, key: &ObjectKey) {
        let state = &mut *self.state.lock();
        state.initial.get_or_insert(0);
        if state.items.remove(key).is_some()
            && let Some(position) = state.queue.iter().position(|queued| queued == key)
        {
            state.queue.remove(position);
            state.initial = state.initial.map(|left| left.saturating_sub(usize::from(position < left)));
        }
    }

    /// Queues a whole list instead of what is queued.
    pub fn replace(&self, list: Vec<(ObjectKey, Arc<T>)>) {
        let state = &mut *self.state.lock();
        state.items.clear();
        state.queue.clear();
        for (key, object) in list {
            if state.items.insert(key.clone(), object).is_none() {
                state.queue.push_back(key);
            }
        }
        // Until the first list is taken, a second one stands in for it.
        state.initial = Some(match state.initial {
            Some(0) => 0,
            _ => state.queue.len(),
        });
        self.readable.notify_one();
    }

    /// Waits for an object and takes it.
    pub async fn pop(&self) -> (ObjectKey, Arc<T>) {
        loop {
            if let Some(taken) = self.try_pop() {
                return taken;
            }
            self.readable.notified().await;
        }
    }

    /// Takes the object at the head; `None` if there is none.
    pub fn try_pop(&self) -> Option<(ObjectKey, Arc<T>)> {
        let state = &mut *self.state.lock();
        let key = state.queue.pop_front()?;
        let object = state.items.remove(&key)?;
        state.initial = state.initial.map(|left| left.saturating_sub(1));
        if !state.queue.is_empty() {
            // Another consumer may be waiting for what is left.
            self.readable.notify_one();
        }
        Some((key, object))
    }

    /// Whether everything of the first list was taken.
    pub fn has_synced(&self) -> bool {
        self.state.lock().initial == Some(0)
    }

    /// How many objects are queued.
    pub fn len(&self) -> usize {
        self.state.lock().queue.len()
    }

    /// Whether none is queued.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use proptest::prelude::*;

    use super::*;
    use crate::object::testing::object;

    proptest! {
        #[test]
        fn a_fifo_is_an_ordered_map_from_which_the_oldest_key_is_taken(
            steps in proptest::collection::vec((0..4u8, 0..5u8), 0..60),
        ) {
            let fifo = Fifo::<ConfigMap>::default();
            let mut model = Vec::<(ObjectKey, u64)>::new();
            for (version, (action, n)) in steps.into_iter().enumerate() {
                let (version, name) = (version as u64, format!("o{n}"));
                let key = ObjectKey::from(name.as_str());
                let place = model.iter().position(|(queued, _)| *queued == key);
                match (action, place) {
                    (0 | 1, Some(place)) => model[place].1 = version,
                    (0 | 1, None) => model.push((key.clone(), version)),
                    (2, Some(place)) => drop(model.remove(place)),
                    _ => {}
                }
                match action {
                    0 | 1 => fifo.add(key, object(&name, "u", version)),
                    2 => fifo.delete(&key),
                    _ => {
                        let expected = (!model.is_empty()).then(|| model.remove(0));
                        let taken = fifo.try_pop().map(|(key, object)| {
                            (key, object.metadata.resource_version.as_deref().unwrap().parse().unwrap())
                        });
                        prop_assert_eq!(taken, expected);
                    }
                }
            }
            prop_assert_eq!(fifo.len(), model.len());
        }
    }

    #[test]
    fn a_fifo_has_synced_when_the_first_list_is_taken() {
        let fifo = Fifo::<ConfigMap>::default();
        assert!(!fifo.has_synced());
        fifo.replace(vec![("a".into(), object("a", "u", 1)), ("b".into(), object("b", "u", 1))]);
        fifo.try_pop();
        assert!(!fifo.has_synced());
        fifo.delete(&"b".into());
        assert!(fifo.has_synced());
    }
}
