//! What a user hands to an informer, and gets back for it.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use setpoint_env::Task;
use setpoint_env::watch;

use crate::{Deleted, Held, Object};

/// Told about every change of the cache, one call at a time, in a task of its own.
///
/// - Changes of one object come in order, and after the cache has them.
/// - A handler that falls behind is told less: changes of an object fold, and `old` is always the last state
///   that *this* handler was told.
/// - A panic is caught, counted and logged; the next change is told as if nothing had happened.
///
/// Calls are synchronous and should be short: most handlers add a key to a work queue. One that can take no
/// more for now says so with [`EventHandler::poll_ready`].
#[doc(alias = "ResourceEventHandler")]
pub trait EventHandler<T>: Send + Sync + 'static {
    /// An object came into being, or was there already: `is_initial` says that it is part of the first list
    /// (or of the cache, for a handler that came late).
    fn on_add(&self, object: &Held<T>, is_initial: bool) {
        let _ = (object, is_initial);
    }

    /// An object changed. On a resync `old` and `new` are the same ([`is_resync`]).
    fn on_update(&self, old: &Held<T>, new: &Held<T>) {
        let _ = (old, new);
    }

    /// An object is gone.
    fn on_delete(&self, deleted: &Deleted<T>) {
        let _ = deleted;
    }

    /// An object came and went before the handler was told of it, since it was behind; nothing else is told of that
    /// object. Called by whoever applies changes to the cache: it must be quick, and must not call the informer.
    fn on_missed(&self, deleted: &Deleted<T>) {
        let _ = deleted;
    }

    /// Whether the handler can take the next call. Until it is ready, changes fold.
    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        let _ = context;
        Poll::Ready(())
    }
}

/// Whether an update tells nothing new: a resync, which repeats the cached state.
pub fn is_resync<T: Object>(old: &Held<T>, new: &Held<T>) -> bool {
    old.is_same_version(new)
}

type AddFn<T> = Box<dyn Fn(&Held<T>, bool) + Send + Sync>;
type UpdateFn<T> = Box<dyn Fn(&Held<T>, &Held<T>) + Send + Sync>;
type DeleteFn<T> = Box<dyn Fn(&Deleted<T>) + Send + Sync>;

/// A handler made of closures; those that are not given do nothing.
#[doc(alias = "ResourceEventHandlerFuncs")]
#[must_use]
pub struct HandlerFns<T> {
    add: Option<AddFn<T>>,
    update: Option<UpdateFn<T>>,
    delete: Option<DeleteFn<T>>,
}

impl<T> Default for HandlerFns<T> {
    fn default() -> HandlerFns<T> {
        HandlerFns { add: None, update: None, delete: None }
    }
}

impl<T> HandlerFns<T> {
    /// A handler that does nothing.
    pub fn new() -> HandlerFns<T> {
        HandlerFns::default()
    }

    /// Sets [`EventHandler::on_add`].
    pub fn on_add(mut self, call: impl Fn(&Held<T>, bool) + Send + Sync + 'static) -> HandlerFns<T> {
        self.add = Some(Box::new(call));
        self
    }

    /// Sets [`EventHandler::on_update`].
    pub fn on_update(mut self, call: impl Fn(&Held<T>, &Held<T>) + Send + Sync + 'static) -> HandlerFns<T> {
        self.update = Some(Box::new(call));
        self
    }

    /// Sets [`EventHandler::on_delete`].
    pub fn on_delete(mut self, call: impl Fn(&Deleted<T>) + Send + Sync + 'static) -> HandlerFns<T> {
        self.delete = Some(Box::new(call));
        self
    }
}

impl<T: Object> EventHandler<T> for HandlerFns<T> {
    fn on_add(&self, object: &Held<T>, is_initial: bool) {
        if let Some(call) = &self.add {
            call(object, is_initial);
        }
    }

    fn on_update(&self, old: &Held<T>, new: &Held<T>) {
        if let Some(call) = &self.update {
            call(old, new);
        }
    }

    fn on_delete(&self, deleted: &Deleted<T>) {
        if let Some(call) = &self.delete {
            call(deleted);
        }
    }
}

/// How a handler is served.
#[derive(Clone, Debug, Default)]
pub struct HandlerOptions {
    /// Tell every cached object again after this time, as an update to itself. `None`: the informer's own
    /// setting; zero: never. A resync asks the cache, not the server. A handler that was not ready for several
    /// periods is told once.
    pub resync: Option<Duration>,
    /// The handler's name in metrics and logs; a number if there is none.
    pub name: Option<String>,
}

/// A handler's place at an informer. The handler goes with it: keep it as long as the handler is wanted, or
/// [detach](Registration::detach) it.
#[derive(Debug)]
#[doc(alias = "ResourceEventHandlerRegistration")]
#[must_use = "dropping a Registration removes its handler"]
pub struct Registration {
    id: u64,
    synced: watch::Receiver<bool>,
    /// `None` if the handler stays without it.
    owner: Option<Weak<dyn Owner>>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        drop(self.unregister());
    }
}

/// The informer, whatever the type of its objects.
pub(super) trait Owner: Send + Sync + std::fmt::Debug {
    fn backlog(&self, id: u64) -> usize;
    fn unregister(&self, id: u64) -> Option<Task<()>>;
}

impl Registration {
    pub(super) fn new(id: u64, synced: watch::Receiver<bool>, owner: Weak<dyn Owner>) -> Registration {
        Registration { id, synced, owner: Some(owner) }
    }

    fn owner(&self) -> Option<Arc<dyn Owner>> {
        self.owner.as_ref()?.upgrade()
    }

    fn unregister(&self) -> Option<Task<()>> {
        self.owner()?.unregister(self.id)
    }

    /// Whether the handler was told the whole first list. (That the *cache* has synced is another fact: see
    /// [`SharedInformer::has_synced`](crate::SharedInformer::has_synced).)
    pub fn has_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Whether the handler was told the whole first list, now and later.
    pub(crate) fn synced(&self) -> watch::Receiver<bool> {
        self.synced.clone()
    }

    /// Waits until [`Registration::has_synced`]. False if the handler was removed before.
    pub async fn wait_for_sync(&self) -> bool {
        self.synced.clone().wait_for(|synced| *synced).await.is_ok()
    }

    /// How many notices wait for the handler. However slow it is, there are never more than objects in the
    /// cache and objects that it was told of, together. (The first list, or what was cached when the handler
    /// came, is not counted: see [`Registration::has_synced`].)
    pub fn backlog(&self) -> usize {
        self.owner().map_or(0, |owner| owner.backlog(self.id))
    }

    /// Takes the handler away. When this returns, no call is under way and none will come. (When a registration
    /// is dropped, a call may still be under way.)
    pub async fn remove(self) {
        if let Some(task) = self.unregister() {
            task.stop().await;
        }
    }

    /// Leaves the handler where it is, for as long as the informer lives.
    pub fn detach(mut self) {
        self.owner = None;
    }
}
