//! Stage 6: reads from the WorkQueue, calls the reconciler, which writes to the API server.

mod action;
mod caches;
mod context;
mod detector;
mod differences;
mod enqueue;
mod intake;
mod listers;
mod live;
mod metrics;
mod numbers;
mod prepared;
mod reconciler;
mod runtime;
mod sources;
mod start;
mod testing;
mod watches;
mod worker;
mod writes;

use std::any::Any;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::Resource;
use setpoint_env::watch;

pub use self::action::{Action, ReconcileError};
pub use self::context::{Context, StateError};
use self::enqueue::MapFn;
pub use self::listers::ListerError;
pub(crate) use self::prepared::{Prepared, Shift};
use self::reconciler::AnyReconciler;
pub use self::reconciler::{Key, Reconciler};
pub use self::runtime::Runtime;
use self::sources::{Declared, Sources};
pub use self::testing::{Request, TestContext};
pub use self::watches::{WatchError, Watches};
use self::worker::TimeLimit;
use crate::watch::{IntoWatch, Watch, WatchId, Watchable};
use crate::workqueue::{RateLimiter, WorkQueueBuilder};
use crate::{
    CacheSyncError, Held, IndexError, Object, ObjectKey, Permissions, ScopedResource, Verb, WorkQueue,
};

/// Reconciles the objects of one kind.
///
/// Name what to [watch](Watch); the controller finds out which object each change concerns, and calls the [`Reconciler`]
/// with its key, one call at a time for each key. Where a kind is named, `..` means all its objects; a [`Watch`] says
/// which ones, and which of their changes matter. The order of calls has no meaning.
///
/// ```
/// use setpoint::k8s_openapi::api::apps::v1::Deployment;
/// use setpoint::k8s_openapi::api::core::v1::{ConfigMap, Service};
/// use setpoint::{Action, Context, Controller, ObjectKey, ReconcileError, Watch};
///
/// # async fn reconcile(_: ObjectKey, _: Context) -> Result<Action, ReconcileError> { Ok(Action::done()) }
/// # let _ =
/// Controller::of::<Service>(.., "web", reconcile)
///     .owns(Watch::<Deployment>::new().labels("app=web"))
///     .reads::<ConfigMap>(..)
///     .workers(4)
/// # ;
/// ```
///
/// # Keys
/// The key of an object is an [`ObjectKey`], and a `Controller` without further ado is one of objects. For work that is not
/// one object (a tenant, a zone of a cloud, a shard) [`Controller::over`] takes any type as its key.
///
/// # Reading your own writes
/// A reconcile reads from caches, which are always a little behind. Writes through [`Context::client`] are tracked,
/// and the key is held until the caches of the written kinds observe them. So a reconciler that looks whether its
/// child exists, and creates it if not, makes one child, however slow the watch is. The wait is bounded
/// ([`Controller::catch_up_limit`]) and measured. An object that the label selector of a cache leaves out is not waited
/// for; nor is one that a cache with a field selector does not have yet. When the answer to a write is lost, the server is asked what it has, and the caches must get there.
///
/// A term of leadership begins with the same promise, whoever wrote: only when each cache is at least as new as what
/// the server had when the term began.
///
/// # The end
/// At shutdown the reconciles that run are finished. What is queued or held is left: whoever starts next lists it.
#[must_use = "a controller does nothing until it runs"]
pub struct Controller<Q = ObjectKey> {
    name: String,
    reconciler: Box<dyn AnyReconciler<Q>>,
    /// What a key is called in logs and facts.
    called: fn(&Q) -> ObjectKey,
    /// The kind whose objects are reconciled, if it is one.
    primary: Option<ScopedResource>,
    /// Its watch, and which indices that has.
    primary_index: Option<(WatchId, Box<HasIndex>)>,
    /// What it was to refer to things by, and has not.
    without_index: Option<IndexError>,
    owns_something: bool,
    sources: Vec<Declared<Q>>,
    triggers: Vec<BoxStream<'static, Q>>,
    state: Option<Arc<dyn Any + Send + Sync>>,
    workers: usize,
    resync: Option<Duration>,
    debounce: Duration,
    time_limit: Option<TimeLimit<Q>>,
    sync_limit: Duration,
    catch_up_limit: Duration,
    queue: WorkQueueBuilder<Q>,
    needs: Permissions,
    needs_lease: bool,
    running: watch::Sender<Weak<Sources<Q>>>,
}

type HasIndex = dyn Fn(&str) -> bool + Send + Sync;

/// Why a controller ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// The kinds that it watches could not be listed in time. The message names them, and why.
    #[error("the controller {controller:?} cannot start")]
    CacheSync {
        /// Its name.
        controller: String,
        /// Which caches, and what the server said.
        source: CacheSyncError,
    },
    /// An index of a watch has the name of another one of the same cache, or [`Controller::refers_to`] names one that the
    /// watch of the controller's kind does not have.
    #[error("the controller {controller:?} cannot start")]
    Index {
        /// Its name.
        controller: String,
        /// Which index.
        source: IndexError,
    },
    /// It [owns](Controller::owns) something, but reconciles no kind that could own it.
    #[error(
        "the controller {controller:?} reconciles keys, not objects of a kind, so it cannot own anything; use `watches`"
    )]
    NoKind {
        /// Its name.
        controller: String,
    },
}

impl Controller {
    /// A controller that calls `reconciler` for the objects of a kind. The name is for logs, metrics and events.
    ///
    /// `Controller::of::<Service>(.., name, reconcile)` is one of all Services;
    /// `Controller::of(Watch::<Service>::new().labels("app=web"), name, reconcile)` of some.
    #[doc(alias = "For")]
    #[doc(alias = "new")]
    pub fn of<K: Watchable>(
        watch: impl IntoWatch<K>,
        name: impl Into<String>,
        reconciler: impl Reconciler,
    ) -> Controller {
        let watch = watch.into_watch();
        let mut controller = Controller::with(name.into(), Box::new(reconciler), ObjectKey::clone);
        controller.primary = Some(watch.kind().clone());
        let indexed = watch.clone();
        controller.primary_index = Some((watch.id(), Box::new(move |name: &str| indexed.has_index(name))));
        controller.source(watch, Some(Arc::new(|object: &Held<K>| vec![object.key().clone()])))
    }

    /// A controller of keys of any type, for work that is not one object: what is reconciled comes from
    /// [`Controller::watches`], which names the keys that an object concerns, and [`Controller::triggered_by`].
    ///
    /// ```
    /// use setpoint::k8s_openapi::api::core::v1::Namespace;
    /// use setpoint::{Action, Context, Controller, ReconcileError};
    ///
    /// /// All namespaces of one customer.
    /// #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    /// struct Customer(String);
    ///
    /// async fn reconcile(customer: Customer, cx: Context) -> Result<Action, ReconcileError> {
    ///     println!("{customer:?} is one of {}", cx.lister::<Namespace>()?.len());
    ///     Ok(Action::done())
    /// }
    ///
    /// # let _ =
    /// Controller::over::<Customer>("customers", reconcile).watches::<Namespace>(.., |namespace| {
    ///     let labels = namespace.metadata.labels.iter().flatten();
    ///     labels.filter(|(key, _)| *key == "customer").map(|(_, name)| Customer(name.clone())).collect()
    /// })
    /// # ;
    /// ```
    pub fn over<Q: Key>(name: impl Into<String>, reconciler: impl Reconciler<Q>) -> Controller<Q> {
        Controller::with(name.into(), Box::new(reconciler), |key: &Q| {
            ObjectKey::from(format!("{key:?}").as_str())
        })
    }

    /// Reconciles the owner of an object when that changes. The owner is the one that the object's controller owner
    /// reference names, if it is of the kind that is reconciled.
    #[doc(alias = "Owns")]
    pub fn owns<C: Watchable>(self, watch: impl IntoWatch<C>) -> Controller {
        let map = owner_map(self.primary.clone().map(Arc::new));
        let mut controller = self.source(watch.into_watch(), Some(map));
        controller.owns_something = true;
        controller
    }

    /// Reconciles the objects that name another one when that changes: those that have its key (`namespace/name`, or `name`) in
    /// an index of the watch of the controller's kind.
    ///
    /// ```
    /// use setpoint::k8s_openapi::api::core::v1::{ConfigMap, Pod};
    /// use setpoint::{Action, Context, Controller, ObjectKey, ReconcileError, Watch};
    ///
    /// # async fn reconcile(_: ObjectKey, _: Context) -> Result<Action, ReconcileError> { Ok(Action::done()) }
    /// /// The ConfigMaps that a Pod mounts.
    /// fn mounted(pod: &Pod) -> Vec<String> {
    ///     let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    ///     let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    ///     let maps = volumes.filter_map(|volume| volume.config_map.as_ref());
    ///     maps.map(|map| ObjectKey::namespaced(namespace, &map.name).to_string()).collect()
    /// }
    ///
    /// # let _ =
    /// Controller::of(Watch::<Pod>::new().index("config map", mounted), "pods", reconcile)
    ///     .refers_to::<ConfigMap>(.., "config map")
    /// # ;
    /// ```
    #[doc(alias = "EnqueueRequestsFromMapFunc")]
    #[doc(alias = "FieldIndexer")]
    pub fn refers_to<C: Watchable>(
        mut self,
        watch: impl IntoWatch<C>,
        index: impl Into<String>,
    ) -> Controller {
        let (watch, index) = (watch.into_watch(), index.into());
        let Some((primary, has_index)) = &self.primary_index else {
            self.owns_something = true; // of no kind: it does not start
            return self;
        };
        if !has_index(&index) {
            self.without_index = Some(IndexError::Unknown(index));
            return self;
        }
        let referred = Declared::of_referred(watch.clone(), primary.clone(), index);
        self.declare(&watch, referred)
    }
}

impl<Q: Key> Controller<Q> {
    fn with(
        name: String,
        reconciler: Box<dyn AnyReconciler<Q>>,
        called: fn(&Q) -> ObjectKey,
    ) -> Controller<Q> {
        Controller {
            name,
            reconciler,
            called,
            primary: None,
            primary_index: None,
            without_index: None,
            owns_something: false,
            sources: Vec::new(),
            triggers: Vec::new(),
            state: None,
            workers: 1,
            resync: None,
            debounce: Duration::ZERO,
            time_limit: None,
            sync_limit: Duration::from_secs(120),
            catch_up_limit: Duration::from_secs(30),
            queue: WorkQueue::builder(),
            needs: Permissions::default(),
            needs_lease: true,
            running: watch::Sender::new(Weak::new()),
        }
    }

    /// Reconciles the keys that `map` names when an object changes. On an update both states are mapped.
    ///
    /// `map` sees the object alone; [`Controller::refers_to`] finds those that name it. What else there is to know is in the
    /// caches that controllers share:
    ///
    /// ```
    /// use setpoint::k8s_openapi::api::core::v1::{Node, Service};
    /// use setpoint::{Action, Context, Controller, Manager, ObjectKey, ReconcileError, Watch};
    ///
    /// # async fn reconcile(_: ObjectKey, _: Context) -> Result<Action, ReconcileError> { Ok(Action::done()) }
    /// /// A Node that comes or goes concerns all Services.
    /// fn controller(manager: &Manager) -> Controller {
    ///     let nodes = Watch::<Node>::new().filter_updates(|_, _| false);
    ///     let services = manager.informers().informer_of(&Watch::<Service>::new()).lister();
    ///     Controller::of::<Service>(.., "web", reconcile).watches(nodes, move |_| services.keys())
    /// }
    /// ```
    #[doc(alias = "Watches")]
    #[doc(alias = "EnqueueRequestsFromMapFunc")]
    pub fn watches<C: Watchable>(
        self,
        watch: impl IntoWatch<C>,
        map: impl Fn(&C) -> Vec<Q> + Send + Sync + 'static,
    ) -> Controller<Q> {
        self.source(watch.into_watch(), Some(Arc::new(move |object: &Held<C>| map(object))))
    }

    /// Caches objects for [`Context::lister`], without a reconcile when they change.
    pub fn reads<C: Watchable>(self, watch: impl IntoWatch<C>) -> Controller<Q> {
        self.source(watch.into_watch(), None)
    }

    fn source<C: Watchable>(self, watch: Watch<C>, map: Option<MapFn<C, Q>>) -> Controller<Q> {
        let declared = Declared::new(watch.clone(), map);
        self.declare(&watch, declared)
    }

    fn declare<C: Watchable>(mut self, watch: &Watch<C>, declared: Declared<Q>) -> Controller<Q> {
        let resource = &watch.kind().api;
        self.needs.add(&resource.group, &resource.plural, &[Verb::List, Verb::Watch]);
        self.sources.push(declared);
        self
    }

    /// The watches of the controller, to add to and to take from while it runs.
    pub fn watches_handle(&self) -> Watches<Q> {
        Watches::new(self.running.subscribe(), self.primary.clone())
    }

    /// Declares what the reconciler does with objects of `C`, for [`Controller::permissions`]. [`crate::ensure`]
    /// creates and patches; finalizers are patched in and out. For a kind that is known at run time only there is
    /// [`Controller::writes_of`].
    pub fn writes<C: Resource<DynamicType = ()>>(mut self, verbs: &[Verb]) -> Controller<Q> {
        self.needs.allow::<C>(verbs);
        self
    }

    /// Declares that the reconciler writes the status of `C` by [`crate::patch_status`].
    pub fn writes_status<C: Resource<DynamicType = ()>>(mut self) -> Controller<Q> {
        self.needs.allow_subresource::<C>("status", &[Verb::Patch]);
        self
    }

    /// The same as [`Controller::writes`] for a kind that is known at run time only.
    pub fn writes_of(mut self, kind: &ScopedResource, verbs: &[Verb]) -> Controller<Q> {
        self.needs.add(&kind.api.group, &kind.api.plural, verbs);
        self
    }

    /// The same as [`Controller::writes_status`] for a kind that is known at run time only.
    pub fn writes_status_of(mut self, kind: &ScopedResource) -> Controller<Q> {
        self.needs.add(&kind.api.group, &format!("{}/status", kind.api.plural), &[Verb::Patch]);
        self
    }

    /// Declares that the reconciler records Events ([`Context::recorder`]).
    pub fn records_events(mut self) -> Controller<Q> {
        self.needs.add("events.k8s.io", "events", &[Verb::Create, Verb::Patch]);
        self
    }

    /// What an API server has to allow this controller: to list and watch what it watches, and what was declared
    /// with [`Controller::writes`] and its like.
    pub fn permissions(&self) -> &Permissions {
        &self.needs
    }

    /// Reconciles the keys that a stream gives: a channel, a timer, events of another system. While the controller does
    /// not work, since its caches are not synced or another replica leads, the stream is not polled.
    pub fn triggered_by(mut self, keys: impl futures::Stream<Item = Q> + Send + 'static) -> Controller<Q> {
        self.triggers.push(keys.boxed());
        self
    }

    /// Reconciles every object again after this time, behind all that is news.
    pub fn resync(mut self, period: Duration) -> Controller<Q> {
        self.resync = Some(period);
        self
    }

    /// Lets a key wait this long after the first change that concerns it, so that many changes in a row are one reconcile.
    /// Retries and [`Action::requeue_after`] have their own times.
    pub fn debounce(mut self, time: Duration) -> Controller<Q> {
        self.debounce = time;
        self
    }

    /// How many keys are reconciled at the same time. One unless set.
    pub fn workers(mut self, workers: usize) -> Controller<Q> {
        self.workers = workers.max(1);
        self
    }

    /// What every reconcile gets from [`Context::state`].
    pub fn state(mut self, state: impl Any + Send + Sync) -> Controller<Q> {
        self.state = Some(Arc::new(state));
        self
    }

    /// How long one reconcile may take. Then it is dropped at its next `await`, and counts as failed.
    pub fn time_limit(mut self, limit: Duration) -> Controller<Q> {
        self.time_limit = Some(Arc::new(move |_| Some(limit)));
        self
    }

    /// The same with a limit that depends on the key; none for those that may take as long as they want.
    /// `controller_runtime_reconcile_timeouts_total` counts those that took too long.
    pub fn time_limit_of(
        mut self,
        limit: impl Fn(&Q) -> Option<Duration> + Send + Sync + 'static,
    ) -> Controller<Q> {
        self.time_limit = Some(Arc::new(limit));
        self
    }

    /// How long keys wait that failed. The default is that of [`WorkQueue`].
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<Q> + 'static) -> Controller<Q> {
        self.queue = self.queue.rate_limiter(limiter);
        self
    }

    /// How long the first lists may take: two minutes unless set.
    pub fn sync_limit(mut self, limit: Duration) -> Controller<Q> {
        self.sync_limit = limit;
        self
    }

    /// How long a key is held at most until the caches observe what it wrote: 30 seconds unless set. Then it is
    /// reconciled all the same, with a warning, and counted in `setpoint_controller_catch_up_late_total`.
    pub fn catch_up_limit(mut self, limit: Duration) -> Controller<Q> {
        self.catch_up_limit = limit;
        self
    }

    /// Works on every replica, whoever leads: for what each of them has to do, such as filling a cache of its own. What
    /// it writes is not fenced.
    pub fn without_leader_election(mut self) -> Controller<Q> {
        self.needs_lease = false;
        self
    }

    pub(crate) fn needs_lease(&self) -> bool {
        self.needs_lease
    }

    /// The controller's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// From an object to the key of the object that controls it, if that is of a kind.
fn owner_map<C: Object>(kind: Option<Arc<ScopedResource>>) -> MapFn<C, ObjectKey> {
    Arc::new(move |object| kind.as_deref().and_then(|kind| owner_key(kind, object)).into_iter().collect())
}

fn owner_key<C: Object>(kind: &ScopedResource, object: &Held<C>) -> Option<ObjectKey> {
    let meta = object.meta();
    let mut owners = meta.owner_references.iter().flatten();
    let owner = owners.find(|owner| {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        owner.controller == Some(true) && owner.kind == kind.api.kind && group == kind.api.group
    })?;
    Some(match meta.namespace.as_deref().filter(|_| kind.is_namespaced) {
        Some(namespace) => ObjectKey::namespaced(namespace, &owner.name),
        None => ObjectKey::cluster(&owner.name),
    })
}
