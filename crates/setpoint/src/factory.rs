//! Beside stage 4: one informer a kind, shared by everybody in a process.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use kube::Client;
use kube::core::{DynamicObject, PartialObjectMeta};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use setpoint_env::Env;

use crate::facts::Facts;
use crate::informer::Identity;
use crate::watch::{Watch, Watchable};
use crate::{InformerBuilder, Metrics, Object, ReflectorConfig, ScopedResource, SharedInformer};

/// Hands out informers: the same one to everybody who asks for the same thing. Clones are the same factory.
///
/// "The same thing" is what is listed and watched (resource, namespaces, selectors), the type that is cached, and
/// the [transform](InformerBuilder::transform) that makes it.
pub struct SharedInformerFactory {
    client: Client,
    defaults: Defaults,
    informers: Arc<Mutex<Vec<Entry>>>,
}

impl Clone for SharedInformerFactory {
    fn clone(&self) -> SharedInformerFactory {
        SharedInformerFactory {
            client: self.client.clone(),
            defaults: self.defaults.clone(),
            informers: self.informers.clone(),
        }
    }
}

/// What an informer of a factory has unless it says otherwise.
#[derive(Clone, Default)]
pub(crate) struct Defaults {
    pub(crate) namespaces: Vec<String>,
    pub(crate) resync: Option<Duration>,
    pub(crate) config: ReflectorConfig,
    pub(crate) env: Env,
    pub(crate) metrics: Metrics,
    pub(crate) keep_managed_fields: bool,
    pub(crate) facts: Facts,
    /// Whether the facts were given; else they go with the clock.
    has_facts: bool,
}

struct Entry {
    identity: Identity,
    /// Whether somebody has asked for it who may come back; else it goes with the last lease.
    is_kept: bool,
    leases: u32,
    informer: Arc<dyn AnyInformer>,
}

/// An informer of any type.
trait AnyInformer: Any + Send + Sync {
    fn name(&self) -> String;
    fn start(&self);
    fn has_synced(&self) -> bool;
    fn is_healthy(&self) -> bool;
    fn trouble(&self) -> Vec<String>;
    fn wait_for_sync(self: Arc<Self>) -> BoxFuture<'static, ()>;
    fn shutdown(self: Arc<Self>) -> BoxFuture<'static, ()>;
}

impl<T: Object> AnyInformer for SharedInformer<T> {
    fn name(&self) -> String {
        SharedInformer::name(self).to_owned()
    }

    fn start(&self) {
        SharedInformer::start(self);
    }

    fn has_synced(&self) -> bool {
        SharedInformer::has_synced(self)
    }

    fn is_healthy(&self) -> bool {
        SharedInformer::is_healthy(self)
    }

    fn trouble(&self) -> Vec<String> {
        SharedInformer::trouble(self)
    }

    fn wait_for_sync(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { SharedInformer::wait_for_sync(&self).await })
    }

    fn shutdown(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { SharedInformer::shutdown(&self).await })
    }
}

/// A use of an informer of a factory.
pub(crate) struct Lease {
    informers: Arc<Mutex<Vec<Entry>>>,
    identity: Identity,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut informers = self.informers.lock();
        let found = informers.iter().position(|entry| entry.identity.is_same(&self.identity));
        let gone = found.and_then(|at| {
            let entry = &mut informers[at];
            entry.leases = entry.leases.saturating_sub(1);
            (entry.leases == 0 && !entry.is_kept).then(|| informers.swap_remove(at))
        });
        // Its tasks end with it, outside the lock.
        drop(informers);
        drop(gone);
    }
}

/// Some caches did not sync in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("these caches have not synced: {}", render(not_synced))]
pub struct CacheSyncError {
    /// The kinds that have not synced, each with the last failures of its reflectors.
    pub not_synced: BTreeMap<String, Vec<String>>,
}

fn render(not_synced: &BTreeMap<String, Vec<String>>) -> String {
    let one = |(name, trouble): (&String, &Vec<String>)| match trouble.as_slice() {
        [] => format!("{name} (no failure; is the factory started?)"),
        trouble => format!("{name} ({})", trouble.join("; ")),
    };
    not_synced.iter().map(one).collect::<Vec<_>>().join(", ")
}

impl SharedInformerFactory {
    /// A factory whose informers watch the whole cluster, with the default settings.
    pub fn new(client: Client) -> SharedInformerFactory {
        SharedInformerFactory { client, defaults: Defaults::default(), informers: Arc::default() }
    }

    /// Watch only this namespace; call it again for more. An empty name stands for all. Kinds whose objects are in no
    /// namespace are watched all the same.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> SharedInformerFactory {
        let namespace = namespace.into();
        // Two watches of one namespace would undo each other's changes.
        if !self.defaults.namespaces.contains(&namespace) {
            self.defaults.namespaces.push(namespace);
        }
        self
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The namespaces that it watches; none for the whole cluster.
    pub fn namespaces(&self) -> &[String] {
        let all = &self.defaults.namespaces;
        if all.iter().any(String::is_empty) { &[] } else { all }
    }

    /// Tell handlers every cached object again after this time.
    #[must_use]
    pub fn resync(mut self, period: Duration) -> SharedInformerFactory {
        self.defaults.resync = Some(period);
        self
    }

    /// Caches `managedFields` too: they are often half of an object. With them, the [reasons](crate::Reason) of
    /// reconciles name who changed an object last.
    #[must_use]
    pub fn keep_managed_fields(mut self) -> SharedInformerFactory {
        self.defaults.keep_managed_fields = true;
        self
    }

    /// How to talk to the server.
    #[must_use]
    pub fn config(mut self, config: ReflectorConfig) -> SharedInformerFactory {
        self.defaults.config = config;
        self
    }

    /// Where time, randomness and tasks come from.
    #[must_use]
    pub fn env(mut self, env: Env) -> SharedInformerFactory {
        if !self.defaults.has_facts {
            self.defaults.facts = Facts::new(env.clone());
        }
        self.defaults.env = env;
        self
    }

    /// Where to tell what happens.
    #[must_use]
    pub fn with_facts(mut self, facts: &Facts) -> SharedInformerFactory {
        (self.defaults.facts, self.defaults.has_facts) = (facts.clone(), true);
        self
    }

    /// What happens to its informers, for those who [subscribe](Facts::subscribe).
    pub fn facts(&self) -> &Facts {
        &self.defaults.facts
    }

    /// Where to count.
    #[must_use]
    pub fn metrics(mut self, metrics: Metrics) -> SharedInformerFactory {
        self.defaults.metrics = metrics;
        self
    }

    /// The informer of a kind that is known at compile time.
    pub fn informer<K>(&self) -> SharedInformer<K>
    where
        K: kube::Resource<DynamicType = ()> + DeserializeOwned + Clone + Send + Sync + 'static,
    {
        self.informer_with(|builder: InformerBuilder<K>| builder)
    }

    /// The informer of a kind, with settings of its own: selectors, namespaces, a transform. If there is one
    /// that watches and caches the same, it is that one, with the settings that it was made with.
    pub fn informer_with<K, T>(
        &self,
        set: impl FnOnce(InformerBuilder<K>) -> InformerBuilder<K, T>,
    ) -> SharedInformer<T>
    where
        K: kube::Resource<DynamicType = ()> + DeserializeOwned + Clone + Send + Sync + 'static,
        T: Object,
    {
        self.share(set(SharedInformer::<K>::builder(self.client.clone()).inherit(&self.defaults)))
    }

    /// The informer of a [`Watch`]: the one that controllers use who are given an equal watch. Add indices to it, for
    /// example. What the watch filters plays no part, and its indices come with the controller that is given it.
    pub fn informer_of<T: Watchable>(&self, watch: &Watch<T>) -> SharedInformer<T> {
        self.share(watch.builder(self.client.clone(), &self.defaults))
    }

    /// The informer that asks for and caches only the metadata of a kind.
    pub fn metadata<K>(&self) -> SharedInformer<PartialObjectMeta<K>>
    where
        K: kube::Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
        PartialObjectMeta<K>: kube::Resource<DynamicType = ()> + DeserializeOwned + Clone,
    {
        self.informer()
    }

    /// The informer of a kind that is known at run time only.
    pub fn dynamic(&self, resource: &ScopedResource) -> SharedInformer<DynamicObject> {
        self.share(SharedInformer::dynamic(self.client.clone(), resource).inherit(&self.defaults))
    }

    /// The informer of the metadata of a kind that is known at run time only.
    pub fn dynamic_metadata(
        &self,
        resource: &ScopedResource,
    ) -> SharedInformer<PartialObjectMeta<DynamicObject>> {
        self.share(SharedInformer::dynamic_metadata(self.client.clone(), resource).inherit(&self.defaults))
    }

    fn share<K, T>(&self, builder: InformerBuilder<K, T>) -> SharedInformer<T>
    where
        K: kube::Resource + DeserializeOwned + Clone + Send + Sync + 'static,
        T: Object,
    {
        self.entry(builder, |entry| entry.is_kept = true)
    }

    /// The informer of a watch, for as long as the lease. With the last lease it goes, unless somebody has asked for the
    /// same informer without one.
    pub(crate) fn lease<T: Watchable>(&self, watch: &Watch<T>) -> (SharedInformer<T>, Lease) {
        let builder = watch.builder(self.client.clone(), &self.defaults);
        let identity = builder.identity();
        let informer = self.entry(builder, |entry| entry.leases += 1);
        (informer, Lease { informers: self.informers.clone(), identity })
    }

    fn entry<K, T>(&self, builder: InformerBuilder<K, T>, take: impl FnOnce(&mut Entry)) -> SharedInformer<T>
    where
        K: kube::Resource + DeserializeOwned + Clone + Send + Sync + 'static,
        T: Object,
    {
        let identity = builder.identity();
        let mut informers = self.informers.lock();
        let mut same = informers.iter_mut().filter(|entry| entry.identity.is_same(&identity));
        let found = same.find_map(|entry| {
            let informer = (&*entry.informer as &dyn Any).downcast_ref::<SharedInformer<T>>()?.clone();
            Some((entry, informer))
        });
        if let Some((entry, informer)) = found {
            take(entry);
            return informer;
        }
        let informer = builder.build();
        let mut entry = Entry { identity, is_kept: false, leases: 0, informer: Arc::new(informer.clone()) };
        take(&mut entry);
        informers.push(entry);
        informer
    }

    fn all(&self) -> Vec<Arc<dyn AnyInformer>> {
        self.informers.lock().iter().map(|entry| entry.informer.clone()).collect()
    }

    /// Starts every informer that was asked for and is not started. Call it again after asking for more.
    pub fn start(&self) {
        self.all().iter().for_each(|informer| informer.start());
    }

    /// Waits until every cache has synced, at most for `limit`. The error names those that have not, and why.
    pub async fn wait_for_cache_sync(&self, limit: Duration) -> Result<(), CacheSyncError> {
        let all = self.all();
        let synced = join_all(all.iter().map(|informer| informer.clone().wait_for_sync()));
        if tokio::time::timeout(limit, synced).await.is_ok() {
            return Ok(());
        }
        let late = all.iter().filter(|informer| !informer.has_synced());
        let not_synced = late.map(|informer| (informer.name(), informer.trouble())).collect();
        Err(CacheSyncError { not_synced })
    }

    /// For each kind that was asked for, whether its cache has synced.
    pub fn synced_by_kind(&self) -> BTreeMap<String, bool> {
        let mut kinds = BTreeMap::new();
        for informer in self.all() {
            *kinds.entry(informer.name()).or_insert(true) &= informer.has_synced();
        }
        kinds
    }

    /// The kinds whose informers panicked and have no list again yet ([`SharedInformer::is_healthy`]), in order.
    pub fn unhealthy(&self) -> Vec<String> {
        let all = self.all();
        let names = all.iter().filter(|informer| !informer.is_healthy()).map(|informer| informer.name());
        names.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Stops every informer for good, and waits until all their tasks are gone.
    pub async fn shutdown(&self) {
        join_all(self.all().into_iter().map(|informer| informer.shutdown())).await;
    }
}
