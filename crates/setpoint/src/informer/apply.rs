//! A batch of deltas → the cache, and what changed by it.

use crate::{Batch, Deleted, Delta, Held, Object, ObjectKey, Writer};

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
pub(super) fn apply<T: Object>(
    writer: &mut Writer<'_, T>,
    batch: &Batch<'_, T>,
    is_first: bool,
) -> Vec<Change<T>> {
    let mut changes = Vec::with_capacity(batch.len());
    if batch.is_replace() && is_first {
        writer.reserve(batch.len());
    }
    for (key, deltas) in batch.deltas() {
        for delta in deltas {
            apply_delta(writer, key, delta, is_first, &mut changes);
        }
    }
    changes
}

fn apply_delta<T: Object>(
    writer: &mut Writer<'_, T>,
    key: &ObjectKey,
    delta: &Delta<T>,
    is_first: bool,
    changes: &mut Vec<Change<T>>,
) {
    let (object, is_initial) = match delta {
        Delta::Deleted(deleted) => {
            if let Some(old) = writer.remove(key) {
                changes.push(Change::Deleted { old, deleted: deleted.clone() });
            }
            return;
        }
        Delta::Sync(_) => {
            if let Some(object) = writer.get(key) {
                changes.push(Change::Synced(object));
            }
            return;
        }
        Delta::Replaced(object) => (object, is_first),
        Delta::Added(object) | Delta::Updated(object) => (object, false),
    };
    match writer.get(key) {
        None => {
            writer.put_clone(object);
            changes.push(Change::Added { object: object.clone(), is_initial });
        }
        // Nothing new: the cached one stays, so that whoever holds it holds what others hold.
        Some(old) if old.is_same_version(object) => {}
        Some(old) if old.is_recreated(object) => {
            writer.put_clone(object);
            // Its deletion was missed, but it was deleted.
            let deleted = Deleted { object: old.clone(), is_tombstone: true };
            changes.push(Change::Deleted { old, deleted });
            changes.push(Change::Added { object: object.clone(), is_initial: false });
        }
        Some(old) => {
            writer.put_clone(object);
            changes.push(Change::Updated { old, new: object.clone() });
        }
    }
}
