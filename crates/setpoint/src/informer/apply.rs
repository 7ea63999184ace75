//! A batch of deltas → the cache, and what changed by it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::facts::CacheChange;
use crate::{Batch, Cause, Deleted, Delta, Held, Object, ObjectKey, Writer};

/// What a batch changed in the cache.
#[derive(Debug)]
pub(super) enum Change<T> {
    Added { object: Held<T>, is_initial: bool },
    Updated { old: Held<T>, new: Held<T> },
    Deleted { old: Held<T>, deleted: Deleted<T> },
    Synced(Held<T>),
}

impl<T: Object> Change<T> {
    pub(super) fn key(&self) -> &ObjectKey {
        match self {
            Change::Added { object, .. } | Change::Synced(object) => object.key(),
            Change::Updated { new, .. } => new.key(),
            Change::Deleted { old, .. } => old.key(),
        }
    }

    /// The change as a fact.
    pub(super) fn told(&self) -> CacheChange {
        let (cause, object) = match self {
            Change::Added { object, .. } => (Cause::Added, object),
            Change::Updated { new, .. } => (Cause::Updated, new),
            Change::Deleted { deleted, .. } => (Cause::Deleted, &deleted.object),
            Change::Synced(object) => (Cause::Resync, object),
        };
        CacheChange { key: object.key().clone(), cause, version: object.version().cloned() }
    }
}

impl<T> Clone for Change<T> {
    fn clone(&self) -> Change<T> {
        match self {
            Change::Added { object, is_initial } => {
                Change::Added { object: object.clone(), is_initial: *is_initial }
            }
            Change::Updated { old, new } => Change::Updated { old: old.clone(), new: new.clone() },
            Change::Deleted { old, deleted } => {
                Change::Deleted { old: old.clone(), deleted: deleted.clone() }
            }
            Change::Synced(object) => Change::Synced(object.clone()),
        }
    }
}

/// Applies a batch and says what changed, in order. `is_first` tells whether the list in it, if any, is the
/// first one.
///
/// All of it or nothing: if the store panics, or what it calls, what was done is undone, and the panic goes on.
pub(super) fn apply<T: Object>(
    writer: &mut Writer<'_, T>,
    batch: &Batch<'_, T>,
    is_first: bool,
) -> Vec<Change<T>> {
    let changes = Vec::with_capacity(batch.len());
    let mut application = Application { writer, is_first, changes, doubt: None };
    match catch_unwind(AssertUnwindSafe(|| application.run(batch))) {
        Ok(()) => application.changes,
        Err(panic) => {
            application.undo();
            resume_unwind(panic)
        }
    }
}

/// A batch that is being applied.
struct Application<'a, 'w, T> {
    writer: &'a mut Writer<'w, T>,
    is_first: bool,
    changes: Vec<Change<T>>,
    /// What is being changed, and what was there before.
    doubt: Option<(&'a ObjectKey, Option<Held<T>>)>,
}

impl<'a, T: Object> Application<'a, '_, T> {
    fn run(&mut self, batch: &'a Batch<'_, T>) {
        if batch.is_replace() && self.is_first {
            self.writer.reserve(batch.len());
        }
        for (key, deltas) in batch.deltas() {
            for delta in deltas {
                self.apply(key, delta);
            }
        }
    }

    fn apply(&mut self, key: &'a ObjectKey, delta: &Delta<T>) {
        let (object, is_initial) = match delta {
            Delta::Deleted(deleted) => return self.remove(key, deleted),
            Delta::Sync(_) => {
                if let Some(object) = self.writer.get(key) {
                    self.changes.push(Change::Synced(object));
                }
                return;
            }
            Delta::Replaced(object) => (object, self.is_first),
            Delta::Added(object) | Delta::Updated(object) => (object, false),
        };
        let old = self.writer.get(key);
        // Nothing new: the cached one stays, so that whoever holds it holds what others hold.
        if old.as_ref().is_some_and(|old| old.is_same_version(object)) {
            return;
        }
        match self.put(key, old, object) {
            None => self.changes.push(Change::Added { object: object.clone(), is_initial }),
            Some(old) if old.is_recreated(object) => {
                // Its deletion was missed, but it was deleted.
                let deleted = Deleted { object: old.clone(), is_tombstone: true };
                self.changes.push(Change::Deleted { old, deleted });
                self.changes.push(Change::Added { object: object.clone(), is_initial: false });
            }
            Some(old) => self.changes.push(Change::Updated { old, new: object.clone() }),
        }
    }

    /// Puts an object in the place of `old`, which it gives back.
    fn put(&mut self, key: &'a ObjectKey, old: Option<Held<T>>, object: &Held<T>) -> Option<Held<T>> {
        self.doubt = Some((key, old));
        self.writer.put_clone(object);
        self.doubt.take().and_then(|(_, old)| old)
    }

    fn remove(&mut self, key: &'a ObjectKey, deleted: &Deleted<T>) {
        self.doubt = self.writer.get(key).map(|old| (key, Some(old)));
        if self.doubt.is_some() {
            self.writer.remove(key);
        }
        if let Some((_, Some(old))) = self.doubt.take() {
            self.changes.push(Change::Deleted { old, deleted: deleted.clone() });
        }
    }

    /// Puts everything back as it was, as far as the store lets it.
    fn undo(&mut self) {
        let writer = &mut *self.writer;
        if let Some((key, old)) = self.doubt.take() {
            restore(writer, key, old);
        }
        for change in self.changes.drain(..).rev() {
            match change {
                Change::Added { object, .. } => restore(writer, object.key(), None),
                Change::Updated { old, .. } | Change::Deleted { old, .. } => {
                    restore(writer, &old.key().clone(), Some(old));
                }
                Change::Synced(_) => {}
            }
        }
        let rebuild = AssertUnwindSafe(|| writer.rebuild_indices());
        if catch_unwind(rebuild).is_err() {
            tracing::error!("the indices of a cache could not be rebuilt after a panic");
        }
    }
}

/// Makes `old` what the store has for a key.
fn restore<T: Object>(writer: &mut Writer<'_, T>, key: &ObjectKey, old: Option<Held<T>>) {
    let restore = AssertUnwindSafe(|| match old {
        Some(old) => drop(writer.put(old)),
        None => drop(writer.remove(key)),
    });
    if catch_unwind(restore).is_err() {
        tracing::error!(%key, "a change of the cache could not be undone after a panic");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::object::testing::held;
    use crate::store::testing::Trapped;
    use crate::{DeltaFifo, Indexer, MapStore, ResourceVersion, Scope};

    /// What is cached, and what the indices say.
    fn contents(indexer: &Indexer<ConfigMap>) -> Vec<String> {
        let mut all = Vec::new();
        indexer.view(|view| view.for_each(|object| all.push(format!("{:?}", object))));
        for index in ["namespace", "version"] {
            for value in indexer.index_values(index).unwrap() {
                all.push(format!("{index} {value} {:?}", indexer.index_keys(index, &value).unwrap()));
            }
        }
        all.sort();
        all
    }

    #[test]
    fn a_batch_is_applied_as_a_whole_or_not_at_all() {
        for nth in 1..100 {
            let trap = Arc::new(AtomicUsize::new(0));
            let indexer = Arc::new(Indexer::new(Trapped(MapStore::default(), trap.clone())));
            let version = |map: &ConfigMap| map.metadata.resource_version.clone().into_iter().collect();
            indexer.add_index("version", version).unwrap();
            indexer.write(|writer| {
                for name in ["n/changed", "n/deleted", "m/again", "m/missed", "m/same"] {
                    writer.put(held(name, "u", 1));
                }
            });
            let before = contents(&indexer);
            let fifo = DeltaFifo::new(indexer.clone(), Scope::Cluster, 100);
            let deleted = |key| Delta::Deleted(Deleted { object: held(key, "u", 5), is_tombstone: false });
            let deltas = [
                Delta::Added(held("k/new", "u", 2)),
                Delta::Updated(held("n/changed", "u", 3)),
                deleted("n/deleted"),
                deleted("m/again"),
                Delta::Added(held("m/again", "v", 6)),
                Delta::Added(held("m/missed", "v", 7)),
                Delta::Updated(held("n/changed", "u", 8)),
                deleted("k/new"),
                Delta::Updated(held("m/same", "u", 1)),
            ];
            fifo.push(deltas, ResourceVersion::from("8"));
            let batch = fifo.try_drain().unwrap();
            trap.store(nth, Ordering::Relaxed);
            let applied =
                catch_unwind(AssertUnwindSafe(|| indexer.write(|writer| apply(writer, &batch, false).len())));
            if let Ok(changes) = applied {
                assert!(nth > 10, "it was trapped");
                assert_eq!(changes, 9);
                assert_eq!(indexer.len(), 4);
                return;
            }
            assert_eq!(contents(&indexer), before, "the change at {nth}");
        }
        unreachable!("a batch has fewer changes");
    }
}
