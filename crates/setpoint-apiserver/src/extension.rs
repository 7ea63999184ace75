//! Extension API servers: kinds of your own, which another server hands on to this one by an APIService.
//!
//! A kind is a Rust type, or several versions of one. Its objects are kept here ([`Kind::stored`]), told by your program and
//! only read by others ([`Kind::told`], [`ExtensionServer::tell`]), or made when somebody asks ([`Kind::made`], a [`Resource`]). In each case they are
//! served as a Kubernetes API: discovery, OpenAPI from the Rust type, selectors, pages, tables; and what is kept also with
//! watches that resume, patches and server-side apply.
//!
//! Who asks is decided by the server in front ([`Delegation`]): users come with its front-proxy certificate, or with a token
//! that it is asked about; and it is asked what they may do.
//!
//! ```no_run
//! # async fn run(
//! #     listener: tokio::net::TcpListener,
//! #     identity: setpoint_apiserver::pki::Identity,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
//! use setpoint_apiserver::extension::{Asked, Delegation, ExtensionServer, Failure, Kind, Listed, Resource};
//! # use kube::Client; use serde::{Deserialize, Serialize}; use schemars::JsonSchema; use setpoint_env::Env;
//! # #[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
//! # struct Tide { #[schemars(skip)] metadata: ObjectMeta, level: i32 }
//! # impl kube::Resource for Tide {
//! #     type DynamicType = (); type Scope = kube::core::ClusterResourceScope;
//! #     fn kind(_: &()) -> std::borrow::Cow<'_, str> { "Tide".into() }
//! #     fn group(_: &()) -> std::borrow::Cow<'_, str> { "sea.example.com".into() }
//! #     fn version(_: &()) -> std::borrow::Cow<'_, str> { "v1".into() }
//! #     fn plural(_: &()) -> std::borrow::Cow<'_, str> { "tides".into() }
//! #     fn meta(&self) -> &ObjectMeta { &self.metadata }
//! #     fn meta_mut(&mut self) -> &mut ObjectMeta { &mut self.metadata }
//! # }
//! struct Gauge;
//!
//! impl Resource for Gauge {
//!     type Object = Tide;
//!
//!     async fn list(&self, _asked: &Asked) -> Result<Listed<Tide>, Failure> {
//!         let metadata = ObjectMeta { name: Some("harbour".into()), ..ObjectMeta::default() };
//!         Ok(vec![Tide { metadata, level: 7 }].into())
//!     }
//! }
//!
//! let delegation = Delegation::to(Client::try_default().await?);
//! let server = ExtensionServer::builder()
//!     .kind(Kind::made(Gauge).column("Level", "integer", ".level"))
//!     .delegation(delegation)
//!     .build(&Env::system())
//!     .await?;
//! server.serve(listener, &identity, Default::default()).await?;
//! # Ok(())
//! # }
//! ```

mod asked;
mod delegation;
mod engine;
mod failure;
mod kind;
mod program;
mod resource;
mod source;
mod subresource;
mod verbs;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Request;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use setpoint_env::Env;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::Service;

use crate::admission::Plugin;
use crate::audit::AuditLog;
use crate::pki::{self, ClientAuthorities, Identity};
use crate::server::ApiServer;
use crate::storage::OpenError;
use crate::user::User;

pub use asked::Asked;
pub(crate) use asked::asked_by;
pub(crate) use delegation::Delegated;
pub use delegation::{Delegation, DelegationError};
pub(crate) use engine::Sourced;
pub(crate) use failure::FailureCause;
pub use failure::{Failure, Invalid};
use kind::Declared;
pub use kind::Kind;
pub(crate) use program::{Program, Programs};
pub use resource::{Change, Changes, Listed, Object, Resource};
pub(crate) use source::Source;
pub use subresource::{Call, StreamedBody, Subresource};
pub use verbs::Verbs;

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtensionError {
    /// A kind cannot be served.
    #[error("the kind {kind} cannot be served: {why}; look at its schema, its names and its columns")]
    Kind {
        /// Its plural and group.
        kind: String,
        /// What the server says.
        why: String,
    },
    /// The server in front does not say whom to trust.
    #[error("cannot read from the API server which callers to trust")]
    Delegation(#[from] DelegationError),
    /// The folder of the objects cannot be used.
    #[error("the store of the objects cannot be opened")]
    Open(#[from] OpenError),
    /// The certificate cannot be used.
    #[error("the certificate cannot be used")]
    Tls(#[from] pki::Error),
    /// The audit log cannot be opened.
    #[error("the audit log cannot be opened")]
    Audit(#[source] std::io::Error),
}

/// Why an object was not told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TellError {
    /// It is no object.
    #[error("the object cannot be published")]
    Object(#[from] Failure),
    /// It cannot be stored.
    #[error("the object cannot be stored")]
    Store(#[from] kube::Error),
}

/// What an [`ExtensionServer`] serves, and for whom.
#[derive(Default)]
#[must_use = "a builder does nothing until build is called"]
pub struct Builder {
    kinds: Vec<Declared>,
    delegation: Option<Delegation>,
    folder: Option<std::path::PathBuf>,
    audit: Option<AuditLog>,
}

impl Builder {
    /// A kind.
    pub fn kind<K: Object>(mut self, kind: Kind<K>) -> Builder {
        self.kinds.push(kind.into_declared());
        self
    }

    /// Who decides who asks, and what they may do. Without it only code of this process is served: requests from outside are
    /// refused.
    pub fn delegation(mut self, delegation: Delegation) -> Builder {
        self.delegation = Some(delegation);
        self
    }

    /// Where objects are kept, so that they outlive the process. In memory unless set.
    pub fn folder(mut self, folder: impl Into<std::path::PathBuf>) -> Builder {
        self.folder = Some(folder.into());
        self
    }

    /// Writes down who did what.
    pub fn audit(mut self, log: AuditLog) -> Builder {
        self.audit = Some(log);
        self
    }

    /// Starts a server. Call it inside a tokio runtime.
    ///
    /// # Errors
    /// If a kind cannot be served, or the server in front does not answer.
    pub async fn build(self, env: &Env) -> Result<ExtensionServer, ExtensionError> {
        let mut builder = ApiServer::builder().env(env.clone()).anonymous(true);
        builder = builder.without_plugin(Plugin::NamespaceLifecycle);
        if let Some(log) = self.audit {
            builder = builder.audit(log).map_err(ExtensionError::Audit)?;
        }
        let mut authorities = ClientAuthorities::new(&[]);
        let mut known = BTreeMap::new();
        if let Some(delegation) = &self.delegation {
            let published = delegation.published().await?;
            authorities = ClientAuthorities::new(&published.authorities());
            known = published.data;
            builder = builder.client_authorities(published.clients).delegated(delegation.start(env));
            if let Some(proxy) = published.proxy {
                builder = builder.front_proxy(proxy);
            }
        }
        let mut programs = Programs::new();
        let mut definitions = Vec::new();
        let mut groups = Vec::new();
        for kind in self.kinds {
            definitions.push((kind.name(), kind.definition()));
            groups.push(kind.group().to_owned());
            programs.insert(kind.collection(), Arc::new(kind.program));
        }
        let builder = builder.programs(programs);
        let server = match &self.folder {
            Some(folder) => builder.open(folder).await?,
            None => builder.build(),
        };
        let api: Api<CustomResourceDefinition> = Api::all(server.client());
        for (name, definition) in definitions {
            let apply = PatchParams::apply("setpoint-extension").force();
            let applied = api.patch(&name, &apply, &Patch::Apply(&definition)).await;
            applied.map_err(|error| ExtensionError::Kind { kind: name, why: error.to_string() })?;
        }
        server.limit_to(groups);
        let trusted =
            Arc::new(Trusted { authorities: Arc::new(authorities), delegation: self.delegation, known });
        Ok(ExtensionServer { server, env: env.clone(), trusted })
    }
}

/// A server for kinds of your own. Clones are handles on the same server.
#[derive(Clone, Debug)]
pub struct ExtensionServer {
    server: ApiServer,
    env: Env,
    trusted: Arc<Trusted>,
}

/// Whom the server trusts, and who says so.
#[derive(Debug)]
struct Trusted {
    authorities: Arc<ClientAuthorities>,
    delegation: Option<Delegation>,
    /// What was known at the start.
    known: BTreeMap<String, String>,
}

impl ExtensionServer {
    /// What a new server shall serve.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A client that calls this server directly, as its author: to [tell](ExtensionServer::tell) objects in other ways, or
    /// to test.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        let service = self.server.as_user(User::admin());
        let own = move |mut request: Request<kube::client::Body>| {
            request.extensions_mut().insert(Author);
            service.clone().call(request)
        };
        kube::Client::new(tower::service_fn(own), "default")
    }

    /// Tells an object: it is there from now on, or it is now like this. Others see it in lists and watches.
    ///
    /// # Errors
    /// If the object cannot be stored: it does not fit the schema, say.
    pub async fn tell<K>(&self, object: &K) -> Result<(), TellError>
    where
        K: kube::Resource<DynamicType = ()> + serde::Serialize,
    {
        let value = source::value(object)?;
        let name = object.meta().name.clone().unwrap_or_default();
        let apply = PatchParams::apply("setpoint-extension").force();
        let objects = self.objects::<K>(object.meta().namespace.as_deref());
        objects.patch(&name, &apply, &Patch::Apply(&value)).await?;
        Ok(())
    }

    /// Takes an object back that was told. It is no error if there is none.
    ///
    /// # Errors
    /// If it cannot be deleted.
    pub async fn forget<K>(&self, namespace: Option<&str>, name: &str) -> Result<(), TellError>
    where
        K: kube::Resource<DynamicType = ()>,
    {
        match self.objects::<K>(namespace).delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            deleted => Ok(deleted.map(drop)?),
        }
    }

    fn objects<K: kube::Resource<DynamicType = ()>>(&self, namespace: Option<&str>) -> Api<DynamicObject> {
        let resource = ApiResource::erase::<K>(&());
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client(), namespace, &resource),
            None => Api::all_with(self.client(), &resource),
        }
    }

    /// Serves HTTPS until `shutdown` is cancelled. `identity` is the certificate that the APIService's `caBundle` vouches
    /// for, for the name `SERVICE.NAMESPACE.svc`.
    ///
    /// # Errors
    /// If the certificate cannot be used.
    pub async fn serve(
        &self,
        listener: TcpListener,
        identity: &Identity,
        shutdown: CancellationToken,
    ) -> Result<(), ExtensionError> {
        let authorities = Arc::clone(&self.trusted.authorities);
        let tls = pki::server_config_with(&self.env, identity, Some(authorities))?;
        tokio::select! {
            () = self.server.serve(listener, tls, shutdown) => {}
            () = self.follow() => {}
        }
        Ok(())
    }

    /// Trusts whom the server in front trusts, as that changes.
    async fn follow(&self) {
        let Trusted { authorities, delegation, known } = &*self.trusted;
        let Some(delegation) = delegation else { return std::future::pending().await };
        let changed = |published: delegation::Published| {
            authorities.set(&published.authorities());
            self.server.set_trust(published.clients, published.proxy);
        };
        delegation.follow(known.clone(), changed).await;
    }

    /// Ends all watches, and closes the store.
    pub async fn close(&self) {
        self.server.close().await;
    }
}

/// An extension of a request: it comes from the program that serves the kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Author;

/// The server without a listener, for tests: who a request is from is up to the caller.
impl<R> Service<R> for ExtensionServer
where
    ApiServer: Service<R, Error = Infallible>,
{
    type Response = <ApiServer as Service<R>>::Response;
    type Error = Infallible;
    type Future = <ApiServer as Service<R>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.server.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        self.server.call(request)
    }
}
