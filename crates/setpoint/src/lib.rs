//! A runtime for Kubernetes controllers: informers, listers, a work queue, controllers and a manager, on top of the [`kube`]
//! client. It is for Rust what client-go and controller-runtime are for Go.
//!
//! Most programs use four types. A [`Controller`] calls your [`Reconciler`], usually an async function, with the keys of objects
//! to reconcile. A [`Context`] gives it listers and a client. A [`Manager`] runs controllers with
//! [leader election](leader_election), health checks, [metrics] and [webhooks](webhook).
//!
//! # A first controller
//!
//! It maintains a ConfigMap `greeting` in every namespace. If somebody deletes the ConfigMap, it is created again. Besides `setpoint`
//! it needs `serde_json`, and `tokio` with the features `macros` and `rt-multi-thread`:
//!
//! ```no_run
//! use setpoint::k8s_openapi::api::core::v1::{ConfigMap, Namespace};
//! use setpoint::kube::Api;
//! use setpoint::owner::controller_reference;
//! use setpoint::{Action, ClientConfig, Context, Controller, Manager, ObjectKey, ReconcileError, ensure};
//!
//! async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
//!     let Some(namespace) = cx.lister::<Namespace>()?.get(&key) else {
//!         return Ok(Action::done()); // it is gone, and all that was in it
//!     };
//!     let wanted: ConfigMap = serde_json::from_value(serde_json::json!({
//!         "metadata": {"name": "greeting", "ownerReferences": [controller_reference(&*namespace)]},
//!         "data": {"text": "hello"},
//!     }))?;
//!     let maps: Api<ConfigMap> = Api::namespaced(cx.client(), key.name());
//!     let current = cx.lister::<ConfigMap>()?.get(&ObjectKey::namespaced(key.name(), "greeting"));
//!     ensure(&maps, current.as_deref(), &wanted).await?;
//!     Ok(Action::done())
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let client = ClientConfig::new().connect().await?;
//!     let controller = Controller::of::<Namespace>(.., "greeting", reconcile).owns::<ConfigMap>(..);
//!     Manager::new(client).controller(controller).stop_on_signals().run().await?;
//!     Ok(())
//! }
//! ```
//!
//! In `of` and `owns`, `..` means all objects of the kind; a [`Watch`] selects some. A change to a ConfigMap enqueues the key of the
//! Namespace that owns it.
//!
//! Failures and all else that is worth a line are logged with [`tracing`](https://docs.rs/tracing): nothing is printed until the
//! program installs a subscriber, such as `tracing_subscriber::fmt::init()`.
//!
//! # A kind of your own
//!
//! `setpoint new` writes a project for one: the type, its definition, a controller, tests, roles. By hand, derive it with `kube`,
//! which needs these crates in `Cargo.toml`, in the versions that are [`setpoint::kube`](kube) and
//! [`setpoint::k8s_openapi`](k8s_openapi):
//!
//! ```toml
//! k8s-openapi = { version = "0.29", features = ["v1_37", "schemars"] }
//! kube = { version = "5", default-features = false, features = ["derive"] }
//! schemars = "1"
//! serde = { version = "1", features = ["derive"] }
//! ```
//!
//! A controller is of such a kind as of any other. The server has to know its definition first, also the server of a test:
//!
//! ```
//! use kube::{CustomResource, CustomResourceExt};
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//! use setpoint::{Action, Context, Controller, ObjectKey, ReconcileError};
//! use setpoint_apiserver::ApiServer;
//!
//! #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
//! #[kube(group = "shop.example.com", version = "v1", kind = "Order", namespaced)]
//! struct OrderSpec {
//!     items: u32,
//! }
//!
//! async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
//!     let Some(order) = cx.lister::<Order>()?.get(&key) else { return Ok(Action::done()) };
//!     println!("{key} is about {} items", order.spec.items);
//!     Ok(Action::done())
//! }
//!
//! # fn controller() -> Controller {
//! Controller::of::<Order>(.., "orders", reconcile)
//! # }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!
//! // In a test. `serde_json::to_string(&Order::crd())` is the definition to apply to a cluster.
//! let test = Context::for_test(ApiServer::builder().build().client());
//! let test = test.stored([Order::crd()]).await?.stored([Order::new("first", OrderSpec { items: 3 })]).await?;
//! assert_eq!(reconcile("default/first".into(), test.context()).await.unwrap(), Action::done());
//! # Ok(())
//! # }
//! ```
//!
//! # What a reconcile uses
//!
//! | to | use |
//! | --- | --- |
//! | read objects from the cache | [`Context::lister`]; an index of a watch ([`Watch::index`]) finds objects by their fields |
//! | create and update owned objects | [`owner::set_controller`] and [`ensure`] (a merge patch of what differs), or [`apply`] (server-side apply) |
//! | write a status | [`conditions`] and [`patch_status`] |
//! | clean up resources outside of the cluster | [`finalize`] |
//! | record Events | [`Context::recorder`] and [`Event`] |
//! | requeue a key | [`Action::requeue_after`]; a key whose reconcile fails is requeued with backoff, unless the error is [terminal](ReconcileError::terminal) |
//! | reconcile on changes to objects that are referenced but not owned | [`Controller::refers_to`], [`Controller::watches`] |
//! | declare RBAC permissions | [`Controller::writes`] and the like, from which `setpoint gen rbac` generates the role |
//! | unit-test a reconcile | [`Context::for_test`] |
//!
//! # The stages
//!
//! A change on the server takes one path through these stages. The writes of a reconcile are changes too, which closes the loop. You
//! can use the parts alone, such as the work queue or an informer.
//!
//! | stage | type | what it does |
//! | --- | --- | --- |
//! | | [`ClientConfig`] | finds the server |
//! | | [`Watch`] | says what to list and watch, and which changes matter |
//! | 1 | the reflector, inside [`SharedInformer`]; [`ReflectorConfig`] | lists and watches; watches or lists again after errors, with backoff |
//! | 2 | [`DeltaFifo`] | queues deltas by key, and is drained in batches |
//! | 3 | [`Indexer`] | the cache: a map with named indices, at one resourceVersion; a [`Lister`] reads it |
//! | 4 | [`SharedInformer`] | applies batches to the cache, then delivers them to every handler |
//! | 5 | [`WorkQueue`] | deduplicates keys, never hands one key to two workers, delays, requeues with backoff, holds keys until the caches contain their writes |
//! | 6 | [`Controller`] | workers take keys and call the [`Reconciler`], which reads caches and writes to the server |
//!
//! [`facts`] report what each stage does. A [`SharedInformerFactory`] shares informers in a process. A [`Fifo`] is a queue of
//! objects without deltas.
//!
//! The rest of this page shows informers and listers without a controller.
//!
//! # Watch one kind
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use setpoint::k8s_openapi::api::core::v1::ConfigMap;
//! use setpoint::kube::{Api, ResourceExt};
//! use setpoint::{HandlerFns, Held, Scope, SharedInformer};
//!
//! // A server in this process. In a program: `let client = setpoint::ClientConfig::new().connect().await?;`
//! let client = setpoint_apiserver::ApiServer::builder().build().client();
//!
//! let informer = SharedInformer::<ConfigMap>::builder(client.clone()).namespace("default").build();
//! // Dropping the registration removes the handler.
//! let _handler = informer.add_handler(
//!     HandlerFns::new()
//!         .on_add(|map: &Held<ConfigMap>, _is_initial| println!("new: {}", map.name_any()))
//!         .on_delete(|deleted| println!("gone: {}", deleted.object.name_any())),
//! );
//! informer.start();
//! informer.wait_for_sync().await;
//!
//! // Wait until the cache has reached the resourceVersion of the write.
//! let map: ConfigMap = serde_json::from_str(r#"{"metadata": {"name": "settings"}}"#)?;
//! let map = Api::<ConfigMap>::namespaced(client, "default").create(&Default::default(), &map).await?;
//! let version = map.resource_version().unwrap_or_default().as_str().into();
//! informer.wait_for_version(&Scope::Namespace("default".into()), &version).await;
//! assert!(informer.lister().namespace("default").get("settings").is_some());
//! # Ok(())
//! # }
//! ```
//!
//! # Look up pods by node name
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use setpoint::SharedInformerFactory;
//! use setpoint::k8s_openapi::api::core::v1::Pod;
//! # use setpoint::kube::Api;
//!
//! # let client = setpoint_apiserver::ApiServer::builder().build().client();
//! # let pod: Pod = serde_json::from_value(serde_json::json!({
//! #     "metadata": {"name": "web"},
//! #     "spec": {"nodeName": "node-1", "containers": [{"name": "web", "image": "nginx"}]},
//! # }))?;
//! # Api::<Pod>::namespaced(client.clone(), "default").create(&Default::default(), &pod).await?;
//! let factory = SharedInformerFactory::new(client);
//! let pods = factory.informer::<Pod>();
//! pods.add_index("node", |pod: &Pod| pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect())?;
//! factory.start();
//! factory.wait_for_cache_sync(std::time::Duration::from_secs(10)).await?;
//!
//! let on_node_1 = pods.lister().by_index("node", "node-1")?;
//! assert_eq!(on_node_1.len(), 1);
//! # factory.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Add a handler to a synced informer
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use std::sync::Arc;
//! # use std::sync::atomic::{AtomicUsize, Ordering};
//! use setpoint::k8s_openapi::api::core::v1::Namespace;
//! use setpoint::{HandlerFns, Held, SharedInformer};
//!
//! # let client = setpoint_apiserver::ApiServer::builder().build().client();
//! let namespaces = SharedInformer::<Namespace>::builder(client).build();
//! namespaces.start();
//! namespaces.wait_for_sync().await;
//!
//! // The new handler gets an add for each cached object (`is_initial`), then all later changes.
//! let delivered = Arc::new(AtomicUsize::new(0));
//! let count = delivered.clone();
//! let registration = namespaces.add_handler(HandlerFns::new().on_add(move |_: &Held<Namespace>, is_initial| {
//!     count.fetch_add(usize::from(is_initial), Ordering::Relaxed);
//! }));
//! registration.wait_for_sync().await;
//! assert_eq!(delivered.load(Ordering::Relaxed), namespaces.lister().len());
//! registration.remove().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Metadata only
//!
//! The server sends only the metadata of objects (PartialObjectMetadata), and the cache keeps only that:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use setpoint::SharedInformerFactory;
//! use setpoint::k8s_openapi::api::core::v1::Namespace;
//!
//! # let client = setpoint_apiserver::ApiServer::builder().build().client();
//! let factory = SharedInformerFactory::new(client);
//! let namespaces = factory.metadata::<Namespace>();
//! factory.start();
//! factory.wait_for_cache_sync(std::time::Duration::from_secs(10)).await?;
//! assert!(namespaces.lister().get(&"default".into()).is_some_and(|namespace| namespace.metadata.uid.is_some()));
//! # factory.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Kinds that are known only at run time
//!
//! An informer for a resource that discovery finds. For controllers, [`Watch::dynamic`] watches such a resource, and [`Watches`]
//! adds and removes watches while a controller runs.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use setpoint::SharedInformerFactory;
//! use setpoint::client::find_resource;
//!
//! # let client = setpoint_apiserver::ApiServer::builder().build().client();
//! let resource = find_resource(&client, "", "v1", "namespaces").await?.ok_or("no such resource")?;
//! let factory = SharedInformerFactory::new(client);
//! let namespaces = factory.dynamic(&resource);
//! factory.start();
//! factory.wait_for_cache_sync(std::time::Duration::from_secs(10)).await?;
//! let default = namespaces.lister().get(&"default".into()).ok_or("no default namespace")?;
//! assert_eq!(default.types.as_ref().map(|types| types.kind.as_str()), Some("Namespace"));
//! # factory.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Cached objects and writing
//!
//! Cached objects are shared and immutable: clone one to change it. A cache drops `managedFields` by default. An update with such an
//! object keeps the server's managedFields. Do not apply a cached object: server-side apply would make you the owner of every field
//! in it. A cache that drops more fields holds another type, so its objects cannot be written back by mistake:
//! [`InformerBuilder::trim`] caches [`Trimmed<K>`], and [`InformerBuilder::transform`] a type of yours.

// Operators of times panic when they overflow; clippy.toml says which types are meant.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod apply;
pub mod client;
pub mod conditions;
pub mod controller;
mod delta_fifo;
pub mod discovery;
mod ensure;
mod error_words;
pub mod events;
mod factory;
pub mod facts;
mod fifo;
mod finalizer;
mod held;
mod indexer;
mod informer;
mod key;
pub mod leader_election;
mod lister;
pub mod manager;
mod merge;
pub mod metrics;
#[doc(hidden)]
pub mod mutants;
pub mod names;
mod object;
pub mod owner;
pub mod permissions;
pub mod reasons;
mod reflector;
mod resource;
mod scope;
pub mod server;
mod status;
mod store;
mod version;
pub mod watch;
pub mod webhook;
mod workers;
pub mod workqueue;

pub use apply::{Apply, ApplyConflict, ApplyError, apply, apply_status};
pub use client::ClientConfig;
pub use controller::{Action, Context, Controller, Key, ReconcileError, Reconciler, Watches};
pub use delta_fifo::{Batch, Deleted, Delta, DeltaFifo};
pub use ensure::{Ensured, ensure};
pub use error_words::in_words;
pub use events::{Event, Recorder};
pub use factory::{CacheSyncError, SharedInformerFactory};
pub use facts::{Fact, Facts, LoopEvent};
pub use fifo::Fifo;
pub use finalizer::{Finalize, finalize};
pub use held::Held;
pub use indexer::{IndexError, Indexer, NAMESPACE_INDEX, View, Writer};
pub use informer::{
    EventHandler, HandlerFns, HandlerOptions, InformerBuilder, Registration, SharedInformer, is_resync,
};
pub use k8s_openapi;
pub use key::{InvalidKey, ObjectKey, key_of, split_key};
pub use kube;
pub use leader_election::{LeaderElection, LeaseConfig};
pub use lister::{Lister, NamespaceLister};
pub use manager::Manager;
pub use metrics::Metrics;
pub use object::{Object, Trimmed};
pub use permissions::{Permissions, Verb};
pub use reasons::{Cause, Reason, Reasons};
pub use reflector::{Backoff, ReflectorConfig, ReflectorError, ReflectorFailure};
pub use resource::ScopedResource;
pub use scope::Scope;
pub use setpoint_env::Env;
pub use status::patch_status;
pub use store::{MapStore, Slot, Store};
pub use version::ResourceVersion;
pub use watch::{Change, IntoWatch, Predicate, Watch, Watchable};
pub use workers::run_workers;
pub use workqueue::WorkQueue;
