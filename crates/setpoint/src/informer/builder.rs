//! How an informer is made.

use std::any::TypeId;
use std::num::NonZeroUsize;
use std::sync::{Arc, Weak};
use std::time::Duration;

use kube::Client;
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta, TypeMeta};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use setpoint_env::Env;
use tokio_util::sync::CancellationToken;

use super::core::Core;
use super::{Inner, ScopeParts, Selectors, SharedInformer};
use crate::facts::{CacheProbe, Facts};
use crate::held::PackerOf;
use crate::reflector::{Decoder, ErrorHandler, Keep, Reflector, ReflectorMetrics, Target, WireKind};
use crate::{
    DeltaFifo, Indexer, MapStore, Metrics, Object, ReflectorConfig, ReflectorError, Scope, ScopedResource,
    Store, Trimmed,
};

/// Makes a [`SharedInformer`]. `K` is what the server sends, `T` what is cached.
///
/// Without further ado it caches every object of the cluster, without `managedFields`. (An update that
/// carries no managedFields leaves those on the server alone, so writing such an object back is harmless.)
#[must_use]
pub struct InformerBuilder<K, T = K> {
    client: Client,
    resource: Resource,
    namespaces: Vec<String>,
    label_selector: Option<String>,
    field_selector: Option<String>,
    keep_managed_fields: bool,
    keep: Keep,
    packer: Option<PackerOf<T>>,
    keep_decoded: Option<NonZeroUsize>,
    protobuf: bool,
    complete: Option<Complete<K>>,
    transform: Arc<dyn Fn(K) -> T + Send + Sync>,
    transformed_by: TransformedBy,
    store: Option<Box<dyn Store<T>>>,
    resync: Option<Duration>,
    config: ReflectorConfig,
    on_error: Option<ErrorHandler>,
    env: Env,
    metrics: Metrics,
    facts: Facts,
}

/// What an informer lists, watches and caches, as far as that can be told.
pub(crate) struct Identity {
    watched: String,
    cached: TypeId,
    transformed_by: TransformedBy,
}

impl Identity {
    /// Whether two informers would cache the same.
    pub(crate) fn is_same(&self, other: &Identity) -> bool {
        self.watched == other.watched
            && self.cached == other.cached
            && self.transformed_by.is_same(other.transformed_by)
    }
}

/// What is known of a transform.
#[derive(Clone, Copy)]
enum TransformedBy {
    Nothing,
    /// A function or closure that has no state: its type says what it does.
    Function(TypeId),
    /// One that has captured something.
    Unknown,
}

impl TransformedBy {
    fn of<F: 'static>() -> TransformedBy {
        if size_of::<F>() == 0 { TransformedBy::Function(TypeId::of::<F>()) } else { TransformedBy::Unknown }
    }

    fn is_same(self, other: TransformedBy) -> bool {
        match (self, other) {
            (TransformedBy::Nothing, TransformedBy::Nothing) => true,
            (TransformedBy::Function(one), TransformedBy::Function(two)) => one == two,
            _ => false,
        }
    }
}

/// Fills in what the server leaves out.
type Complete<K> = Arc<dyn Fn(&mut K) + Send + Sync>;

/// What is known of a resource without its type.
#[derive(Clone)]
struct Resource {
    known: ScopedResource,
    metadata_only: bool,
}

impl Resource {
    fn of<K: kube::Resource>(known: ScopedResource) -> Resource {
        Resource { known, metadata_only: K::metadata_api() }
    }
}

impl<K> SharedInformer<K>
where
    K: kube::Resource + DeserializeOwned + Clone + Send + Sync + 'static,
{
    /// An informer of a kind that is known at compile time: `Pod`, a derived custom resource, or
    /// [`PartialObjectMeta<Pod>`] for one that asks for and caches metadata only.
    pub fn builder(client: Client) -> InformerBuilder<K>
    where
        K: kube::Resource<DynamicType = ()>,
    {
        InformerBuilder::new(client, Resource::of::<K>(ScopedResource::of::<K>()))
    }
}

impl SharedInformer<DynamicObject> {
    /// An informer of a kind that is known at run time only.
    pub fn dynamic(client: Client, resource: &ScopedResource) -> InformerBuilder<DynamicObject> {
        let ApiResource { api_version, kind, .. } = resource.api.clone();
        let types = TypeMeta { api_version, kind };
        let mut builder = InformerBuilder::new(client, Resource::of::<DynamicObject>(resource.clone()));
        // The items of a list do not say what they are.
        builder.complete = Some(Arc::new(move |object: &mut DynamicObject| {
            object.types.get_or_insert_with(|| types.clone());
        }));
        builder
    }
}

impl SharedInformer<PartialObjectMeta<DynamicObject>> {
    /// An informer of the metadata of a kind that is known at run time only.
    pub fn dynamic_metadata(
        client: Client,
        resource: &ScopedResource,
    ) -> InformerBuilder<PartialObjectMeta<DynamicObject>> {
        InformerBuilder::new(client, Resource::of::<PartialObjectMeta<DynamicObject>>(resource.clone()))
    }
}

impl<K: Object> InformerBuilder<K> {
    fn new(client: Client, resource: Resource) -> InformerBuilder<K> {
        InformerBuilder {
            client,
            resource,
            namespaces: Vec::new(),
            label_selector: None,
            field_selector: None,
            keep_managed_fields: false,
            keep: Keep::default(),
            packer: None,
            keep_decoded: None,
            protobuf: false,
            complete: None,
            transform: Arc::new(|object| object),
            transformed_by: TransformedBy::Nothing,
            store: None,
            resync: None,
            config: ReflectorConfig::default(),
            on_error: None,
            env: Env::system(),
            metrics: Metrics::default(),
            facts: Facts::default(),
        }
    }

    /// Caches what `transform` makes of each object, instead of the object. It runs once an object, while
    /// decoding. Name, namespace, uid and resourceVersion must stay as they are.
    ///
    /// A [factory](crate::SharedInformerFactory) lets those share a cache who name the same function, or the same
    /// closure that captures nothing. Of one that captures something it cannot know what it does: each has a cache
    /// of its own. (So ask for that informer once, and clone it.)
    pub fn transform<T, F>(self, transform: F) -> InformerBuilder<K, T>
    where
        T: Object,
        F: Fn(K) -> T + Send + Sync + 'static,
    {
        InformerBuilder {
            client: self.client,
            resource: self.resource,
            namespaces: self.namespaces,
            label_selector: self.label_selector,
            field_selector: self.field_selector,
            keep_managed_fields: self.keep_managed_fields,
            // A transform runs once an object; so the object is decoded when it comes.
            keep: Keep::Decoded,
            packer: None,
            keep_decoded: None,
            protobuf: self.protobuf,
            complete: self.complete,
            transform: Arc::new(transform),
            transformed_by: TransformedBy::of::<F>(),
            store: None,
            resync: self.resync,
            config: self.config,
            on_error: self.on_error,
            env: self.env,
            metrics: self.metrics,
            facts: self.facts,
        }
    }

    /// Keeps objects compressed, and decodes one each time it is read: for caches of many objects of which few
    /// are read. With a dictionary that is learned from the first objects, a Pod of three kilobytes takes about
    /// a tenth of that. The objects that were read last are kept decoded.
    ///
    /// A [`Held`](crate::Held) keeps what it has read as long as it lives. An index function reads every object
    /// when it comes, and once more when it changes.
    ///
    /// With the cargo feature `compact`.
    #[cfg(feature = "compact")]
    pub fn compact(mut self) -> InformerBuilder<K> {
        self.keep = Keep::Lazy;
        self.packer = Some(crate::held::Packer::shared);
        self.keep_decoded = None;
        self
    }

    /// Keeps at most so many objects decoded, those that were decoded last; of the others, their bytes. For caches of very
    /// many objects that several handlers and reconcilers read when they have changed: each version is decoded once, and what
    /// has not changed for long takes no more memory than its bytes.
    ///
    /// It says nothing about what is cached: of those who ask a [factory](crate::SharedInformerFactory) for an informer of the
    /// same objects, the first decides.
    pub fn keep_decoded(mut self, most: NonZeroUsize) -> InformerBuilder<K> {
        (self.keep, self.packer) = (Keep::Lazy, None);
        self.keep_decoded = Some(most);
        self
    }

    /// Decodes every object when it comes, and not when it is first read (see [`Held`](crate::Held)): for
    /// programs that read all of them anyway, and rather soon than late.
    pub fn eager(mut self) -> InformerBuilder<K> {
        self.keep = Keep::Decoded;
        (self.packer, self.keep_decoded) = (None, None);
        self
    }

    /// Takes away what `trim` empties in each object, to save memory. What is cached is a [`Trimmed<K>`],
    /// which cannot be written back to the server by mistake.
    pub fn trim(self, trim: impl Fn(&mut K) + Send + Sync + 'static) -> InformerBuilder<K, Trimmed<K>>
    where
        Trimmed<K>: Object,
    {
        self.transform(move |mut object| {
            trim(&mut object);
            Trimmed::new(object)
        })
    }
}

impl<K, T> InformerBuilder<K, T>
where
    K: kube::Resource + DeserializeOwned + Clone + Send + Sync + 'static,
    T: Object,
{
    /// Only objects of this namespace. Call it again for more: each has its own watch and watermark, and
    /// all are behind one lister. An empty name stands for all namespaces. It means nothing for a kind whose objects are in
    /// none.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        let namespace = namespace.into();
        if !self.namespaces.contains(&namespace) {
            self.namespaces.push(namespace);
        }
        self
    }

    /// Only objects of these namespaces; with none, of the whole cluster.
    pub(crate) fn in_namespaces(mut self, namespaces: impl IntoIterator<Item = String>) -> Self {
        self.namespaces = namespaces.into_iter().collect();
        self
    }

    /// Only objects whose labels match, like `app=web,tier in (a,b)`.
    pub fn label_selector(mut self, selector: impl Into<String>) -> Self {
        self.label_selector = Some(selector.into());
        self
    }

    /// Only objects whose fields match, like `spec.nodeName=n1`.
    pub fn field_selector(mut self, selector: impl Into<String>) -> Self {
        self.field_selector = Some(selector.into());
        self
    }

    /// Caches `managedFields` too. They are often half of an object, and slow to decode.
    pub fn keep_managed_fields(mut self) -> Self {
        self.keep_managed_fields = true;
        self
    }

    /// Keeps the objects in another store than a hash map.
    pub fn store(mut self, store: impl Store<T> + 'static) -> Self {
        self.store = Some(Box::new(store));
        self
    }

    /// Tells handlers every cached object again after this time (see [`HandlerOptions::resync`]).
    ///
    /// [`HandlerOptions::resync`]: crate::HandlerOptions::resync
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period);
        self
    }

    /// Asks the server for protobuf, which is shorter than JSON and quicker to read: for informers of many objects, most
    /// of all over a network.
    ///
    /// Built-in kinds have a protobuf form, and the metadata of any kind, if only these are cached. Custom resources have
    /// none: for them this changes nothing, so that a [factory](crate::SharedInformerFactory) may ask for it for all its
    /// informers ([`ReflectorConfig::protobuf`]). A server that does not know protobuf answers in JSON, which is read as
    /// ever, answer by answer.
    ///
    /// What is cached and told is the same as with JSON (but for a `DynamicObject`: objects within objects, such as the
    /// `volumeClaimTemplates` of a StatefulSet, do not say their kind in protobuf). It costs what the table of built-in kinds takes in memory, about
    /// a megabyte a process. Fields that are newer than that table are not in the protobuf form that is read, as they are
    /// not in the types of `k8s-openapi`; a `DynamicObject` in JSON has them.
    ///
    /// With the cargo feature `protobuf`.
    #[cfg(feature = "protobuf")]
    pub fn protobuf(mut self) -> Self {
        self.protobuf = true;
        self
    }

    /// How to talk to the server.
    pub fn config(mut self, config: ReflectorConfig) -> Self {
        self.config = config;
        self
    }

    /// Called with every failure of the list and watch, and every object that could not be decoded. They are
    /// logged, counted and retried anyway.
    pub fn on_error(mut self, on_error: impl Fn(&ReflectorError) + Send + Sync + 'static) -> Self {
        self.on_error = Some(Arc::new(on_error));
        self
    }

    /// Where time, randomness and tasks come from.
    pub fn env(mut self, env: Env) -> Self {
        self.env = env;
        self
    }

    /// Where to count.
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// Where to tell what happens.
    pub fn facts(mut self, facts: &Facts) -> Self {
        self.facts = facts.clone();
        self
    }

    /// The parts that are listed and watched each by itself.
    fn scopes(&self) -> Vec<Scope> {
        let names_some = !self.namespaces.is_empty() && self.namespaces.iter().all(|name| !name.is_empty());
        if names_some && self.resource.known.is_namespaced {
            self.namespaces.iter().map(|name| Scope::Namespace(name.as_str().into())).collect()
        } else {
            vec![Scope::Cluster]
        }
    }

    /// What is listed, watched and cached.
    pub(crate) fn identity(&self) -> Identity {
        let mut scopes = self.scopes();
        scopes.sort_unstable();
        let path = self.resource.known.path(None);
        let selectors = (&self.label_selector, &self.field_selector);
        let watched =
            format!("{path} {scopes:?} {selectors:?} {} {}", self.keep_managed_fields, self.packer.is_some());
        Identity { watched, cached: TypeId::of::<T>(), transformed_by: self.transformed_by }
    }

    pub(crate) fn inherit(mut self, other: &crate::factory::Defaults) -> Self {
        self.namespaces = other.namespaces.clone();
        self.resync = other.resync;
        self.config = other.config.clone();
        self.keep_managed_fields = other.keep_managed_fields;
        self.env(other.env.clone()).metrics(other.metrics.clone()).facts(&other.facts)
    }

    /// The informer, which does nothing until it is started.
    pub fn build(mut self) -> SharedInformer<T> {
        let store = self.store.take().unwrap_or_else(|| Box::new(MapStore::default()));
        let indexer = Arc::new(Indexer::from_box(store));
        let (complete, transform) = (self.complete.take(), self.transform.clone());
        let make = move |mut object: K| {
            if let Some(complete) = &complete {
                complete(&mut object);
            }
            transform(object)
        };
        let Resource { known, metadata_only } = &self.resource;
        let asks_protobuf = self.protobuf || self.config.asks_protobuf();
        let wire_kind = asks_protobuf.then(|| WireKind::of(&known.api, *metadata_only)).flatten();
        let mut decoder = Decoder::new(self.keep_managed_fields, self.keep, wire_kind, Arc::new(make));
        if let Some(packer) = self.packer {
            decoder = decoder.packed(packer);
        }
        if let Some(most) = self.keep_decoded {
            decoder = decoder.recent(most);
        }
        let scopes = self.scopes();
        let name = (known.name(), self.facts.next_cache());
        let parts = scopes.iter().map(|scope| self.scope_parts(scope, name.1, &indexer, &decoder)).collect();
        let selectors = Selectors { labels: self.label_selector, has_fields: self.field_selector.is_some() };
        let facts = self.facts.clone();
        let core = Core::new(indexer, scopes, name, self.env, self.metrics, self.facts, self.resync);
        let inner = Arc::new(Inner {
            core: Arc::new(core),
            scopes: parts,
            supervisors: Mutex::default(),
            stop: CancellationToken::new(),
            selectors,
            keeps_managed_fields: self.keep_managed_fields,
        });
        let weak: Weak<dyn CacheProbe> = Arc::downgrade(&(inner.clone() as Arc<dyn CacheProbe>));
        facts.add_cache(inner.core.id, weak);
        SharedInformer { inner }
    }

    fn scope_parts(
        &self,
        scope: &Scope,
        cache: u64,
        indexer: &Arc<Indexer<T>>,
        decoder: &Decoder<T>,
    ) -> ScopeParts<T> {
        let known = &self.resource.known;
        let target = Target {
            resource: known.name(),
            api_version: known.api.api_version.clone(),
            kind: known.api.kind.clone(),
            path: known.path(scope.namespace()),
            scope: scope.clone(),
            label_selector: self.label_selector.clone(),
            field_selector: self.field_selector.clone(),
            metadata_only: self.resource.metadata_only,
            protobuf: decoder.wire_kind().is_some(),
            again: Arc::default(),
        };
        let fifo = DeltaFifo::new(indexer.clone(), scope.clone(), self.config.queue_capacity);
        let fifo = Arc::new(fifo.most_bytes(self.config.queue_bytes));
        let trouble = Arc::new(Mutex::new(None));
        let reflector = Reflector {
            client: self.client.clone(),
            metrics: ReflectorMetrics::new(self.metrics.clone(), self.env.clone(), &target),
            facts: self.facts.clone(),
            cache,
            target: target.clone(),
            decoder: decoder.clone(),
            indexer: indexer.clone(),
            fifo: fifo.clone(),
            config: self.config.clone(),
            env: self.env.clone(),
            on_error: self.on_error.clone(),
            trouble: trouble.clone(),
        };
        ScopeParts { scope: scope.clone(), target, reflector: Mutex::new(Some(reflector)), trouble, fifo }
    }
}
