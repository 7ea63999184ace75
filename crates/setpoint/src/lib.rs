//! Informers, work queues and controllers for Kubernetes.

mod delta_fifo;
mod fifo;
mod indexer;
mod key;
pub mod metrics;
mod object;
mod reflector;
mod scope;
mod store;
mod version;

pub use delta_fifo::{Batch, Delta, Deleted, DeltaFifo};
pub use fifo::Fifo;
pub use indexer::{IndexError, Indexer, NAMESPACE_INDEX, View, Writer};
pub use k8s_openapi;
pub use key::ObjectKey;
pub use kube;
pub use metrics::Metrics;
pub use object::{Object, Trimmed};
pub use reflector::{Backoff, Failure, ReflectorConfig, ReflectorError};
pub use scope::Scope;
pub use store::{MapStore, Store};
pub use version::ResourceVersion;
