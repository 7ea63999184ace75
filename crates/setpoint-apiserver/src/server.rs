//! The server: a `tower::Service`, and how one is built.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use setpoint_env::{Env, Task};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Service};

use crate::admission::{self, AdmissionPlugins};
use crate::aggregation::{self, Aggregation};
use crate::audit::{Audit, AuditLog, OpenLog};
use crate::authenticate::{Authenticator, FrontProxy, ServiceAccountTokens, TokenFile, TokenSigner, Trust};
use crate::authorize::Authorization;
use crate::background::{Background, Upkeep};
use crate::bootstrap;
use crate::contention::Queues;
use crate::definitions::{self, Definitions};
use crate::extension::{Delegated, Programs, Sourced};
use crate::filters;
use crate::kinds::Orphans;
use crate::kinds::network::ServiceIpRanges;
use crate::kubernetes_service::{self, Advertised};
use crate::limits;
use crate::logs::LogSource;
use crate::metrics::Metrics;
use crate::pki::{self, Identity};
use crate::rbac::{self, Rbac};
use crate::resource::{Registry, Resource};
use crate::response::Body;
use crate::serve;
use crate::status::Result;
use crate::storage::{Committed, Durability, Limits, Memory, NotStored, Observer, OpenError, Redb, Storage};
#[cfg(feature = "etcd")]
use crate::storage::{Etcd, EtcdError, EtcdOptions};
use crate::store;
use crate::upstream::{Clients, Locations};
use crate::user::User;
use crate::writes::Writes;

/// How often expired objects are looked for.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(30);
/// How long history is kept at least.
const COMPACTION_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// How long a server that closes waits for writes whose clients have gone.
const GRACE: Duration = Duration::from_secs(5);

/// A Kubernetes API server.
///
/// It is a [`tower::Service`]: hand it to [`kube::Client`], or serve it over HTTPS with [`ApiServer::serve`].
/// Clones are handles on the same server; it ends when the last of them is gone.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::api::{Api, PostParams};
/// use setpoint_apiserver::ApiServer;
///
/// let server = ApiServer::builder().build();
/// let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
///
/// let mut map = ConfigMap::default();
/// map.metadata.name = Some("greeting".into());
/// maps.create(&PostParams::default(), &map).await?;
/// assert_eq!(maps.get("greeting").await?.metadata.namespace.as_deref(), Some("default"));
/// # Ok::<(), kube::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct ApiServer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    core: Arc<Core>,
    /// These end with the server.
    _tasks: Vec<Task<()>>,
}

/// What handlers work with.
pub(crate) struct Core {
    pub env: Env,
    pub storage: Box<dyn Storage>,
    /// Who waits to change a record that others change too.
    pub queues: Queues,
    pub metrics: Metrics,
    pub limits: limits::Limits,
    pub rbac: Rbac,
    pub authenticator: Authenticator,
    pub authorization: Authorization,
    pub admission: admission::Webhooks,
    pub policies: admission::Policies,
    pub webhooks: Clients,
    pub aggregation: Aggregation,
    pub locations: Locations,
    /// Who decides instead of this server who asks, and what they may do.
    pub delegated: Option<Delegated>,
    /// The kinds of an extension server: their code. Of definitions without any nothing is served then.
    pub programs: Option<Programs>,
    /// The groups that are served, if it is not everything.
    limited: OnceLock<Vec<String>>,
    pub audit: Option<Audit>,
    pub writes: Arc<Writes>,
    pub background: Background,
    pub plugins: admission::Plugins,
    pub definitions: Definitions,
    pub advertised: Arc<Advertised>,
    pub service_ranges: ServiceIpRanges,
    pub node_ports: Orphans,
    /// Whether discovery is also offered in one document.
    pub has_aggregated_discovery: bool,
    pub logs: Option<Arc<dyn LogSource>>,
    /// Cancelled, and replaced, when the running watches shall end.
    watches: Mutex<CancellationToken>,
}

impl Core {
    /// A resource that is served, built in or custom.
    pub(crate) fn resource(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        let built_in = Registry::built_in().find(group, version, plural).cloned();
        built_in.or_else(|| self.definitions.find(group, version, plural))
    }

    /// Whether nothing but what definitions define is served.
    pub(crate) fn is_limited(&self) -> bool {
        self.limited.get().is_some()
    }

    /// Whether this group is served.
    pub(crate) fn serves(&self, group: &str) -> bool {
        self.limited.get().is_none_or(|groups| groups.iter().any(|served| served == group))
    }

    /// Cancelled when a watch that starts now shall end.
    pub(crate) fn watch_token(&self) -> CancellationToken {
        self.watches.lock().clone()
    }

    /// Every version of the kind of a resource, itself included.
    pub(crate) fn versions_of(&self, resource: &Resource) -> Vec<Arc<Resource>> {
        match resource.definition() {
            Some(_) => self.definitions.served().versions_of(resource),
            None => Registry::built_in().versions_of(resource),
        }
    }

    /// Whether the server is about to end.
    pub(crate) fn is_ending(&self) -> bool {
        self.watches.lock().is_cancelled()
    }

    /// Ends the running watches; those that start later run.
    fn end_watches(&self) {
        let ended = std::mem::take(&mut *self.watches.lock());
        ended.cancel();
    }

    /// Ends the running watches, and any that start later.
    fn refuse_watches(&self) {
        self.watches.lock().cancel();
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("revision", &self.storage.revision()).finish_non_exhaustive()
    }
}

/// The settings of an [`ApiServer`].
#[derive(Debug)]
#[must_use = "a builder does nothing until build is called"]
pub struct Builder {
    env: Option<Env>,
    history: Limits,
    compaction_interval: Duration,
    durability: Durability,
    authorization: Authorization,
    tokens: TokenFile,
    service_account_tokens: ServiceAccountTokens,
    is_anonymous_allowed: bool,
    client_authorities: Vec<CertificateDer<'static>>,
    front_proxy: Option<FrontProxy>,
    proxy_identity: Option<Arc<Identity>>,
    outward_proxy: Option<FrontProxy>,
    locations: Locations,
    delegated: Option<Delegated>,
    programs: Option<Programs>,
    audit: Option<OpenLog>,
    plugins: AdmissionPlugins,
    advertise_address: Option<IpAddr>,
    service_ranges: ServiceIpRanges,
    has_aggregated_discovery: bool,
    logs: Option<Arc<dyn LogSource>>,
    observer: Option<Observer>,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            env: None,
            history: Limits::default(),
            compaction_interval: COMPACTION_INTERVAL,
            durability: Durability::default(),
            authorization: Authorization::default(),
            tokens: TokenFile::default(),
            service_account_tokens: ServiceAccountTokens::default(),
            is_anonymous_allowed: false,
            client_authorities: Vec::new(),
            front_proxy: None,
            proxy_identity: None,
            outward_proxy: None,
            locations: Locations::default(),
            delegated: None,
            programs: None,
            audit: None,
            plugins: AdmissionPlugins::default(),
            advertise_address: None,
            service_ranges: ServiceIpRanges::default(),
            has_aggregated_discovery: true,
            logs: None,
            observer: None,
        }
        .service_accounts(false)
    }
}

impl Builder {
    /// The source of time and randomness; [`Env::system`] by default.
    pub fn env(mut self, env: Env) -> Builder {
        self.env = Some(env);
        self
    }

    /// Bounds the history for watches and for lists at past resourceVersions: the number of changes, and the bytes of
    /// their objects. 100,000 changes and 64 MiB by default. See also [`Builder::compaction_interval`].
    pub fn history(mut self, changes: usize, bytes: usize) -> Builder {
        self.history = Limits { events: changes, bytes };
        self
    }

    /// The age at which history is compacted: between one and two of these intervals. Older continue tokens, and
    /// watches that would miss an event, get 410. Five minutes by default, as in kube-apiserver; zero keeps history
    /// as long as there is room.
    pub fn compaction_interval(mut self, interval: Duration) -> Builder {
        self.compaction_interval = interval;
        self
    }

    /// Acknowledges writes before they are on the disk, which is faster and enough for tests. If the process ends,
    /// nothing is lost; a power failure may cost the whole store.
    pub fn unsynced(mut self) -> Builder {
        self.durability = Durability::Unsynced;
        self
    }

    /// Decides what users may do; RBAC by default.
    pub fn authorization(mut self, authorization: Authorization) -> Builder {
        self.authorization = authorization;
        self
    }

    /// Bearer tokens that the server accepts, in addition to those that it signs for service accounts.
    pub fn tokens(mut self, tokens: TokenFile) -> Builder {
        self.tokens = tokens;
        self
    }

    /// How service account tokens are signed and verified.
    pub fn service_account_tokens(mut self, tokens: ServiceAccountTokens) -> Builder {
        self.service_account_tokens = tokens;
        self
    }

    /// Whether requests without credentials are requests of `system:anonymous`, who may do what RBAC allows: without
    /// further roles that is `/healthz`, `/livez`, `/readyz` and `/version`. Off by default, and with
    /// [`Authorization::AlwaysAllow`]: such requests get 401.
    pub fn anonymous(mut self, is_allowed: bool) -> Builder {
        self.is_anonymous_allowed = is_allowed;
        self
    }

    /// The certificate authorities of clients, as in the TLS settings of [`ApiServer::serve`]. They are published to
    /// other servers in the ConfigMap `kube-system/extension-apiserver-authentication`, and tell other clients from a
    /// front proxy.
    pub fn client_authorities(mut self, authorities: Vec<CertificateDer<'static>>) -> Builder {
        self.client_authorities = authorities;
        self
    }

    /// A proxy that authenticates users for the server. None by default. It needs [`Builder::client_authorities`]: a
    /// certificate that none of them has issued is not that of a user.
    pub fn front_proxy(mut self, proxy: FrontProxy) -> Builder {
        self.front_proxy = Some(proxy);
        self
    }

    /// The client certificate for the servers behind this one (those of APIServices with a service), which lets them
    /// trust it to say who the user is. Without it they see an unknown client.
    pub fn proxy_client(mut self, identity: Identity) -> Builder {
        self.proxy_identity = Some(Arc::new(identity));
        self
    }

    /// Publishes how servers behind this one verify its [`Builder::proxy_client`], in the ConfigMap
    /// `kube-system/extension-apiserver-authentication`. This server does not accept requests from such a proxy;
    /// [`Builder::front_proxy`] does, and takes precedence.
    pub fn published_proxy(mut self, proxy: FrontProxy) -> Builder {
        self.outward_proxy = Some(proxy);
        self
    }

    /// The address of a service, instead of its endpoints, for calls of this server to webhooks and to the servers of
    /// APIServices. Without a port it is the address of all ports of the service.
    pub fn service_address(
        mut self,
        namespace: impl Into<String>,
        name: impl Into<String>,
        port: Option<u16>,
        address: SocketAddr,
    ) -> Builder {
        self.locations.set(namespace.into(), name.into(), port, address);
        self
    }

    /// The admission plugins that run; by default those that kube-apiserver enables, without `ServiceAccount`.
    pub fn admission_plugins(mut self, plugins: AdmissionPlugins) -> Builder {
        self.plugins = plugins;
        self
    }

    pub(crate) fn without_plugin(mut self, plugin: admission::Plugin) -> Builder {
        self.plugins.switch(plugin, false);
        self
    }

    pub(crate) fn delegated(mut self, delegated: Delegated) -> Builder {
        self.delegated = Some(delegated);
        self
    }

    pub(crate) fn programs(mut self, programs: Programs) -> Builder {
        self.programs = Some(programs);
        self
    }

    /// Whether a new pod needs an existing service account, and gets its token as a volume: the admission plugin
    /// `ServiceAccount`. Off by default, as in envtest: it needs a controller that creates the account `default` in
    /// each namespace.
    pub fn service_accounts(mut self, are_made: bool) -> Builder {
        self.plugins.switch(admission::Plugin::ServiceAccount, are_made);
        self
    }

    /// The address in the Endpoints and the EndpointSlice of the service `kubernetes`, which exist while the server
    /// [serves](ApiServer::serve). By default it is the address that the server listens on or, if others cannot use
    /// that, the address of this machine.
    pub fn advertise_address(mut self, address: IpAddr) -> Builder {
        self.advertise_address = Some(address);
        self
    }

    /// Whether aggregated discovery is served. On by default; without it clients send one request for each
    /// group-version.
    pub fn aggregated_discovery(mut self, is_offered: bool) -> Builder {
        self.has_aggregated_discovery = is_offered;
        self
    }

    /// The address ranges of services; 10.96.0.0/12 by default. They are published in the ServiceCIDR `kubernetes`.
    pub fn service_cluster_ip_ranges(mut self, ranges: ServiceIpRanges) -> Builder {
        self.service_ranges = ranges;
        self
    }

    /// Writes an audit log.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn audit(mut self, log: AuditLog) -> std::io::Result<Builder> {
        self.audit = Some(log.open()?);
        Ok(self)
    }

    /// The source of container logs for `kubectl logs`. Without one it is refused, because there is no kubelet.
    pub fn logs(mut self, source: impl LogSource) -> Builder {
        self.logs = Some(Arc::new(source));
        self
    }

    /// Calls a function for every change at the moment when a server in memory commits it, for checkers in tests. It
    /// runs while the store is locked: it must be fast, and must not call the server.
    pub fn observer(mut self, tell: impl Fn(Committed) + Send + Sync + 'static) -> Builder {
        self.observer = Some(Observer::new(tell));
        self
    }

    /// Starts a server that keeps all objects in memory. Call it inside a tokio runtime.
    #[must_use]
    pub fn build(self) -> ApiServer {
        let env = self.env.clone().unwrap_or_default();
        let storage = Box::new(Memory::new(self.history).timed(env).observed(self.observer.clone()));
        let started = self.start(storage).now_or_never().expect("memory keeps nobody waiting");
        started.expect("memory keeps everything")
    }

    /// Starts a server that stores all objects in a file in `folder`, which is created if it does not exist.
    /// Acknowledged writes survive a crash of the process. Only one server at a time can open the folder.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// use k8s_openapi::api::core::v1::Namespace;
    /// use kube::api::{Api, PostParams};
    /// use setpoint_apiserver::ApiServer;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let server = ApiServer::builder().open(&folder).await?;
    /// let mut namespace = Namespace::default();
    /// namespace.metadata.name = Some("stays".into());
    /// Api::all(server.client()).create(&PostParams::default(), &namespace).await?;
    /// server.close().await;
    ///
    /// let again = ApiServer::builder().open(&folder).await?;
    /// Api::<Namespace>::all(again.client()).get("stays").await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn open(mut self, folder: impl AsRef<Path>) -> Result<ApiServer, OpenError> {
        let folder = folder.as_ref();
        let env = self.env.clone().unwrap_or_default();
        let storage = Box::new(Redb::open_in(folder, self.history, self.durability).await?.timed(env));
        self = self.signing_key_in(folder)?;
        Ok(self.start(storage).await?)
    }

    /// Signs service account tokens with the key in a folder, unless a key is set already. The folder and the key are
    /// created if they do not exist. [`Builder::open`] calls it.
    pub fn signing_key_in(mut self, folder: impl AsRef<Path>) -> Result<Builder, OpenError> {
        if !self.service_account_tokens.has_signing_key() {
            let key = pki::signing_key(&folder.as_ref().join("pki")).map_err(OpenError::SigningKey)?;
            self.service_account_tokens = self.service_account_tokens.signing_key(key);
        }
        Ok(self)
    }

    /// Starts a server that stores all objects in etcd, as kube-apiserver does: each can be started on the data of
    /// the other, and several servers can share it. Service account tokens are signed only with an explicit key
    /// ([`Builder::service_account_tokens`]), which all servers must share.
    ///
    /// # Errors
    /// If etcd does not answer within twenty seconds.
    #[cfg(feature = "etcd")]
    pub async fn connect(self, etcd: &EtcdOptions) -> Result<ApiServer, EtcdError> {
        let env = self.env.clone().unwrap_or_default();
        let (layout, background) = (Box::new(crate::storage::Registry::new()), Background::default());
        let storage =
            Etcd::open(etcd, layout, self.history, self.compaction_interval, &env, &background).await?;
        Ok(self.start_with(Box::new(storage), background).await?)
    }

    pub(crate) async fn start(self, storage: Box<dyn Storage>) -> Result<ApiServer, NotStored> {
        self.start_with(storage, Background::default()).await
    }

    /// The same; `background` has the tasks of the storage already.
    async fn start_with(
        self,
        storage: Box<dyn Storage>,
        background: Background,
    ) -> Result<ApiServer, NotStored> {
        let env = self.env.unwrap_or_default();
        let storage = with_sources(storage, self.programs.as_ref());
        let core = Arc::new(Core {
            storage,
            queues: Queues::default(),
            metrics: Metrics::new(&env),
            limits: limits::Limits::default(),
            rbac: Rbac::default(),
            authenticator: Authenticator::new(
                self.tokens,
                self.service_account_tokens,
                self.is_anonymous_allowed && self.authorization != Authorization::AlwaysAllow,
                Trust::new(self.client_authorities, self.front_proxy).outward(self.outward_proxy),
            ),
            authorization: self.authorization,
            admission: admission::Webhooks::default(),
            policies: admission::Policies::default(),
            webhooks: Clients::default(),
            aggregation: Aggregation::new(self.proxy_identity),
            locations: self.locations,
            delegated: self.delegated,
            programs: self.programs,
            limited: OnceLock::new(),
            audit: self.audit.map(|log| log.start(&env, &background)),
            writes: Writes::new(&env),
            background,
            plugins: admission::Plugins::new(&self.plugins),
            definitions: Definitions::default(),
            advertised: Arc::new(Advertised::at(self.advertise_address)),
            service_ranges: self.service_ranges,
            node_ports: Orphans::default(),
            has_aggregated_discovery: self.has_aggregated_discovery,
            logs: self.logs,
            watches: Mutex::default(),
            env: env.clone(),
        });
        bootstrap::run(&core).await?;
        if let Err(error) = kubernetes_service::settings(&core).await {
            // The task below tries it again.
            tracing::error!(%error, "cannot publish the objects that describe this server yet; retrying");
        }
        if let Err(error) = definitions::sync(&core).await {
            // The task below tries it again.
            tracing::error!(%error, "cannot serve custom resources yet; retrying");
        }
        if let Err(error) = aggregation::sync(&core).await {
            // The task below tries it again.
            tracing::error!(%error, "cannot proxy requests to APIServices yet; retrying");
        }
        let weak = Arc::downgrade(&core);
        let keep = |name, upkeep: Upkeep| {
            let weak = Weak::clone(&weak);
            core.background.run(&env, name, move || upkeep.clone().run(name, Weak::clone(&weak)))
        };
        let definitions = keep("definitions", definitions::upkeep(&core));
        let roles = keep("roles", rbac::upkeep());
        let service = {
            let weak = Weak::clone(&weak);
            let keep = move || kubernetes_service::upkeep(Weak::clone(&weak));
            core.background.run(&env, "kubernetes-service", keep)
        };
        let backends = {
            let weak = Weak::clone(&weak);
            core.background.run(&env, "aggregation", move || aggregation::run(Weak::clone(&weak)))
        };
        let aging = (!self.compaction_interval.is_zero()).then(|| {
            let (weak, interval) = (Weak::clone(&weak), self.compaction_interval);
            core.background.run(&env, "compaction", move || age(Weak::clone(&weak), interval))
        });
        let expiry = core.background.run(&env, "expiry", move || expire(Weak::clone(&weak)));
        let tasks = [expiry, definitions, roles, service, backends].into_iter().chain(aging).collect();
        Ok(ApiServer { shared: Arc::new(Shared { core, _tasks: tasks }) })
    }
}

/// The store, and what an extension server keeps elsewhere.
fn with_sources(storage: Box<dyn Storage>, programs: Option<&Programs>) -> Box<dyn Storage> {
    let programs = programs.into_iter().flatten();
    let sources: BTreeMap<_, _> = programs
        .filter_map(|(collection, program)| Some((collection.clone(), Arc::clone(program.source.as_ref()?))))
        .collect();
    if sources.is_empty() { storage } else { Box::new(Sourced::new(storage, sources)) }
}

/// Removes what has expired, now and then.
async fn expire(core: Weak<Core>) {
    loop {
        tokio::time::sleep(EXPIRY_INTERVAL).await;
        let Some(core) = core.upgrade() else { return };
        let now = core.env.now();
        core.storage.expire(now).await;
    }
}

/// Forgets in each interval what was history before the last one.
async fn age(core: Weak<Core>, interval: Duration) {
    let mut old = 0;
    loop {
        tokio::time::sleep(interval).await;
        let Some(core) = core.upgrade() else { return };
        core.storage.age(old);
        old = core.storage.revision();
    }
}

impl ApiServer {
    /// Settings for a new server.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A client of an administrator that calls this server directly, without a socket or TLS.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        self.client_as(User::admin())
    }

    /// Like [`ApiServer::client`], for another user, to whom RBAC applies.
    #[must_use]
    pub fn client_as(&self, user: User) -> kube::Client {
        kube::Client::new(self.as_user(user), "default")
    }

    /// Signs tokens for service account secrets that this server accepts.
    #[must_use]
    pub fn token_signer(&self) -> TokenSigner {
        TokenSigner::of(Arc::clone(&self.shared.core))
    }

    /// The service as called by `user`, to put layers around it.
    #[must_use]
    pub fn as_user(&self, user: User) -> AsUser {
        AsUser { server: self.clone(), user: Arc::new(user.authenticated()) }
    }

    /// Serves HTTPS on `listener` until `shutdown` is cancelled: HTTP/1.1 and HTTP/2, with client certificates.
    /// Watches end with it.
    pub async fn serve(&self, listener: TcpListener, tls: Arc<ServerConfig>, shutdown: CancellationToken) {
        let core = &self.shared.core;
        core.end_watches();
        if let Ok(address) = listener.local_addr() {
            core.advertised.listen(address);
        }
        let options =
            serve::Options { env: core.env.clone(), shutdown: shutdown.clone(), ..serve::Options::default() };
        let stop_watches = async {
            shutdown.cancelled().await;
            core.refuse_watches();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = stop_watches => {}
            () = serve::serve(self.clone(), listener, tls, options) => {}
        }
    }

    /// Ends all running watches, as a restart of the server would. Clients reconnect.
    pub fn end_watches(&self) {
        self.shared.core.end_watches();
    }

    /// Ends all running watches, waits for writes of disconnected clients, and closes the store. Later changes are
    /// refused, and another server can open the folder. On a server in memory nothing changes.
    pub async fn close(&self) {
        let core = &self.shared.core;
        core.end_watches();
        if tokio::time::timeout(GRACE, core.writes.ended()).await.is_err() {
            tracing::warn!(grace = ?GRACE, "writes of disconnected clients did not finish in time");
        }
        core.storage.close().await;
        if let Some(audit) = &core.audit {
            audit.flush().await;
        }
    }

    /// Waits until the disk fails, so that nothing can be stored any more, and returns the reason and what to do.
    /// Reads still work; only another server on the folder can store again. Never returns if all goes well.
    pub async fn failed(&self) -> String {
        let failed = self.shared.core.storage.failed();
        failed.await.to_string()
    }

    /// A consistent backup of all objects, in pieces; [`BackupFile`](store::BackupFile) writes it to a file.
    pub fn backup(&self) -> impl Iterator<Item = Bytes> + Send + use<> {
        store::pieces(&self.shared.core)
    }

    /// Trusts these authorities of clients, and this proxy, from now on.
    pub(crate) fn set_trust(&self, clients: Vec<CertificateDer<'static>>, proxy: Option<FrontProxy>) {
        self.shared.core.authenticator.set_trust(Trust::new(clients, proxy));
    }

    /// Serves these groups from now on, and nothing else.
    pub(crate) fn limit_to(&self, groups: Vec<String>) {
        // It is new, so it is set.
        let _ = self.shared.core.limited.set(groups);
    }

    #[cfg(test)]
    pub(crate) fn core(&self) -> &Core {
        &self.shared.core
    }

    /// Compacts the history up to now: watches from older resourceVersions get 410.
    pub fn compact(&self) {
        let storage = &self.shared.core.storage;
        storage.compact(storage.revision());
    }
}

impl<B> Service<Request<B>> for ApiServer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let core = Arc::clone(&self.shared.core);
        let (parts, body) = request.into_parts();
        let body = body.map_err(std::io::Error::other).boxed_unsync();
        Box::pin(async move { Ok(filters::handle(&core, parts, body).await) })
    }
}

/// An [`ApiServer`] as one user calls it.
#[derive(Clone, Debug)]
pub struct AsUser {
    server: ApiServer,
    user: Arc<User>,
}

impl<B> Service<Request<B>> for AsUser
where
    ApiServer: Service<Request<B>>,
{
    type Response = <ApiServer as Service<Request<B>>>::Response;
    type Error = <ApiServer as Service<Request<B>>>::Error;
    type Future = <ApiServer as Service<Request<B>>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.server.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        Arc::clone(&self.user).attach(request.extensions_mut());
        self.server.call(request)
    }
}

#[cfg(test)]
mod tests;
