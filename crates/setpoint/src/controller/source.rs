//! What makes a controller reconcile: changes of kinds, each with the keys that they concern.

use std::any::{Any, TypeId};
use std::sync::Arc;
use std::time::Duration;

use super::caches::Cache;
use super::predicate::{Change, Predicate};
use crate::workqueue::LOW_PRIORITY;
use crate::{
    Deleted, EventHandler, HandlerOptions, Held, Lister, Object, ObjectKey, Registration, SharedInformer,
    SharedInformerFactory, WorkQueue, is_resync,
};

/// The keys that an object concerns.
pub(super) type MapFn<T> = Arc<dyn Fn(&Held<T>) -> Vec<ObjectKey> + Send + Sync>;

/// A kind to watch, before there is an informer for it.
pub(super) struct Source {
    pub(super) predicate: Predicate,
    #[expect(clippy::type_complexity, reason = "it is named here and nowhere else")]
    attach: Box<dyn FnOnce(&SharedInformerFactory, Queue, Predicate) -> Attached + Send>,
}

/// A kind that is being watched.
pub(super) struct Attached {
    pub(super) cache: Box<dyn Cache>,
    pub(super) lister: (TypeId, Box<dyn Any + Send + Sync>),
    pub(super) registration: Registration,
}

/// Where keys go.
#[derive(Clone)]
pub(super) struct Queue {
    pub(super) queue: WorkQueue<ObjectKey>,
    pub(super) resync: Option<Duration>,
    pub(super) name: String,
}

impl Source {
    pub(super) fn new<T: Object>(
        informer: impl FnOnce(&SharedInformerFactory) -> SharedInformer<T> + Send + 'static,
        map: MapFn<T>,
    ) -> Source {
        let attach = move |factory: &SharedInformerFactory, queue: Queue, predicate| {
            let informer = informer(factory);
            let options = HandlerOptions { resync: queue.resync, name: Some(queue.name.clone()) };
            let handler = Enqueue { map, predicate, queue: queue.queue };
            let registration = informer.add_handler_with(handler, options);
            let lister: Lister<T> = informer.lister();
            Attached {
                lister: (TypeId::of::<T>(), Box::new(lister)),
                cache: Box::new(informer),
                registration,
            }
        };
        Source { predicate: Predicate::default(), attach: Box::new(attach) }
    }

    pub(super) fn attach(self, factory: &SharedInformerFactory, queue: Queue) -> Attached {
        (self.attach)(factory, queue, self.predicate)
    }
}

/// Adds the keys that a change concerns to the queue. What is not news (the first list, a resync) goes behind
/// what is.
struct Enqueue<T> {
    map: MapFn<T>,
    predicate: Predicate,
    queue: WorkQueue<ObjectKey>,
}

impl<T: Object> Enqueue<T> {
    fn enqueue(&self, priority: i32, object: &Held<T>) {
        for key in (self.map)(object) {
            self.queue.at_priority(priority).add(key);
        }
    }
}

impl<T: Object> EventHandler<T> for Enqueue<T> {
    fn on_add(&self, object: &Held<T>, is_initial: bool) {
        if self.predicate.passes(|| Change::Added(object.meta())) {
            self.enqueue(if is_initial { LOW_PRIORITY } else { 0 }, object);
        }
    }

    fn on_update(&self, old: &Held<T>, new: &Held<T>) {
        if self.predicate.passes(|| Change::Updated(old.meta(), new.meta())) {
            let is_resync = is_resync(old, new);
            self.enqueue(if is_resync { LOW_PRIORITY } else { 0 }, new);
            if !is_resync {
                // Whoever it concerned before may want to know that it does no more.
                self.enqueue(0, old);
            }
        }
    }

    fn on_delete(&self, deleted: &Deleted<T>) {
        if self.predicate.passes(|| Change::Deleted(deleted.object.meta())) {
            self.enqueue(0, &deleted.object);
        }
    }
}
