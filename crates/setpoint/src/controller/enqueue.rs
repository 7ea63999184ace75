//! The handler of a controller: from a change to the keys that it concerns, and why.

use std::sync::Arc;

use super::Key;
use super::intake::Intake;
use crate::facts::Name;
use crate::watch::{Change, Predicate};
use crate::workqueue::LOW_PRIORITY;
use crate::{Cause, Deleted, EventHandler, Held, Object, Reason, is_resync};

/// The keys that an object concerns.
pub(super) type MapFn<T, Q> = Arc<dyn Fn(&Held<T>) -> Vec<Q> + Send + Sync>;

/// Which changes of a kind matter, and to whom.
pub(super) struct Rule<T, Q> {
    pub(super) map: MapFn<T, Q>,
    pub(super) predicate: Predicate<T>,
}

/// Adds the keys that a change concerns to the queue. What is not news (the first list, a resync) goes behind
/// what is.
pub(super) struct Enqueue<T, Q> {
    pub(super) rule: Arc<Rule<T, Q>>,
    pub(super) intake: Arc<Intake<Q>>,
    pub(super) resource: Name,
    /// Whether the cached objects say who changed them.
    pub(super) has_managers: bool,
}

impl<T: Object, Q: Key> Enqueue<T, Q> {
    fn enqueue(&self, priority: i32, object: &Held<T>, cause: Cause) {
        for key in (self.rule.map)(object) {
            self.intake.add(priority, key, || self.reason(cause, object));
        }
    }

    fn reason(&self, cause: Cause, object: &Held<T>) -> Reason {
        let manager = if self.has_managers { last_manager(object) } else { None };
        Reason { manager, ..Reason::object(cause, &self.resource, object) }
    }
}

/// Who changed an object last.
fn last_manager<T: Object>(object: &Held<T>) -> Option<Name> {
    let managers = object.meta().managed_fields.iter().flatten();
    let last = managers.max_by_key(|manager| manager.time.as_ref().map(|time| time.0))?;
    last.manager.as_deref().map(Name::from)
}

impl<T: Object, Q: Key> EventHandler<T> for Enqueue<T, Q> {
    fn on_add(&self, object: &Held<T>, is_initial: bool) {
        if self.rule.predicate.passes(|| Change::Added(object)) {
            let (priority, cause) = if is_initial { (LOW_PRIORITY, Cause::Start) } else { (0, Cause::Added) };
            self.enqueue(priority, object, cause);
        }
    }

    fn on_update(&self, old: &Held<T>, new: &Held<T>) {
        if self.rule.predicate.passes(|| Change::Updated(old, new)) {
            if is_resync(old, new) {
                return self.enqueue(LOW_PRIORITY, new, Cause::Resync);
            }
            let keys = (self.rule.map)(new);
            // Whoever it concerned before may want to know that it does no more.
            let left: Vec<Q> = (self.rule.map)(old).into_iter().filter(|key| !keys.contains(key)).collect();
            for key in keys {
                self.intake.add(0, key, || self.reason(Cause::Updated, new));
            }
            for key in left {
                self.intake.add_departed(key, || self.reason(Cause::Deleted, new));
            }
        }
    }

    /// Whoever has created it believes that it is there.
    fn on_missed(&self, deleted: &Deleted<T>) {
        self.on_delete(deleted);
    }

    fn on_delete(&self, deleted: &Deleted<T>) {
        if self.rule.predicate.passes(|| Change::Deleted(&deleted.object)) {
            for key in (self.rule.map)(&deleted.object) {
                self.intake.add_departed(key, || self.reason(Cause::Deleted, &deleted.object));
            }
        }
    }
}
