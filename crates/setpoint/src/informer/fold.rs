//! What waits for one handler: at most two notices a key, however far the handler falls behind.

use std::collections::VecDeque;

use super::apply::Change;
use crate::store::{FixedMap, FixedSet};
use crate::{Deleted, Held, Object, ObjectKey};

/// What a handler is told next.
#[derive(Debug)]
pub(super) enum Notice<T> {
    Add { object: Held<T>, is_initial: bool },
    Update { old: Held<T>, new: Held<T> },
    Delete(Deleted<T>),
}

/// What a handler is to be told about one key. `old` and `delivered` are the last state that it was told.
enum Waiting<T> {
    Add {
        object: Held<T>,
        is_initial: bool,
    },
    Update {
        old: Held<T>,
        new: Held<T>,
    },
    Sync(Held<T>),
    Delete {
        delivered: Held<T>,
        deleted: Deleted<T>,
    },
    /// Deleted, then created again as another object: two notices.
    Recreate {
        delivered: Held<T>,
        deleted: Deleted<T>,
        object: Held<T>,
    },
}

/// The backlog of one handler.
///
/// Notices of a key fold, so that what the handler is told leads from the last state that it was told to the
/// present one: Add + Update → Add; Update + Update → one Update; Update + Sync → the Update; an Add that
/// was not delivered + Delete → nothing, but for [`EventHandler::on_missed`](crate::EventHandler::on_missed); Delete + Add of another uid stay two.
pub(super) struct FoldBuffer<T> {
    /// What was in the cache when the handler came, or the first list. Told before anything else, as adds.
    initial: std::vec::IntoIter<Held<T>>,
    /// The cache at the last resync. Told when nothing else waits.
    resync: std::vec::IntoIter<Held<T>>,
    /// Keys that were told something since the last resync began.
    told: FixedSet<ObjectKey>,
    queue: VecDeque<(u64, ObjectKey)>,
    waiting: FixedMap<ObjectKey, (u64, Waiting<T>)>,
    /// How many of these are two notices.
    recreated: usize,
    next_number: u64,
    sync: Sync,
}

/// Whether the handler was told the whole first list.
#[derive(Clone, Copy, PartialEq)]
enum Sync {
    /// The first list has not come.
    Ahead,
    /// When everything before this number is told.
    At(u64),
    Done,
}

/// The answer of [`FoldBuffer::pop`].
pub(super) enum Popped<T> {
    Notice(Notice<T>),
    /// An object of the first snapshot that was gone before it was told.
    Missed(Deleted<T>),
    /// From now on the handler has synced.
    Synced,
    Nothing,
}

impl<T: Object> FoldBuffer<T> {
    /// A backlog that begins with a snapshot of the cache.
    pub(super) fn new(snapshot: Vec<Held<T>>, cache_has_synced: bool) -> FoldBuffer<T> {
        FoldBuffer {
            initial: snapshot.into_iter(),
            resync: Vec::new().into_iter(),
            told: FixedSet::default(),
            queue: VecDeque::new(),
            waiting: FixedMap::default(),
            recreated: 0,
            next_number: 0,
            sync: if cache_has_synced { Sync::At(0) } else { Sync::Ahead },
        }
    }

    /// How many notices wait, what is left of snapshots not counted.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.recreated
    }

    fn put(&mut self, key: ObjectKey, number: u64, waiting: Waiting<T>) {
        self.recreated += usize::from(waiting.is_two());
        self.waiting.insert(key, (number, waiting));
    }

    fn take(&mut self, key: &ObjectKey) -> Option<(u64, Waiting<T>)> {
        let (number, waiting) = self.waiting.remove(key)?;
        self.recreated -= usize::from(waiting.is_two());
        Some((number, waiting))
    }

    /// How many notices wait, snapshots included; cheap and a little high.
    pub(super) fn lag(&self) -> usize {
        self.waiting.len() + self.initial.len() + self.resync.len()
    }

    /// The whole first list is in the backlog now.
    pub(super) fn cache_has_synced(&mut self) {
        if self.sync == Sync::Ahead {
            self.sync = Sync::At(self.next_number);
        }
    }

    /// Begins a resync with a snapshot of the cache, unless the first snapshot or the last resync is still
    /// under way.
    pub(super) fn resync(&mut self, snapshot: Vec<Held<T>>) {
        if self.initial.as_slice().is_empty() && self.resync.as_slice().is_empty() {
            self.resync = snapshot.into_iter();
            self.told.clear();
        }
    }

    /// Begins with a first list, as with a snapshot: it needs no place for each of its objects. False if it
    /// cannot, because there is more than that to tell.
    pub(super) fn begin_with(&mut self, list: &[Change<T>]) -> bool {
        let is_free = self.initial.as_slice().is_empty() && self.waiting.is_empty();
        let is_initial = |change: &Change<T>| matches!(change, Change::Added { is_initial: true, .. });
        if !is_free || !list.iter().all(is_initial) {
            return false;
        }
        let objects = list.iter().filter_map(|change| match change {
            Change::Added { object, .. } => Some(object.clone()),
            _ => None,
        });
        self.initial = objects.collect::<Vec<_>>().into_iter();
        true
    }

    /// Adds a change, folded into what waits for its key. Says whether it is the end of an object that the handler
    /// was never told of, and never will be.
    pub(super) fn push(&mut self, change: &Change<T>) -> bool {
        let key = change.key();
        let Some((number, before)) = self.take(key) else {
            let number = self.next_number;
            self.next_number += 1;
            self.queue.push_back((number, key.clone()));
            self.put(key.clone(), number, Waiting::of(change));
            self.forget_stale();
            return false;
        };
        let is_untold = matches!(before, Waiting::Add { .. } | Waiting::Recreate { .. });
        if let Some(after) = before.fold(change) {
            self.put(key.clone(), number, after);
        }
        is_untold && matches!(change, Change::Deleted { .. })
    }

    /// Entries of keys that have nothing to tell any more stay in the queue until they come up, but not too
    /// many of them.
    fn forget_stale(&mut self) {
        if self.queue.len() > 2 * self.waiting.len() + 64 {
            let waiting = &self.waiting;
            self.queue.retain(|(number, key)| waiting.get(key).is_some_and(|(current, _)| current == number));
        }
    }

    /// What the handler is told next.
    pub(super) fn pop(&mut self) -> Popped<T> {
        if let Some(popped) = self.pop_initial() {
            return popped;
        }
        let next = self.next_live();
        if let Sync::At(mark) = self.sync
            && next.is_none_or(|number| number >= mark)
        {
            self.sync = Sync::Done;
            return Popped::Synced;
        }
        match next {
            Some(_) => self.pop_waiting().map_or(Popped::Nothing, Popped::Notice),
            None => self.pop_resync().map_or(Popped::Nothing, Popped::Notice),
        }
    }

    /// An object of the first snapshot, with what happened to it since.
    fn pop_initial(&mut self) -> Option<Popped<T>> {
        let object = self.initial.next()?;
        let waiting = self.take(object.key());
        let object = match waiting.map(|(_, waiting)| waiting) {
            None => object,
            Some(Waiting::Delete { deleted, .. }) => return Some(Popped::Missed(deleted)),
            Some(
                Waiting::Update { new: object, .. }
                | Waiting::Add { object, .. }
                | Waiting::Sync(object)
                | Waiting::Recreate { object, .. },
            ) => object,
        };
        Some(Popped::Notice(Notice::Add { object, is_initial: true }))
    }

    /// The number of the first entry that still has something to tell.
    fn next_live(&mut self) -> Option<u64> {
        while let Some((number, key)) = self.queue.front() {
            if self.waiting.get(key).is_some_and(|(current, _)| current == number) {
                return Some(*number);
            }
            self.queue.pop_front();
        }
        None
    }

    fn pop_waiting(&mut self) -> Option<Notice<T>> {
        let (number, key) = self.queue.pop_front()?;
        let (_, waiting) = self.take(&key)?;
        if !self.resync.as_slice().is_empty() {
            self.told.insert(key.clone());
        }
        Some(match waiting {
            Waiting::Add { object, is_initial } => Notice::Add { object, is_initial },
            Waiting::Update { old, new } => Notice::Update { old, new },
            Waiting::Sync(object) => Notice::Update { old: object.clone(), new: object },
            Waiting::Delete { deleted, .. } => Notice::Delete(deleted),
            Waiting::Recreate { deleted, object, .. } => {
                // The second notice keeps the place of the first.
                self.queue.push_front((number, key.clone()));
                self.put(key, number, Waiting::Add { object, is_initial: false });
                Notice::Delete(deleted)
            }
        })
    }

    fn pop_resync(&mut self) -> Option<Notice<T>> {
        let told = &self.told;
        let is_due = |object: &Held<T>| !told.contains(object.key());
        let object = self.resync.by_ref().find(is_due)?;
        Some(Notice::Update { old: object.clone(), new: object })
    }
}

impl<T: Object> Waiting<T> {
    fn is_two(&self) -> bool {
        matches!(self, Waiting::Recreate { .. })
    }

    /// What a change is to a handler that nothing waits for.
    fn of(change: &Change<T>) -> Waiting<T> {
        match change.clone() {
            Change::Added { object, is_initial, .. } => Waiting::Add { object, is_initial },
            Change::Updated { old, new, .. } => Waiting::Update { old, new },
            Change::Deleted { old, deleted, .. } => Waiting::Delete { delivered: old, deleted },
            Change::Synced(object) => Waiting::Sync(object),
        }
    }

    /// What is left to tell after one more change; `None` if nothing is.
    fn fold(self, change: &Change<T>) -> Option<Waiting<T>> {
        match change.clone() {
            Change::Synced(_) => Some(self),
            Change::Added { object: new, .. } | Change::Updated { new, .. } => self.fold_present(new),
            Change::Deleted { deleted, .. } => match self {
                Waiting::Add { .. } => None,
                Waiting::Update { old, .. } => Some(Waiting::Delete { delivered: old, deleted }),
                Waiting::Sync(object) => Some(Waiting::Delete { delivered: object, deleted }),
                waiting @ Waiting::Delete { .. } => Some(waiting),
                Waiting::Recreate { delivered, deleted, .. } => Some(Waiting::Delete { delivered, deleted }),
            },
        }
    }

    fn fold_present(self, new: Held<T>) -> Option<Waiting<T>> {
        Some(match self {
            Waiting::Add { is_initial, .. } => Waiting::Add { object: new, is_initial },
            Waiting::Update { old, .. } | Waiting::Sync(old) => Waiting::Update { old, new },
            Waiting::Recreate { delivered, deleted, .. } => {
                Waiting::Recreate { delivered, deleted, object: new }
            }
            Waiting::Delete { delivered, deleted } if delivered.is_recreated(&new) => {
                Waiting::Recreate { delivered, deleted, object: new }
            }
            // It only left the selector for a while.
            Waiting::Delete { delivered, .. } if delivered.is_same_version(&new) => return None,
            Waiting::Delete { delivered, .. } => Waiting::Update { old: delivered, new },
        })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::object::testing::held;

    fn add(uid: &str, version: u64) -> Change<ConfigMap> {
        Change::Added { object: held("a", uid, version), is_initial: false }
    }

    fn update(uid: &str, old: u64, new: u64) -> Change<ConfigMap> {
        Change::Updated { old: held("a", uid, old), new: held("a", uid, new) }
    }

    fn delete(uid: &str, old: u64, last: u64) -> Change<ConfigMap> {
        let deleted = Deleted { object: held("a", uid, last), is_tombstone: false };
        Change::Deleted { old: held("a", uid, old), deleted }
    }

    fn sync(uid: &str, version: u64) -> Change<ConfigMap> {
        Change::Synced(held("a", uid, version))
    }

    fn version(object: &ConfigMap) -> &str {
        object.metadata.resource_version.as_deref().unwrap()
    }

    /// Everything that the handler is told, in words.
    fn told(mut buffer: FoldBuffer<ConfigMap>) -> String {
        let mut words = Vec::new();
        loop {
            words.push(match buffer.pop() {
                Popped::Notice(Notice::Add { object, .. }) => format!("add {}", version(&object)),
                Popped::Notice(Notice::Update { old, new }) => {
                    format!("update {} {}", version(&old), version(&new))
                }
                Popped::Notice(Notice::Delete(deleted)) => format!("delete {}", version(&deleted.object)),
                Popped::Missed(deleted) => format!("missed {}", version(&deleted.object)),
                Popped::Synced => "synced".to_owned(),
                Popped::Nothing => return words.join(", "),
            });
        }
    }

    fn check(snapshot: &[(&str, u64)], changes: &[Change<ConfigMap>], expected: &str) {
        let snapshot = snapshot.iter().map(|(uid, version)| held("a", uid, *version)).collect();
        let mut buffer = FoldBuffer::new(snapshot, false);
        let missed = changes.iter().filter(|change| buffer.push(change)).map(|_| "missed");
        let missed: Vec<&str> = missed.collect();
        assert!(buffer.len() <= 2);
        let told = [missed.join(", "), told(buffer)].into_iter().filter(|words| !words.is_empty());
        assert_eq!(told.collect::<Vec<_>>().join(", "), expected);
    }

    #[test]
    fn changes_of_a_key_fold_as_the_table_says() {
        check(&[], &[add("u", 1), update("u", 1, 2)], "add 2");
        check(&[], &[update("u", 1, 2), update("u", 2, 3)], "update 1 3");
        check(&[], &[update("u", 1, 2), sync("u", 2)], "update 1 2");
        check(&[], &[sync("u", 1), update("u", 1, 2)], "update 1 2");
        check(&[], &[add("u", 1), delete("u", 1, 2)], "missed");
        check(&[], &[update("u", 1, 2), delete("u", 2, 3)], "delete 3");
        check(&[], &[delete("u", 1, 2), add("v", 3)], "delete 2, add 3");
        check(&[], &[delete("u", 1, 2), add("v", 3), update("v", 3, 4)], "delete 2, add 4");
        check(&[], &[delete("u", 1, 2), add("v", 3), delete("v", 3, 4)], "missed, delete 2");
        check(&[], &[delete("u", 1, 2), add("u", 3)], "update 1 3");
        check(&[], &[sync("u", 1)], "update 1 1");
    }

    #[test]
    fn changes_fold_into_a_snapshot_that_is_not_told_yet() {
        check(&[("u", 1)], &[], "add 1");
        check(&[("u", 1)], &[update("u", 1, 2)], "add 2");
        check(&[("u", 1)], &[delete("u", 1, 2)], "missed 2");
        check(&[("u", 1)], &[delete("u", 1, 2), add("v", 3)], "add 3");
    }

    #[test]
    fn a_first_list_is_told_as_a_snapshot_unless_there_is_more_to_tell() {
        let initial = |name: &str| Change::Added { object: held(name, "u", 1), is_initial: true };
        let list = [initial("a"), initial("b")];
        let mut buffer = FoldBuffer::new(Vec::new(), false);
        assert!(buffer.begin_with(&list));
        buffer.cache_has_synced();
        buffer.push(&update("u", 1, 2));
        assert!(!buffer.begin_with(&list), "the first one is not told yet");
        assert_eq!(told(buffer), "add 2, add 1, synced");
        let mut buffer = FoldBuffer::new(Vec::new(), false);
        assert!(!buffer.begin_with(&[initial("a"), update("u", 1, 2)]));
        assert!(!buffer.begin_with(&[add("u", 1)]));
        assert_eq!(told(buffer), "");
    }

    #[test]
    fn a_handler_has_synced_when_it_was_told_the_first_list_and_not_later() {
        let mut buffer = FoldBuffer::new(Vec::new(), false);
        buffer.push(&add("u", 1));
        buffer.cache_has_synced();
        buffer.push(&Change::Added { object: held("b", "w", 2), is_initial: false });
        assert_eq!(told(buffer), "add 1, synced, add 2");
        assert_eq!(told(FoldBuffer::new(vec![held("a", "u", 1)], true)), "add 1, synced");
        assert_eq!(told(FoldBuffer::new(Vec::new(), true)), "synced");
    }

    #[test]
    fn an_initial_object_that_is_deleted_before_it_is_told_does_not_hold_sync_up() {
        let mut buffer = FoldBuffer::new(Vec::new(), false);
        buffer.push(&add("u", 1));
        buffer.cache_has_synced();
        buffer.push(&delete("u", 1, 2));
        assert_eq!(told(buffer), "synced");
    }

    #[test]
    fn a_resync_skips_what_was_told_since_it_began_and_waits_behind_changes() {
        let mut buffer = FoldBuffer::new(Vec::new(), false);
        buffer.resync(vec![held("a", "u", 1), held("b", "w", 1)]);
        buffer.push(&update("u", 1, 2));
        assert_eq!(told(buffer), "update 1 2, update 1 1");
    }

    #[test]
    fn the_queue_of_keys_stays_small_when_nothing_is_told() {
        let mut buffer = FoldBuffer::new(Vec::new(), false);
        for version in 0..10_000 {
            buffer.push(&add("u", version));
            buffer.push(&delete("u", version, version));
        }
        assert_eq!(buffer.len(), 0);
        assert!(buffer.queue.len() <= 66, "{}", buffer.queue.len());
    }
}
