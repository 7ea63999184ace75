//! The server: a `tower::Service`, and the filters that every request passes.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{Method, Request, Response, header};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use parking_lot::Mutex;
use rustls::ServerConfig;
use setpoint_env::{Env, Task};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Service};

use crate::admission;
use crate::audit::{Audit, AuditLog, Ending, Pending};
use crate::authenticate::{Authenticator, SigningKey, TokenFile, impersonate};
use crate::authorize::{self, Attributes};
use crate::body::{self, MAX_BODY};
use crate::bootstrap;
use crate::definitions::{self, Definitions};
use crate::dispatch;
use crate::limits;
use crate::logs::LogSource;
use crate::metadata::names;
use crate::metrics::Metrics;
use crate::negotiate::{self, Subject};
use crate::options::{self, Query};
use crate::pki;
use crate::rbac::{self, Rbac};
use crate::request::{ResourceRequest, Warnings};
use crate::resource::{Registry, Resource};
use crate::response::{Body, respond_status};
use crate::routes::{ResourcePath, Route, Verb};
use crate::selector::FieldSelector;
use crate::serve;
use crate::status::{Result, Status};
use crate::storage::{Limits, Memory, NotStored, OpenError, Redb, Storage};
use crate::user::User;
use crate::webhook;

/// How long a request that is not a watch may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// How often expired objects are looked for.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(30);

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
    _tasks: [Task<()>; 2],
}

/// What handlers work with.
pub(crate) struct Core {
    pub env: Env,
    pub storage: Box<dyn Storage>,
    pub metrics: Metrics,
    pub limits: limits::Limits,
    pub rbac: Rbac,
    pub authenticator: Authenticator,
    pub admission: admission::Webhooks,
    pub policies: admission::Policies,
    pub webhooks: webhook::Clients,
    pub audit: Option<Audit>,
    /// Whether somebody makes service accounts, so that pods can be asked to have one.
    pub has_service_accounts: bool,
    pub definitions: Definitions,
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

/// Settings of an [`ApiServer`].
#[derive(Debug, Default)]
#[must_use = "a builder does nothing until build is called"]
pub struct Builder {
    env: Option<Env>,
    history: Limits,
    tokens: TokenFile,
    signing_key: Option<SigningKey>,
    audit: Option<Audit>,
    has_service_accounts: bool,
    logs: Option<Arc<dyn LogSource>>,
}

impl Builder {
    /// Where time and randomness come from; [`Env::system`] unless set.
    pub fn env(mut self, env: Env) -> Builder {
        self.env = Some(env);
        self
    }

    /// How much history the server keeps for watches and for lists at past resourceVersions: at most so
    /// many changes, and at most so many bytes of objects. 100,000 changes and 64 MiB unless set.
    pub fn history(mut self, changes: usize, bytes: usize) -> Builder {
        self.history = Limits { events: changes, bytes };
        self
    }

    /// Bearer tokens that the server accepts, besides those that it signs for service accounts.
    pub fn tokens(mut self, tokens: TokenFile) -> Builder {
        self.tokens = tokens;
        self
    }

    /// The key that signs the tokens of service accounts. Unless set, it is a new one; a server with a folder
    /// keeps it there, so that tokens outlive a restart.
    pub fn signing_key(mut self, key: SigningKey) -> Builder {
        self.signing_key = Some(key);
        self
    }

    /// Whether a new pod needs a service account that exists, and gets its token as a volume. Off unless set, as in test
    /// environments: it takes a controller that makes an account `default` in each namespace.
    pub fn service_accounts(mut self, are_made: bool) -> Builder {
        self.has_service_accounts = are_made;
        self
    }

    /// Writes down who did what. Call it after [`Builder::env`], inside a tokio runtime.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn audit(mut self, log: AuditLog) -> std::io::Result<Builder> {
        self.audit = Some(log.start(&self.env.clone().unwrap_or_default())?);
        Ok(self)
    }

    /// Who knows what containers have written, for `kubectl logs`. Unless set, it is refused: there is no kubelet.
    pub fn logs(mut self, source: impl LogSource) -> Builder {
        self.logs = Some(Arc::new(source));
        self
    }

    /// Starts a server that keeps everything in memory. Call it inside a tokio runtime.
    #[must_use]
    pub fn build(self) -> ApiServer {
        let storage = Box::new(Memory::new(self.history));
        let started = self.start(storage).now_or_never().expect("memory keeps nobody waiting");
        started.expect("memory keeps everything")
    }

    /// Starts a server that keeps everything in a file in `folder`, which is made if there is none. What
    /// it has answered survives the end of the process, however sudden. One server at a time can have it.
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
        let storage = Box::new(Redb::open_in(folder, self.history).await?);
        if self.signing_key.is_none() {
            let key = pki::signing_key(&folder.join("pki")).map_err(OpenError::SigningKey)?;
            self.signing_key = Some(key);
        }
        Ok(self.start(storage).await?)
    }

    async fn start(self, storage: Box<dyn Storage>) -> Result<ApiServer, NotStored> {
        let env = self.env.unwrap_or_default();
        let core = Arc::new(Core {
            storage,
            metrics: Metrics::new(&env),
            limits: limits::Limits::default(),
            rbac: Rbac::default(),
            authenticator: Authenticator::new(self.tokens, self.signing_key),
            admission: admission::Webhooks::default(),
            policies: admission::Policies::default(),
            webhooks: webhook::Clients::default(),
            audit: self.audit,
            has_service_accounts: self.has_service_accounts,
            definitions: Definitions::default(),
            logs: self.logs,
            watches: Mutex::default(),
            env: env.clone(),
        });
        bootstrap::run(&core).await?;
        if let Err(error) = definitions::sync(&core).await {
            // The task below tries it again.
            tracing::error!(%error, "custom resources are not served yet");
        }
        let definitions = env.spawn(definitions::keep(Arc::downgrade(&core)));
        let expiring = Arc::downgrade(&core);
        let expiry = env.spawn(async move {
            loop {
                tokio::time::sleep(EXPIRY_INTERVAL).await;
                let Some(core) = expiring.upgrade() else { return };
                let now = core.env.now();
                core.storage.expire(now).await;
            }
        });
        Ok(ApiServer { shared: Arc::new(Shared { core, _tasks: [expiry, definitions] }) })
    }
}

impl ApiServer {
    /// Settings for a new server.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A client of an administrator that calls this server directly: no socket, no TLS.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        self.client_as(User::admin())
    }

    /// The same for somebody else.
    #[must_use]
    pub fn client_as(&self, user: User) -> kube::Client {
        kube::Client::new(self.as_user(user), "default")
    }

    /// The service as `user` calls it, to put layers around it.
    #[must_use]
    pub fn as_user(&self, user: User) -> AsUser {
        AsUser { server: self.clone(), user: Arc::new(user.authenticated()) }
    }

    /// Serves HTTPS on `listener` until `shutdown` is cancelled: HTTP/1.1 and HTTP/2, clients known by
    /// their certificates. Watches end with it.
    pub async fn serve(&self, listener: TcpListener, tls: Arc<ServerConfig>, shutdown: CancellationToken) {
        let core = &self.shared.core;
        core.end_watches();
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

    /// Ends all running watches, as a restart of the server would. Their clients connect again.
    pub fn end_watches(&self) {
        self.shared.core.end_watches();
    }

    /// Ends all running watches and closes the store. Changes are refused from now on; another server can
    /// open the folder. A server that keeps everything in memory stays as it is.
    pub async fn close(&self) {
        self.shared.core.end_watches();
        self.shared.core.storage.close().await;
        if let Some(audit) = &self.shared.core.audit {
            audit.flush().await;
        }
    }

    /// Forgets the history up to now: watches from older resourceVersions are answered with 410.
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
        Box::pin(async move { Ok(handle(&core, parts, body).await) })
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

type RequestBody = UnsyncBoxBody<Bytes, std::io::Error>;

/// Every request: measured, written down, answered, never lost.
async fn handle(core: &Arc<Core>, parts: Parts, body: RequestBody) -> Response<Body> {
    let route = Route::parse(parts.uri.path());
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let started = core.metrics.request_started(&parts.method, route.as_ref().ok(), &query);
    let is_watch = matches!(&route, Ok(Route::Resource(path)) if path.is_watch(&query));
    let mut pending = core.audit.as_ref().map(|audit| audit.begin(&parts));
    // Safe to go on after a panic: what the request had is dropped, and what requests share does not poison.
    let outcome =
        AssertUnwindSafe(answer(core, &parts, route, query, body, &mut pending)).catch_unwind().await;
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(panic) => {
            let text = serve::text_of(&*panic).to_owned();
            let response = panicked(core, &parts, pending, &text).await;
            started.finish(response.status());
            return response;
        }
    };
    let failure = outcome.as_ref().err().map(|status| status.message.clone());
    let mut response = outcome
        .unwrap_or_else(|status| respond_status(&status, negotiate::takes_protobuf_status(&parts.headers)));
    started.finish(response.status());
    if let Some(pending) = pending {
        response = audited(core, pending, response, failure.as_deref(), is_watch).await;
    }
    response
}

/// Tells of a handler that panicked: the client, the log, and the audit log.
async fn panicked(core: &Core, parts: &Parts, pending: Option<Pending>, text: &str) -> Response<Body> {
    tracing::error!(method = %parts.method, path = parts.uri.path(), panic = text, "a request handler panicked");
    let status = Status::internal("the server panicked while it handled this request");
    if let (Some(audit), Some(mut pending)) = (&core.audit, pending) {
        pending.answered(status.code.as_u16(), Some(&format!("APIserver panic'd: {text}")));
        audit.stage(&pending, "Panic").await;
    }
    respond_status(&status, negotiate::takes_protobuf_status(&parts.headers))
}

/// Writes down how the request was answered; for a watch, that it has begun, and later that it has ended.
async fn audited(
    core: &Arc<Core>,
    mut pending: Pending,
    response: Response<Body>,
    failure: Option<&str>,
    is_watch: bool,
) -> Response<Body> {
    // A 401 was written when nobody knew who asked.
    let Some(audit) = core.audit.as_ref().filter(|_| response.status() != 401) else { return response };
    pending.answered(response.status().as_u16(), failure);
    if is_watch && failure.is_none() {
        audit.stage(&pending, "ResponseStarted").await;
        let ending = Ending { core: Arc::clone(core), pending };
        return response.map(|body| body.with_ending(ending));
    }
    if pending.level().has_response()
        && let Some(object) = response.body().as_full().and_then(|body| body::answered(body))
    {
        pending.responded(object);
    }
    audit.stage(&pending, "ResponseComplete").await;
    response
}

/// authenticate → find a place → impersonate → authorize → read → dispatch, within the time limit.
async fn answer(
    core: &Arc<Core>,
    parts: &Parts,
    route: Result<Route>,
    query: Query,
    body: RequestBody,
    pending: &mut Option<Pending>,
) -> Result<Response<Body>> {
    let (attributes, version) = asked(parts, route.as_ref().ok(), &query);
    let user = identify(core, parts, &attributes, &version, pending).await?;
    let route = route?;
    let limit = time_limit(&query)?;
    let place = core.limits.request(&user)?;
    // A log that is followed takes its place among the watches too.
    let is_followed =
        |path: &ResourcePath| path.subresource.as_deref() == Some("log") && query.flag("follow");
    let is_watch = matches!(&route, Route::Resource(path) if path.is_watch(&query) || is_followed(path));
    let work = async {
        let acting = impersonate::apply(core, Arc::clone(&user), &attributes, &parts.headers).await?;
        let decision = authorize::decide(core, &acting, &attributes).await?;
        if let Some(pending) = pending {
            if !Arc::ptr_eq(&acting, &user) {
                pending.impersonates(&acting);
            }
            pending.decided(decision.allowed, &decision.reason);
        }
        if !decision.allowed {
            return Err(authorize::refusal(&acting, &attributes, &decision.reason));
        }
        match route {
            Route::Server(_) if !matches!(parts.method, Method::GET | Method::HEAD) => {
                Err(Status::method_not_allowed())
            }
            Route::Server(segments) => dispatch::server(core, &segments, &query, &parts.headers),
            Route::Resource(path) => {
                let request = resource_request(core, parts, path, query, acting, body).await?;
                if let Some(pending) = pending.as_mut().filter(|pending| pending.level().has_request())
                    && let Some(object) = request.as_json()
                {
                    pending.requested(object);
                }
                let response = dispatch::resource(core, &request).await?;
                if request.verb.is_write() && is_cluster_role(&request) {
                    rbac::gather(core).await?;
                }
                Ok(response)
            }
        }
    };
    let work = async {
        match place.lane() {
            Some(lane) => lane.run(work).await,
            None => work.await,
        }
    };
    let response = tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        Err(Status::timeout("the request did not complete within the allotted timeout"))
    })?;
    // A watch gives this place back once it runs: it has taken one among the watches.
    Ok(if is_watch { response } else { response.map(|body| body.with_place(place)) })
}

/// Who asks, which is also the first that the log is told.
async fn identify(
    core: &Core,
    parts: &Parts,
    attributes: &Attributes,
    version: &str,
    pending: &mut Option<Pending>,
) -> Result<Arc<User>> {
    let user = core.authenticator.authenticate(core, parts).await;
    if let (Some(audit), Some(pending)) = (&core.audit, pending) {
        match &user {
            Ok(user) => audit.received(pending, user, attributes, version).await,
            Err(_) => audit.unauthorized(pending, attributes, version).await,
        }
    }
    user
}

/// How long the request may take: what it says, but not more than the server allows.
fn time_limit(query: &Query) -> Result<Duration> {
    let Some(text) = query.get("timeout").filter(|text| !text.is_empty()) else { return Ok(REQUEST_TIMEOUT) };
    match options::parse_duration(text) {
        Some(Duration::ZERO) => Ok(REQUEST_TIMEOUT),
        Some(limit) => Ok(limit.min(REQUEST_TIMEOUT)),
        None => Err(Status::bad_request(format!(
            "invalid timeout specified in the request URL - failed to parse {text:?}"
        ))),
    }
}

async fn resource_request(
    core: &Core,
    parts: &Parts,
    path: ResourcePath,
    query: Query,
    user: Arc<User>,
    body: RequestBody,
) -> Result<ResourceRequest> {
    let verb = Verb::of(&parts.method, &path, query.flag("watch"))?;
    if path.group == rbac::GROUP {
        core.rbac.prepare(core).await?;
    }
    if !path.rest.is_empty() && path.subresource.as_deref() != Some("proxy") {
        return Err(Status::no_such_path());
    }
    let resource = core
        .resource(&path.group, &path.version, &path.resource)
        .ok_or_else(|| definitions::not_served(&path.group, &path.version))?;
    let text = |name| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let subject = if resource.definition().is_some() { Subject::Custom } else { Subject::BuiltIn };
    let representation = negotiate::representation(&parts.headers, &query, subject)?;
    Ok(ResourceRequest {
        verb,
        resource,
        namespace: path.namespace,
        name: path.name,
        subresource: path.subresource,
        query,
        representation,
        content_type: text(header::CONTENT_TYPE).map(str::to_owned),
        user,
        user_agent: text(header::USER_AGENT).map(str::to_owned),
        received: core.env.now(),
        warnings: Warnings::default(),
        body: if verb.is_write() { body::read(body, MAX_BODY).await? } else { Bytes::new() },
    })
}

/// What a request wants to do, and in which version of the API.
fn asked(parts: &Parts, route: Option<&Route>, query: &Query) -> (Attributes, String) {
    let method = || parts.method.as_str().to_ascii_lowercase();
    let raw = parts.uri.path();
    let path = match route {
        Some(Route::Resource(path)) => {
            let verb = Verb::of(&parts.method, path, query.flag("watch"));
            let verb = verb.map_or_else(|_| method(), |verb| verb.as_str().to_owned());
            return (attributes_of(verb, path, query), path.version.clone());
        }
        Some(Route::Server(segments)) => server_path(segments, raw),
        None => raw.to_owned(),
    };
    (Attributes { verb: method(), path: Some(path), ..Attributes::default() }, String::new())
}

/// The same for a request about a resource.
fn attributes_of(verb: String, path: &ResourcePath, query: &Query) -> Attributes {
    let name = path.name.clone().or_else(|| {
        // Whoever may see one object by its name may also watch it by its name.
        let selector = FieldSelector::parse(query.get("fieldSelector")?).ok()?;
        let name = selector.name().filter(|_| matches!(verb.as_str(), "list" | "watch"))?;
        names::path_segment(name).is_empty().then(|| name.to_owned())
    });
    // A namespace is seen as part of itself, so that a role in it can allow to read it.
    let is_namespace = path.group.is_empty() && path.resource == "namespaces";
    let namespace = if is_namespace { path.name.clone() } else { path.namespace.clone() };
    Attributes {
        verb,
        group: path.group.clone(),
        resource: path.resource.clone(),
        subresource: path.subresource.clone().unwrap_or_default(),
        namespace: namespace.unwrap_or_default(),
        name: name.unwrap_or_default(),
        path: None,
    }
}

/// A path of the server as rules name it: without the tricks that [`Route::parse`] sees through.
fn server_path(segments: &[String], raw: &str) -> String {
    let mut path = format!("/{}", segments.join("/"));
    if path.len() > 1 && raw.ends_with('/') {
        path.push('/');
    }
    path
}

fn is_cluster_role(request: &ResourceRequest) -> bool {
    (request.resource.group(), request.resource.plural()) == (rbac::GROUP, "clusterroles")
}
