//! Beside the manager: an HTTPS server for the webhooks that an API server calls.
//!
//! An API server asks before it stores an object (admission), and when it must serve an object in a version
//! that it is not stored in (conversion). What it asks are plain functions here. The server makes, keeps and renews its
//! certificate itself ([`ManagedCertificates`]), or reads one from files that somebody else renews ([`Certificates::files`]):
//!
//! ```no_run
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # use setpoint::{ClientConfig, Manager};
//! use setpoint::webhook::{AdmissionRequest, ManagedCertificates, Mutation, Verdict, WebhookServer};
//!
//! async fn check(request: AdmissionRequest<ConfigMap>) -> Verdict {
//!     match request.object.and_then(|map| map.data) {
//!         None => Verdict::deny("a ConfigMap without data helps nobody"),
//!         Some(_) => Verdict::allow(),
//!     }
//! }
//!
//! async fn label(request: AdmissionRequest<ConfigMap>) -> Mutation<ConfigMap> {
//!     let Some(mut map) = request.object else { return Mutation::none() };
//!     map.metadata.labels.get_or_insert_default().insert("seen".into(), "yes".into());
//!     Mutation::to(map)
//! }
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let client = ClientConfig::new().connect().await?;
//! // Reached through the Service `maps`; the names are those of the webhook configurations that call it.
//! let certificates = ManagedCertificates::new(client.clone(), "maps-system", "maps-webhooks")
//!     .service("maps", "maps-system")
//!     .validating("maps")
//!     .mutating("maps");
//! let webhooks = WebhookServer::new(certificates)
//!     .validate("/validate/configmaps", check)
//!     .mutate("/mutate/configmaps", label);
//! Manager::new(client).webhooks("0.0.0.0:9443".parse()?, webhooks).stop_on_signals().run().await?;
//! # Ok(())
//! # }
//! ```

mod admission;
mod certificates;
mod conversion;
mod managed;
mod metrics;
mod serve;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
pub use kube::core::admission::{AdmissionRequest, Operation};
use kube::core::{DynamicObject, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use setpoint_env::Env;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use admission::{Mutation, Verdict};
pub use certificates::{CertificateError, Certificates};
pub use conversion::ConversionError;
pub use managed::ManagedCertificates;

use self::metrics::WebhookMetrics;
use self::serve::Webhooks;
use crate::Metrics;

/// Answers a review, or says why what came is none.
pub(crate) type Handler = Arc<dyn Fn(Value) -> BoxFuture<'static, Result<Value, NotAReview>> + Send + Sync>;

/// What came is not a review of the right kind.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotAReview(pub(crate) String);

/// An HTTPS server that answers the webhook calls of an API server; see the [module](self).
#[must_use = "a server does nothing until it serves"]
pub struct WebhookServer {
    certificates: Certificates,
    handlers: BTreeMap<String, Handler>,
    env: Env,
    metrics: Metrics,
}

impl fmt::Debug for WebhookServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookServer").field("paths", &self.handlers.keys()).finish_non_exhaustive()
    }
}

impl WebhookServer {
    /// A server that answers nothing yet.
    pub fn new(certificates: impl Into<Certificates>) -> WebhookServer {
        let (certificates, metrics) = (certificates.into(), Metrics::default());
        WebhookServer { certificates, handlers: BTreeMap::new(), env: Env::system(), metrics }
    }

    /// Where time and tasks come from; the real ones unless set.
    pub fn env(mut self, env: Env) -> WebhookServer {
        self.env = env;
        self
    }

    /// Where to count the calls. A manager has them on its page.
    pub fn metrics(mut self, metrics: &Metrics) -> WebhookServer {
        self.metrics = metrics.clone();
        self
    }

    /// Asks `handler` whether a request about an object may go on.
    ///
    /// # Panics
    /// If the path has a handler already.
    pub fn validate<K, Fut>(
        self,
        path: impl Into<String>,
        handler: impl Fn(AdmissionRequest<K>) -> Fut + Send + Sync + 'static,
    ) -> WebhookServer
    where
        K: Resource + DeserializeOwned + Send + 'static,
        Fut: Future<Output = Verdict> + Send + 'static,
    {
        self.route(path.into(), admission::validating(handler))
    }

    /// Lets `handler` change an object before it is stored. What it leaves as it came stays as it came, fields
    /// that `K` does not know included.
    ///
    /// # Panics
    /// If the path has a handler already.
    pub fn mutate<K, Fut>(
        self,
        path: impl Into<String>,
        handler: impl Fn(AdmissionRequest<K>) -> Fut + Send + Sync + 'static,
    ) -> WebhookServer
    where
        K: Resource + Serialize + DeserializeOwned + Send + 'static,
        Fut: Future<Output = Mutation<K>> + Send + 'static,
    {
        self.route(path.into(), admission::mutating(handler))
    }

    /// Converts objects: `handler` gets one object and the `apiVersion` that is wanted. It must keep the
    /// metadata, but for labels and annotations.
    ///
    /// # Panics
    /// If the path has a handler already.
    pub fn convert<Fut>(
        self,
        path: impl Into<String>,
        handler: impl Fn(DynamicObject, String) -> Fut + Send + Sync + 'static,
    ) -> WebhookServer
    where
        Fut: Future<Output = Result<DynamicObject, ConversionError>> + Send + 'static,
    {
        self.route(path.into(), conversion::converting(handler))
    }

    fn route(mut self, path: String, handler: Handler) -> WebhookServer {
        assert!(path.starts_with('/'), "the path {path:?} of a webhook starts with a slash");
        assert!(!self.handlers.contains_key(&path), "two webhooks have the path {path:?}");
        self.handlers.insert(path, handler);
        self
    }

    /// Serves until `shutdown` is cancelled. Requests under way are answered.
    pub async fn serve(
        self,
        listener: TcpListener,
        shutdown: CancellationToken,
    ) -> Result<(), CertificateError> {
        let started = shutdown.run_until_cancelled(self.certificates.start(&self.env)).await;
        let Some(started) = started else { return Ok(()) };
        let (tls, _reload) = started?;
        let metrics = WebhookMetrics::new(self.metrics, self.env.clone());
        let webhooks = Webhooks { handlers: self.handlers, metrics };
        serve::serve(&self.env, listener, tls, webhooks, shutdown).await;
        Ok(())
    }
}
