//! What makes a controller reconcile: changes of kinds, each with the keys that they concern.

use std::any::{Any, TypeId};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::caches::{Cache, Watched};
use super::intake::Intake;
use super::predicate::{Change, Predicate};
use crate::facts::{CacheName, Name};
use crate::workqueue::{LOW_PRIORITY, SourceNames};
use crate::{
    Cause, Deleted, EventHandler, HandlerOptions, Held, Lister, Object, ObjectKey, Reason, Registration,
    SharedInformer, SharedInformerFactory, WorkQueue, is_resync,
};

/// After so many objects a replay lets others run.
const OBJECTS_A_TURN: usize = 64;

/// The keys that an object concerns.
pub(super) type MapFn<T> = Arc<dyn Fn(&Held<T>) -> Vec<ObjectKey> + Send + Sync>;

/// A kind to watch, before there is an informer for it.
pub(super) struct Source {
    pub(super) predicate: Predicate,
    #[expect(clippy::type_complexity, reason = "it is named here and nowhere else")]
    attach: Box<dyn FnOnce(&SharedInformerFactory, &mut Queue, Predicate) -> Attached + Send>,
}

/// A kind that is being watched.
pub(super) struct Attached {
    pub(super) cache: Box<dyn Cache>,
    pub(super) lister: (TypeId, Box<dyn Any + Send + Sync>),
    pub(super) registration: Registration,
    pub(super) replay: Box<dyn Replay>,
}

/// Where keys go.
pub(super) struct Queue {
    pub(super) queue: WorkQueue<ObjectKey>,
    pub(super) intake: Arc<Intake>,
    /// The number of the next source that keys can be held for.
    pub(super) next_source: u32,
    pub(super) source_names: SourceNames,
    pub(super) resync: Option<Duration>,
    pub(super) name: String,
}

impl Source {
    pub(super) fn new<T: Object + Serialize + DeserializeOwned>(
        informer: impl FnOnce(&SharedInformerFactory) -> SharedInformer<T> + Send + 'static,
        map: MapFn<T>,
    ) -> Source {
        let attach = move |factory: &SharedInformerFactory, queue: &mut Queue, predicate| {
            let informer = informer(factory);
            let options = HandlerOptions { resync: queue.resync, name: Some(queue.name.clone()) };
            let rule = Arc::new(Rule { map, predicate });
            let handler = Enqueue {
                rule: rule.clone(),
                intake: queue.intake.clone(),
                resource: informer.name().into(),
                has_managers: informer.keeps_managed_fields(),
            };
            let names = informer.scopes().map(|scope| CacheName::new(informer.name(), scope));
            queue.source_names.write().extend(names);
            let registration = informer.add_handler_with(handler, options);
            let lister: Lister<T> = informer.lister();
            Attached {
                lister: (TypeId::of::<T>(), Box::new(lister.clone())),
                replay: Box::new(Cached { rule, lister }),
                cache: Box::new(Watched::new(informer, queue.queue.clone(), &mut queue.next_source)),
                registration,
            }
        };
        Source { predicate: Predicate::default(), attach: Box::new(attach) }
    }

    pub(super) fn attach(self, factory: &SharedInformerFactory, queue: &mut Queue) -> Attached {
        (self.attach)(factory, queue, self.predicate)
    }
}

/// Which changes of a kind matter, and to whom.
struct Rule<T> {
    map: MapFn<T>,
    predicate: Predicate,
}

/// Adds the keys that a change concerns to the queue. What is not news (the first list, a resync) goes behind
/// what is.
struct Enqueue<T> {
    rule: Arc<Rule<T>>,
    intake: Arc<Intake>,
    resource: Name,
    /// Whether the cached objects say who changed them.
    has_managers: bool,
}

impl<T: Object> Enqueue<T> {
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

impl<T: Object> EventHandler<T> for Enqueue<T> {
    fn on_add(&self, object: &Held<T>, is_initial: bool) {
        if self.rule.predicate.passes(|| Change::Added(object.meta())) {
            let (priority, cause) = if is_initial { (LOW_PRIORITY, Cause::Start) } else { (0, Cause::Added) };
            self.enqueue(priority, object, cause);
        }
    }

    fn on_update(&self, old: &Held<T>, new: &Held<T>) {
        if self.rule.predicate.passes(|| Change::Updated(old.meta(), new.meta())) {
            if is_resync(old, new) {
                return self.enqueue(LOW_PRIORITY, new, Cause::Resync);
            }
            let keys = (self.rule.map)(new);
            // Whoever it concerned before may want to know that it does no more.
            let left: Vec<ObjectKey> =
                (self.rule.map)(old).into_iter().filter(|key| !keys.contains(key)).collect();
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
        if self.rule.predicate.passes(|| Change::Deleted(deleted.object.meta())) {
            for key in (self.rule.map)(&deleted.object) {
                self.intake.add_departed(key, || self.reason(Cause::Deleted, &deleted.object));
            }
        }
    }
}

/// A kind whose objects can be gone through again.
pub(super) trait Replay: Send + Sync {
    /// The keys that the cached objects concern, in order, as if they all came now.
    fn keys(&self) -> BoxFuture<'_, Vec<ObjectKey>>;
}

struct Cached<T> {
    rule: Arc<Rule<T>>,
    lister: Lister<T>,
}

impl<T: Object> Replay for Cached<T> {
    fn keys(&self) -> BoxFuture<'_, Vec<ObjectKey>> {
        Box::pin(async {
            let mut keys = Vec::new();
            for (n, object) in self.lister.view(|view| view.all()).into_iter().enumerate() {
                keys.extend(self.rule.keys_of(&object));
                if n % OBJECTS_A_TURN == OBJECTS_A_TURN - 1 {
                    tokio::task::yield_now().await;
                }
            }
            keys.sort_unstable();
            keys.dedup();
            keys
        })
    }
}

impl<T: Object> Rule<T> {
    /// The keys of an object that was there before. A panic is the user's, and costs no other object its turn.
    fn keys_of(&self, object: &Held<T>) -> Vec<ObjectKey> {
        let call = || match self.predicate.passes(|| Change::Added(object.meta())) {
            true => (self.map)(object),
            false => Vec::new(),
        };
        catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
            tracing::error!(key = %object.key(), "a filter or a mapping panicked; the object is left out");
            Vec::new()
        })
    }
}
