//! Stage 6: reads from the WorkQueue, calls the reconciler, which writes to the API server.

mod action;
mod caches;
mod context;
mod detector;
mod differences;
mod intake;
mod live;
mod metrics;
mod predicate;
mod prepared;
mod reconciler;
mod source;
mod worker;
mod writes;

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use futures::stream::BoxStream;
use k8s_openapi::NamespaceResourceScope;
use kube::core::PartialObjectMeta;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use setpoint_env::Env;
use tokio_util::sync::CancellationToken;

pub use self::action::{Action, ReconcileError};
pub use self::context::Context;
use self::context::Shared;
use self::detector::Detector;
use self::intake::Intake;
use self::metrics::ControllerMetrics;
pub use self::predicate::{Change, Predicate};
pub(crate) use self::prepared::{Prepared, Shift};
use self::reconciler::AnyReconciler;
pub use self::reconciler::Reconciler;
use self::source::{Attached, MapFn, Queue, Source};
use self::worker::Work;
use crate::ensure::memory::Memory;
use crate::facts::{ControllerProbe, Facts, Name};
use crate::mutants::{Promise, is_kept};
use crate::workqueue::{RateLimiter, SourceNames, WorkQueueBuilder};
use crate::{
    CacheSyncError, Held, Metrics, Object, ObjectKey, Permissions, Recorder, SharedInformerFactory, Verb,
    WorkQueue,
};

/// Reconciles the objects of one kind.
///
/// Name the kinds whose changes matter; the controller watches them, finds out which object each change
/// concerns, and calls the [`Reconciler`] with its key, one call at a time for each key.
///
/// # Reading your own writes
/// A reconcile reads from caches, which are always a little behind. Writes through [`Context::client`] are tracked,
/// and the key is held until the caches of the written kinds observe them. So a reconciler that looks whether its
/// child exists, and creates it if not, makes one child, however slow the watch is. The wait is bounded
/// ([`Controller::catch_up_limit`]) and measured. An object that the cache's selectors may leave out is not waited
/// for. When the answer to a write is lost, the server is asked what it has, and the caches must get there.
///
/// A term of leadership begins with the same promise, whoever wrote: only when each cache is at least as new as what
/// the server had when the term began.
///
/// # The end
/// At shutdown the reconciles that run are finished. What is queued or held is left: whoever starts next lists it.
#[must_use = "a controller does nothing until it runs"]
pub struct Controller<K> {
    name: String,
    reconciler: Box<dyn AnyReconciler>,
    sources: Vec<Source>,
    triggers: Vec<BoxStream<'static, ObjectKey>>,
    state: Option<Arc<dyn Any + Send + Sync>>,
    workers: usize,
    resync: Option<Duration>,
    time_limit: Option<Duration>,
    sync_limit: Duration,
    catch_up_limit: Duration,
    queue: WorkQueueBuilder<ObjectKey>,
    needs: Permissions,
    needs_lease: bool,
    kind: std::marker::PhantomData<fn() -> K>,
}

/// A kind that a controller can reconcile or watch: every typed [`kube::Resource`].
pub trait Watchable:
    Resource<DynamicType = (), Scope: 'static> + Serialize + DeserializeOwned + Clone + Send + Sync + 'static
{
}

impl<K> Watchable for K where
    K: Resource<DynamicType = (), Scope: 'static>
        + Serialize
        + DeserializeOwned
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// Where controllers run: a client, shared caches, time, metrics, and the word to stop. Clones are the same.
#[derive(Clone)]
pub struct Runtime {
    pub(crate) client: Client,
    pub(crate) factory: SharedInformerFactory,
    pub(crate) env: Env,
    pub(crate) metrics: Metrics,
    pub(crate) facts: Facts,
    pub(crate) shutdown: CancellationToken,
}

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
}

impl Runtime {
    /// A runtime of its own caches, on the real clock.
    pub fn new(client: Client) -> Runtime {
        Runtime::with(client, Env::system(), Metrics::default())
    }

    /// A runtime with another clock, and metrics of yours.
    pub fn with(client: Client, env: Env, metrics: Metrics) -> Runtime {
        let facts = Facts::new(env.clone());
        let factory = SharedInformerFactory::new(client.clone()).env(env.clone()).metrics(metrics.clone());
        let factory = factory.with_facts(&facts);
        Runtime { client, factory, env, metrics, facts, shutdown: CancellationToken::new() }
    }

    /// The same, where what happens is told through `facts`, which others may share: one listener hears of them all. Say
    /// it before [`Runtime::factory`], whose settings it keeps.
    #[must_use]
    pub fn with_facts(mut self, facts: &Facts) -> Runtime {
        self.facts = facts.clone();
        self.factory = self.factory.with_facts(facts);
        self
    }

    /// The same with caches of these settings: namespaces, resync.
    #[must_use]
    pub fn factory(mut self, set: impl FnOnce(SharedInformerFactory) -> SharedInformerFactory) -> Runtime {
        self.factory = set(self.factory);
        self
    }

    /// The shared caches.
    pub fn informers(&self) -> &SharedInformerFactory {
        &self.factory
    }

    /// Cancel it to stop everything that runs here.
    pub fn shutdown(&self) -> &CancellationToken {
        &self.shutdown
    }

    /// What is measured here.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// What happens here, for those who [subscribe](Facts::subscribe).
    pub fn facts(&self) -> &Facts {
        &self.facts
    }
}

impl<K: Watchable> Controller<K> {
    /// A controller that calls `reconciler` for the objects of `K`. The name is for logs, metrics and events.
    pub fn new(name: impl Into<String>, reconciler: impl Reconciler) -> Controller<K> {
        let mut needs = Permissions::default();
        needs.allow::<K>(&[Verb::List, Verb::Watch]);
        let own_key: MapFn<K> = Arc::new(|object| vec![object.key().clone()]);
        Controller {
            name: name.into(),
            reconciler: Box::new(reconciler),
            sources: vec![Source::new(SharedInformerFactory::informer::<K>, own_key)],
            triggers: Vec::new(),
            state: None,
            workers: 1,
            resync: None,
            time_limit: None,
            sync_limit: Duration::from_secs(120),
            catch_up_limit: Duration::from_secs(30),
            queue: WorkQueue::builder(),
            needs,
            needs_lease: true,
            kind: std::marker::PhantomData,
        }
    }

    /// Reconciles the owner of a `C` when that changes. The owner is the `K` that the object's controller
    /// owner reference names.
    pub fn owns<C: Watchable>(self) -> Controller<K> {
        self.source::<C, C>(
            SharedInformerFactory::informer::<C>,
            Arc::new(|object| owner_key::<K, C>(object)),
        )
    }

    /// The same, but only the metadata of each `C` is asked for and cached.
    pub fn owns_metadata<C: Watchable>(self) -> Controller<K> {
        let map: MapFn<PartialObjectMeta<C>> = Arc::new(|object| owner_key::<K, _>(object));
        self.source::<C, _>(SharedInformerFactory::metadata::<C>, map)
    }

    /// Reconciles the keys that `map` names when a `C` changes. On an update both states are mapped.
    pub fn watches<C: Watchable>(
        self,
        map: impl Fn(&C) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Controller<K> {
        self.source::<C, C>(SharedInformerFactory::informer::<C>, Arc::new(move |object| map(object)))
    }

    /// The same, but only the metadata of each `C` is asked for and cached.
    pub fn watches_metadata<C: Watchable>(
        self,
        map: impl Fn(&PartialObjectMeta<C>) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Controller<K> {
        self.source::<C, _>(SharedInformerFactory::metadata::<C>, Arc::new(move |object| map(object)))
    }

    fn source<C: Watchable, T: Object + Serialize + DeserializeOwned>(
        mut self,
        informer: impl FnOnce(&SharedInformerFactory) -> crate::SharedInformer<T> + Send + 'static,
        map: MapFn<T>,
    ) -> Controller<K> {
        self.sources.push(Source::new(informer, map));
        self.needs.allow::<C>(&[Verb::List, Verb::Watch]);
        self
    }

    /// Declares what the reconciler does with objects of `C`, for [`Controller::permissions`]. [`crate::ensure`]
    /// creates and patches; finalizers are patched in and out.
    pub fn writes<C: Watchable>(mut self, verbs: &[Verb]) -> Controller<K> {
        self.needs.allow::<C>(verbs);
        self
    }

    /// Declares that the reconciler writes the status of `C` by [`crate::patch_status`].
    pub fn writes_status<C: Watchable>(mut self) -> Controller<K> {
        self.needs.allow_subresource::<C>("status", &[Verb::Patch]);
        self
    }

    /// Declares that the reconciler records Events ([`Context::recorder`]).
    pub fn records_events(mut self) -> Controller<K> {
        self.needs.add("events.k8s.io", "events", &[Verb::Create, Verb::Patch]);
        self
    }

    /// What an API server has to allow this controller: to list and watch what it watches, and what was declared
    /// with [`Controller::writes`] and its like.
    pub fn permissions(&self) -> &Permissions {
        &self.needs
    }

    /// Lets only some changes of the kind that was named last (`K` itself at first) cause a reconcile.
    pub fn filter(mut self, predicate: Predicate) -> Controller<K> {
        let last = self.sources.last_mut().expect("the first source is K itself");
        last.predicate = std::mem::take(&mut last.predicate).and(predicate);
        self
    }

    /// Reconciles the keys that a stream gives: a channel, a timer, events of another system. While the controller does
    /// not work, since its caches are not synced or another replica leads, the stream is not polled.
    pub fn triggered_by(
        mut self,
        keys: impl futures::Stream<Item = ObjectKey> + Send + 'static,
    ) -> Controller<K> {
        self.triggers.push(keys.boxed());
        self
    }

    /// Reconciles every object again after this time, behind all that is news.
    pub fn resync(mut self, period: Duration) -> Controller<K> {
        self.resync = Some(period);
        self
    }

    /// How many keys are reconciled at the same time. One unless set.
    pub fn workers(mut self, workers: usize) -> Controller<K> {
        self.workers = workers.max(1);
        self
    }

    /// What every reconcile gets from [`Context::state`].
    pub fn state(mut self, state: impl Any + Send + Sync) -> Controller<K> {
        self.state = Some(Arc::new(state));
        self
    }

    /// How long one reconcile may take. Then it is dropped at its next `await`, and counts as failed.
    pub fn time_limit(mut self, limit: Duration) -> Controller<K> {
        self.time_limit = Some(limit);
        self
    }

    /// How long keys wait that failed. The default is that of [`WorkQueue`].
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<ObjectKey> + 'static) -> Controller<K> {
        self.queue = self.queue.rate_limiter(limiter);
        self
    }

    /// How long the first lists may take: two minutes unless set.
    pub fn sync_limit(mut self, limit: Duration) -> Controller<K> {
        self.sync_limit = limit;
        self
    }

    /// How long a key is held at most until the caches observe what it wrote: 30 seconds unless set. Then it is
    /// reconciled all the same, with a warning, and counted in `setpoint_controller_catch_up_late_total`.
    pub fn catch_up_limit(mut self, limit: Duration) -> Controller<K> {
        self.catch_up_limit = limit;
        self
    }

    /// Works on every replica, whoever leads: for what each of them has to do, such as filling a cache of its own. What
    /// it writes is not fenced.
    pub fn without_leader_election(mut self) -> Controller<K> {
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

    /// Runs until the runtime is shut down: waits for the caches, then works. After the shutdown, the reconciles that
    /// run are finished, and what is queued is left; drop the future to end at once.
    pub async fn run(self, runtime: &Runtime) -> Result<(), ControllerError> {
        if let Some(prepared) = self.prepare(runtime).await? {
            let (client, ending) = (runtime.client.clone(), runtime.shutdown.clone());
            prepared.work(Shift { client, fence: None, ending, is_term: false, grace: None }).await;
        }
        Ok(())
    }

    /// Watches, and waits for the caches. None if the runtime is shut down before.
    pub(crate) async fn prepare(self, runtime: &Runtime) -> Result<Option<Prepared>, ControllerError> {
        let metrics = ControllerMetrics::new(&runtime.metrics, &self.name, self.workers);
        let (name, measured) = (self.name.clone(), metrics.clone());
        let queue = self.queue.on_release(move |released| worker::released(&measured, &name, &released));
        let (queue_name, source_names) = (Name::from(self.name.as_str()), SourceNames::default());
        let queue = queue
            .metrics(self.name.clone(), &runtime.metrics)
            .telling(queue_name.clone(), &runtime.facts, source_names.clone(), ObjectKey::clone)
            .build();
        let intake = Arc::new(Intake::new(queue.clone()));
        let mut attach = Queue {
            queue: queue.clone(),
            intake: intake.clone(),
            next_source: 0,
            source_names,
            resync: self.resync,
            name: self.name.clone(),
        };
        let sources = self.sources.into_iter();
        let attached: Vec<Attached> =
            sources.map(|source| source.attach(&runtime.factory, &mut attach)).collect();
        attached.iter().for_each(|source| source.cache.start());
        if !wait_for_caches(&self.name, &attached, self.sync_limit, &runtime.shutdown).await? {
            return Ok(None);
        }
        let triggers = self.triggers.into_iter().map(|keys| runtime.env.spawn(intake.clone().feed(keys)));
        let triggers = triggers.collect();
        let mut listers: BTreeMap<TypeId, Box<dyn Any + Send + Sync>> = BTreeMap::new();
        let (mut caches, mut registrations, mut replays) = (Vec::new(), Vec::new(), Vec::new());
        for Attached { cache, lister: (id, lister), registration, replay } in attached {
            listers.insert(id, lister);
            caches.push(cache);
            registrations.push(registration);
            replays.push(replay);
        }
        let recorder = Recorder::builder(runtime.client.clone(), self.name.clone())
            .env(runtime.env.clone())
            .metrics(&runtime.metrics)
            .build();
        let context = Shared {
            name: self.name.clone(),
            recorder,
            listers,
            state: self.state,
            env: runtime.env.clone(),
            shutdown: runtime.shutdown.clone(),
            memory: Memory::default(),
        };
        let work = Work {
            queue: queue.clone(),
            name: queue_name,
            facts: runtime.facts.clone(),
            detector: Detector::default(),
            reconciler: self.reconciler,
            caches,
            context: Arc::new(context),
            time_limit: self.time_limit,
            catch_up_limit: self.catch_up_limit,
            workers: self.workers,
            metrics,
        };
        let work = Arc::new(work);
        let weak: Weak<dyn ControllerProbe> = Arc::downgrade(&(work.clone() as Arc<dyn ControllerProbe>));
        runtime.facts.add_controller(weak);
        Ok(Some(Prepared {
            work,
            intake,
            replays,
            env: runtime.env.clone(),
            _triggers: triggers,
            _registrations: registrations,
        }))
    }
}

/// Whether they have synced, before the shutdown. Handlers must have heard of it all too: what they hear later is news.
async fn wait_for_caches(
    controller: &str,
    attached: &[Attached],
    limit: Duration,
    shutdown: &CancellationToken,
) -> Result<bool, ControllerError> {
    let synced = join_all(attached.iter().map(async |source| {
        source.cache.wait_for_sync().await;
        source.registration.wait_for_sync().await;
    }));
    if !is_kept(Promise::CacheSync) {
        return Ok(true);
    }
    let in_time = tokio::select! {
        biased;
        () = shutdown.cancelled() => return Ok(false),
        waited = tokio::time::timeout(limit, synced) => waited.is_ok(),
    };
    if in_time {
        return Ok(true);
    }
    let late = attached.iter().filter_map(|source| {
        let trouble = source.cache.sync_state().err()?;
        Some((source.cache.resource().to_owned(), trouble))
    });
    let source = CacheSyncError { not_synced: late.collect() };
    Err(ControllerError::CacheSync { controller: controller.to_owned(), source })
}

/// The key of the `K` that controls an object, if one does.
fn owner_key<K: Watchable, C: Object>(object: &Held<C>) -> Vec<ObjectKey> {
    let meta = object.meta();
    let owners = meta.owner_references.iter().flatten();
    let owner = owners.filter(|owner| owner.controller == Some(true)).find(|owner| {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        owner.kind == K::kind(&()) && group == K::group(&())
    });
    let is_namespaced = TypeId::of::<K::Scope>() == TypeId::of::<NamespaceResourceScope>();
    let key = owner.map(|owner| match meta.namespace.as_deref().filter(|_| is_namespaced) {
        Some(namespace) => ObjectKey::namespaced(namespace, &owner.name),
        None => ObjectKey::cluster(&owner.name),
    });
    key.into_iter().collect()
}
