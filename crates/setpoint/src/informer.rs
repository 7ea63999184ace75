//! Stage 4: reads from the DeltaFifo, feeds the Indexer and every handler.
//!
//! One list and watch of a kind a process; one cache; many who are told about it.

mod apply;
mod builder;
mod core;
mod fold;
mod handler;
mod listener;
mod look;
mod observer;
mod supervisor;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use setpoint_env::Task;
use setpoint_env::watch;
use tokio_util::sync::CancellationToken;

pub(crate) use self::builder::Identity;
pub use self::builder::InformerBuilder;
use self::core::{Core, Progress};
pub use self::handler::{EventHandler, HandlerFns, HandlerOptions, Registration, is_resync};
pub(crate) use self::observer::{Applied, Observer};
use self::supervisor::Supervisor;
use crate::facts::CacheName;
use crate::indexer::IndexFn;
use crate::reflector::{Reflector, Target};
use crate::watch::takes;
use crate::{DeltaFifo, IndexError, Lister, Object, ResourceVersion, Scope};

/// A cache of one kind that follows the server, and tells handlers what changes.
///
/// Clones are the same informer. It works from [`SharedInformer::start`] until
/// [`SharedInformer::shutdown`], or until the last clone is dropped: so let a handler capture a
/// [`Lister`], not the informer itself.
///
/// Where it differs from client-go's:
/// - The cache moves from one resourceVersion to the next in whole batches, and says where it is
///   ([`SharedInformer::watermark`]).
/// - A handler that falls behind costs at most two notices an object ([`EventHandler`]).
/// - An object that was deleted and created again between two lists is told as a deletion and an add, not as
///   an update.
/// - A resync tells what is cached again, as client-go's does. (Some older texts say that it applies the
///   last list again; that would undo newer changes.)
#[doc(alias = "SharedIndexInformer")]
pub struct SharedInformer<T: Object> {
    inner: Arc<Inner<T>>,
}

impl<T: Object> Clone for SharedInformer<T> {
    fn clone(&self) -> SharedInformer<T> {
        SharedInformer { inner: self.inner.clone() }
    }
}

struct Inner<T: Object> {
    core: Arc<Core<T>>,
    scopes: Vec<ScopeParts<T>>,
    /// One a scope, once it is started.
    supervisors: Mutex<Vec<Task<()>>>,
    stop: CancellationToken,
    selectors: Selectors,
    keeps_managed_fields: bool,
}

/// Which objects are asked for.
struct Selectors {
    labels: Option<String>,
    has_fields: bool,
}

impl Selectors {
    /// What fields there are depends on the kind: whether an object has those, nobody knows here.
    fn may_leave_out(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        let is_taken = |selector: &String| labels.is_some_and(|labels| takes(selector, labels));
        self.has_fields || !self.labels.as_ref().is_none_or(is_taken)
    }
}

/// The stages before the cache, for one scope.
struct ScopeParts<T> {
    scope: Scope,
    target: Target,
    /// Waits here until the informer starts.
    reflector: Mutex<Option<Reflector<T>>>,
    trouble: Arc<Mutex<Option<String>>>,
    fifo: Arc<DeltaFifo<T>>,
}

impl<T: Object> Drop for Inner<T> {
    fn drop(&mut self) {
        drop(self.core.take_all());
    }
}

impl<T: Object> SharedInformer<T> {
    /// What is listed and watched, like `pods` or `deployments.apps`.
    pub fn name(&self) -> &str {
        &self.inner.core.name
    }

    /// Starts to list and watch. A second call does nothing.
    pub fn start(&self) {
        let mut supervisors = self.inner.supervisors.lock();
        for parts in &self.inner.scopes {
            if let Some(reflector) = parts.reflector.lock().take() {
                let (core, stop) = (self.inner.core.clone(), self.inner.stop.clone());
                let supervisor = Supervisor { core, reflector: Arc::new(reflector), stop };
                supervisors.push(self.inner.core.env.spawn(supervisor.run()));
            }
        }
    }

    /// Whether it has begun to list and watch.
    pub(crate) fn has_started(&self) -> bool {
        !self.inner.supervisors.lock().is_empty()
    }

    /// Stops for good: when this returns, no task of the informer runs and no handler is called. The cache
    /// stays readable.
    pub async fn shutdown(&self) {
        for parts in &self.inner.scopes {
            parts.reflector.lock().take();
        }
        self.inner.stop.cancel();
        let supervisors = std::mem::take(&mut *self.inner.supervisors.lock());
        // They stop what they have started, and end.
        let _ended = join_all(supervisors).await;
        for task in self.inner.core.take_all() {
            task.stop().await;
        }
    }

    /// Whether the first list is in the cache. (Whether a handler was told all of it is another fact:
    /// [`Registration::has_synced`].) False again from a panic ([`SharedInformer::is_healthy`]) until the next
    /// list is in the cache.
    pub fn has_synced(&self) -> bool {
        self.inner.core.has_synced()
    }

    /// Whether its tasks run. If one panics, by a bug here or in a [`Store`](crate::Store) of yours, the cache
    /// stays as it was, the informer begins again with a list, later and later if it panics again, and this is
    /// false until that list is in the cache. It is counted in `informer_restarts_total`.
    pub fn is_healthy(&self) -> bool {
        !self.inner.core.is_restarting()
    }

    /// Waits until [`SharedInformer::has_synced`].
    pub async fn wait_for_sync(&self) {
        self.wait_until(|| self.has_synced()).await;
    }

    /// Adds a handler. It is first told what is cached, as adds, and then every change; nothing around that
    /// moment is lost or told twice. It goes when its registration is dropped; [`Registration::detach`] lets it
    /// stay as long as the informer lives.
    pub fn add_handler(&self, handler: impl EventHandler<T>) -> Registration {
        self.add_handler_with(handler, HandlerOptions::default())
    }

    /// Adds a handler with options of its own.
    pub fn add_handler_with(&self, handler: impl EventHandler<T>, options: HandlerOptions) -> Registration {
        self.inner.core.add_handler(Arc::new(handler), options)
    }

    /// Calls `on_snapshot` with the whole state when the first list is cached, and again after changes:
    /// `debounce` after the first of them, so that many changes are one call.
    #[doc(alias = "UndeltaStore")]
    pub fn add_snapshot_handler(
        &self,
        debounce: Duration,
        on_snapshot: impl Fn(Vec<Arc<T>>) + Send + Sync + 'static,
    ) -> Registration {
        let (synced, receiver) = watch::channel(false);
        let core = &self.inner.core;
        let (progress, indexer) = (core.progress(), core.indexer.clone());
        let weak = Arc::downgrade(core);
        core.add_task(receiver, async move {
            let mut progress: watch::Receiver<Progress> = progress;
            let mut told = None;
            loop {
                let changes = progress.borrow_and_update().changes;
                let is_synced = weak.upgrade().is_some_and(|core| core.has_synced());
                if is_synced && told != Some(changes) {
                    if told.is_some() {
                        tokio::time::sleep(debounce).await;
                    }
                    told = Some(progress.borrow_and_update().changes);
                    let call = std::panic::AssertUnwindSafe(|| on_snapshot(indexer.list()));
                    if std::panic::catch_unwind(call).is_err() {
                        tracing::error!("a snapshot handler panicked; it still gets the next snapshot");
                    }
                    synced.send_replace(true);
                }
                if progress.changed().await.is_err() {
                    return;
                }
            }
        })
    }

    /// Adds an index for [`Lister::by_index`]. What is cached already is indexed now.
    pub fn add_index(
        &self,
        name: impl Into<String>,
        function: impl Fn(&T) -> Vec<String> + Send + Sync + 'static,
    ) -> Result<(), IndexError> {
        self.inner.core.indexer.add_index(name, function)
    }

    /// The same, but an index that is there already with this function is fine.
    pub(crate) fn ensure_index(&self, name: &str, function: IndexFn<T>) -> Result<(), IndexError> {
        self.inner.core.indexer.ensure_index(name, function)
    }

    /// The read side of the cache.
    pub fn lister(&self) -> Lister<T> {
        Lister::new(self.inner.core.indexer.clone())
    }

    /// The resourceVersion that the cache is at in a scope; `None` before its first list.
    pub fn watermark(&self, scope: &Scope) -> Option<ResourceVersion> {
        self.inner.core.indexer.watermark(scope)
    }

    /// Waits until the cache has got to `version` in a scope. Returns at once if the two versions cannot be
    /// compared; waits for ever if the informer does not watch that scope or was shut down.
    pub async fn wait_for_version(&self, scope: &Scope, version: &ResourceVersion) {
        let reached = || self.watermark(scope).is_some_and(|watermark| !watermark.is_before(version));
        self.wait_until(reached).await;
    }

    /// The scopes that this informer watches.
    pub fn scopes(&self) -> impl Iterator<Item = &Scope> {
        self.inner.scopes.iter().map(|parts| &parts.scope)
    }

    /// What its lists and watches are called in facts.
    pub(crate) fn cache_names(&self) -> impl Iterator<Item = CacheName> {
        let core = &self.inner.core;
        self.scopes().map(move |scope| CacheName::new(core.id, &core.name, scope))
    }

    /// What is listed and watched, scope by scope.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &Target> {
        self.inner.scopes.iter().map(|parts| &parts.target)
    }

    /// Lets `observer` know at once how far the cache has got, as long as it lives.
    pub(crate) fn observe(&self, observer: &Arc<impl Observer<T> + 'static>) {
        let scopes: Vec<Scope> = self.scopes().cloned().collect();
        self.inner.core.add_observer(observer, &scopes);
    }

    /// Whether selectors may leave an object of these labels out of the cache.
    pub(crate) fn may_leave_out(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        self.inner.selectors.may_leave_out(labels)
    }

    /// Whether the cached objects have their `managedFields`.
    pub(crate) fn keeps_managed_fields(&self) -> bool {
        self.inner.keeps_managed_fields
    }

    /// The last failure of each reflector that has not worked since.
    pub fn trouble(&self) -> Vec<String> {
        self.inner.scopes.iter().filter_map(|parts| parts.trouble.lock().clone()).collect()
    }

    pub(crate) async fn wait_until(&self, reached: impl Fn() -> bool) {
        let mut progress = self.inner.core.progress();
        while !reached() {
            // The sender lives as long as this informer.
            if progress.changed().await.is_err() {
                return;
            }
        }
    }
}

impl<T: Object> fmt::Debug for SharedInformer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInformer").field("name", &self.name()).finish_non_exhaustive()
    }
}
