//! Informers, work queues and controllers for Kubernetes.

pub mod client;
mod delta_fifo;
mod factory;
mod fifo;
mod indexer;
mod informer;
mod key;
mod lister;
pub mod metrics;
mod object;
mod reflector;
mod scope;
mod store;
mod version;

pub use client::ClientConfig;
pub use delta_fifo::{Batch, Deleted, Delta, DeltaFifo};
pub use factory::{CacheSyncError, SharedInformerFactory};
pub use fifo::Fifo;
pub use indexer::{IndexError, Indexer, NAMESPACE_INDEX, View, Writer};
pub use informer::{
    EventHandler, HandlerFns, HandlerOptions, InformerBuilder, Registration, SharedInformer, is_resync,
};
pub use k8s_openapi;
pub use key::ObjectKey;
pub use kube;
pub use lister::{Lister, NamespaceLister};
pub use metrics::Metrics;
pub use object::{Object, Trimmed};
pub use reflector::{Backoff, Failure, ReflectorConfig, ReflectorError};
pub use scope::Scope;
pub use setpoint_env::Env;
pub use store::{MapStore, Store};
pub use version::ResourceVersion;
