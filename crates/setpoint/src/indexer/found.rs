//! What a look into the cache found, before it is decoded.

use std::sync::Arc;

use crate::{Held, Object, Slot, Store};

/// So many objects are fetched at once.
const TOGETHER: usize = 32;

/// Objects in order. Those that nobody has read yet are decoded later, not under the lock of the cache.
pub(super) struct Found<T> {
    /// `None` for one that is not decoded.
    objects: Vec<Option<Arc<T>>>,
    undecoded: Vec<Held<T>>,
}

impl<T: Object> Found<T> {
    /// What is in these slots, of which there are about `count`.
    pub(super) fn read(
        store: &dyn Store<T>,
        count: usize,
        mut slots: impl Iterator<Item = Slot>,
    ) -> Found<T> {
        let mut found = Found { objects: Vec::with_capacity(count), undecoded: Vec::new() };
        let mut next = [Slot(0); TOGETHER];
        loop {
            let filled = next.iter_mut().zip(slots.by_ref()).map(|(next, slot)| *next = slot).count();
            if filled == 0 {
                return found;
            }
            store.will_read(&next[..filled]);
            next[..filled].iter().for_each(|slot| found.add(store, *slot));
        }
    }

    fn add(&mut self, store: &dyn Store<T>, slot: Slot) {
        if let Some(object) = store.decoded(slot) {
            self.objects.push(Some(object));
        } else if let Some(held) = store.get(slot) {
            self.objects.push(None);
            self.undecoded.push(held);
        }
    }

    /// The objects, all decoded.
    pub(super) fn objects(self) -> Vec<Arc<T>> {
        let mut undecoded = self.undecoded.into_iter();
        let mut decode = || undecoded.next().map(Held::into_kept);
        self.objects.into_iter().filter_map(|object| object.or_else(&mut decode)).collect()
    }
}
