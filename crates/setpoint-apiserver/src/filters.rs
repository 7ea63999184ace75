//! The filters that every request passes: who asks, whether there is room, whether it is allowed, how long it may take.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::request::Parts;
use http::{Method, Response, header};
use http_body::Body as _;
use http_body_util::combinators::UnsyncBoxBody;
use setpoint_env::panic_text;

use crate::aggregation::{self, Backend, Forwarded};
use crate::audit::{Ending, Pending};
use crate::authenticate::impersonate;
use crate::authorize::{self, Attributes};
use crate::body::{self, MAX_BODY};
use crate::contention::Deadline;
use crate::definitions;
use crate::dispatch;
use crate::extension::{Asked, Author, Call, Subresource};
use crate::limits::{Place, SMALL_BODY};
use crate::metadata::names;
use crate::metrics::Started;
use crate::negotiate::{self, Representation, Subject};
use crate::options::{self, Query};
use crate::rbac;
use crate::request::{ResourceRequest, Warnings};
use crate::response::{Body, respond_status};
use crate::routes::{self, ResourcePath, Route};
use crate::selector::FieldSelector;
use crate::serve::{self, PeerCertificate};
use crate::server::Core;
use crate::status::{Result, Status};
use crate::store;
use crate::user::User;

/// How long a request that is not a watch may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) type RequestBody = UnsyncBoxBody<Bytes, std::io::Error>;

/// Every request: measured, written down, answered, never lost.
///
/// A read ends when its client goes away. A write that may begin belongs to the server: it ends with its answer, its audit
/// line and the refresh of what depends on it, whoever still waits.
pub(crate) async fn handle(core: &Arc<Core>, parts: Parts, body: RequestBody) -> Response<Body> {
    let route = Route::parse(parts.uri.path());
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let mut account = Account {
        started: core.metrics.request_started(&parts.method, route.as_ref().ok(), &query),
        is_watch: matches!(&route, Ok(Route::Resource(path)) if path.is_watch(&query)),
        is_identified: false,
        is_anonymous: false,
        pending: core.audit.as_ref().map(|audit| audit.begin(&parts)),
        parts,
    };
    // Safe to go on after a panic: what the request had is dropped, and what requests share does not poison.
    let prepared = AssertUnwindSafe(prepare(core, &mut account, route, query, body)).catch_unwind().await;
    let outcome = match prepared {
        Ok(Ok(Prepared::Answered(response))) => Ok(Ok(response)),
        Ok(Ok(Prepared::Write(write))) => {
            let own = Arc::clone(core);
            let write = core.writes.start(async move {
                let outcome = AssertUnwindSafe(write.run(&own)).catch_unwind().await;
                account.close(&own, outcome).await
            });
            return write.await;
        }
        Ok(Err(status)) => Ok(Err(status)),
        Err(panic) => Err(panic),
    };
    account.close(core, outcome).await
}

/// What is told about a request when it has ended: to the metrics, to the audit log, to the client.
struct Account {
    parts: Parts,
    started: Started,
    pending: Option<Pending>,
    /// Whether it goes on until somebody ends it.
    is_watch: bool,
    /// Whether it is known who asks.
    is_identified: bool,
    /// Whether that is nobody in particular.
    is_anonymous: bool,
}

impl Account {
    async fn close(
        self,
        core: &Arc<Core>,
        outcome: std::thread::Result<Result<Response<Body>>>,
    ) -> Response<Body> {
        let form = || {
            let query = Query::parse(self.parts.uri.query().unwrap_or_default());
            negotiate::of_status(&self.parts.headers, &query)
        };
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(panic) => {
                let text = panic_text(&*panic).to_owned();
                drop(panic);
                let response = panicked(core, &self.parts, self.pending, &text, &form()).await;
                self.started.finish(response.status());
                return response;
            }
        };
        let failure = outcome.as_ref().err().map(|status| status.message.clone());
        let mut response = outcome.unwrap_or_else(|status| respond_status(&status, &form()));
        self.started.finish(response.status());
        if !self.is_identified {
            response.extensions_mut().insert(serve::Unidentified);
        } else if self.is_anonymous {
            response.extensions_mut().insert(serve::Anonymous);
        }
        match self.pending {
            // A 401 was written when nobody knew who asked.
            Some(pending) if self.is_identified => {
                audited(core, pending, response, failure.as_deref(), self.is_watch).await
            }
            _ => response,
        }
    }
}

/// Tells of a handler that panicked: the client, the log, and the audit log.
async fn panicked(
    core: &Core,
    parts: &Parts,
    pending: Option<Pending>,
    text: &str,
    form: &Representation,
) -> Response<Body> {
    tracing::error!(method = %parts.method, path = parts.uri.path(), panic = text, "a request handler panicked");
    core.metrics.panicked();
    let status = Status::internal("the server panicked while it handled this request");
    if let (Some(audit), Some(mut pending)) = (&core.audit, pending) {
        pending.answered(status.code.as_u16(), Some(&format!("APIserver panic'd: {text}")));
        audit.stage(&pending, "Panic").await;
    }
    respond_status(&status, form)
}

/// Writes down how the request was answered; for a watch, that it has begun, and later that it has ended.
async fn audited(
    core: &Arc<Core>,
    mut pending: Pending,
    response: Response<Body>,
    failure: Option<&str>,
    is_watch: bool,
) -> Response<Body> {
    let Some(audit) = core.audit.as_ref() else { return response };
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

/// What a request has come to before anything was written.
enum Prepared {
    /// It reads, and has its answer.
    Answered(Response<Body>),
    /// It writes, and may begin.
    Write(Write),
}

/// authenticate → find a place → impersonate → authorize → read the body; and of a read also the answer. All of it within
/// the time limit.
async fn prepare(
    core: &Arc<Core>,
    account: &mut Account,
    route: Result<Route>,
    query: Query,
    body: RequestBody,
) -> Result<Prepared> {
    let Account { parts, pending, is_identified, is_anonymous, is_watch: goes_on, .. } = account;
    let parts = &*parts;
    let (attributes, version) = asked(parts, route.as_ref().ok(), &query);
    let user = identify(core, parts, &attributes, &version, pending).await?;
    *is_identified = true;
    *is_anonymous = user.name == User::ANONYMOUS;
    let route = route?;
    if let Route::Resource(path) = &route
        && !core.serves(&path.group)
    {
        return Err(Status::no_such_path());
    }
    let deadline = Deadline::after(&core.env, time_limit(&query)?);
    let place = core.limits.request(&user)?;
    let backend = backend_of(core, &route);
    let subresource = subresource_of(core, &route);
    // A log that is followed takes its place among the watches too.
    let is_followed =
        |path: &ResourcePath| path.subresource.as_deref() == Some("log") && query.flag("follow");
    let is_watch = match (&route, &backend) {
        (Route::Resource(path), Some(_)) => path.is_long(&query),
        (Route::Resource(_), None) if subresource.is_some() => true,
        (Route::Resource(path), None) => path.is_watch(&query) || is_followed(path),
        (Route::Server(_), _) => false,
    };
    *goes_on |= is_watch;
    let is_backup = matches!(&route, Route::Server(segments) if store::is_backup(segments));
    // In a box: what is around it would move its state at every step.
    let work = Box::pin(async {
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
        if let Some(backend) = &backend {
            let asked = Handed { parts, query: &query, user: &acting, is_long: is_watch };
            return Ok(Step::Answered(asked.on(core, backend, &route, body).await?));
        }
        match route {
            Route::Resource(path) if let Some(subresource) = &subresource => {
                let request = OfAuthor { parts, path, user: &acting, body };
                Ok(Step::Answered(request.answer(core, subresource).await?))
            }
            Route::Server(_) if !matches!(parts.method, Method::GET | Method::HEAD) => {
                Err(Status::method_not_allowed())
            }
            Route::Server(segments) if store::is_backup(&segments) => {
                Ok(Step::Answered(store::respond(core, &acting)?))
            }
            Route::Server(segments) => {
                Ok(Step::Answered(dispatch::server(core, &segments, &query, &parts.headers)?))
            }
            Route::Resource(path) => {
                let body = (body, &place);
                let request = resource_request(core, parts, path, query, deadline, acting, body).await?;
                if let Some(pending) = pending.as_mut().filter(|pending| pending.level().has_request())
                    && let Some(object) = request.as_json()
                {
                    pending.requested(object);
                }
                if request.verb.is_write() {
                    return Ok(Step::Write(request));
                }
                Ok(Step::Answered(Box::pin(dispatch::resource(core, &request)).await?))
            }
        }
    });
    let response = match within(deadline, &place, work).await? {
        Step::Write(request) => return Ok(Prepared::Write(Write { request, place, deadline })),
        Step::Answered(response) => response,
    };
    // A watch gives this place back once it runs: it has taken one among the watches. A backup takes as long as it takes.
    let respond = |body: Body| match (is_watch, is_backup) {
        (true, _) => body.in_lane(place.lane()),
        (false, true) => body.with_place(place),
        (false, false) => body.with_place(place).until(deadline),
    };
    Ok(Prepared::Answered(response.map(respond)))
}

/// Who answers for a path, if it is not this server.
fn backend_of(core: &Core, route: &Route) -> Option<Arc<Backend>> {
    match route {
        Route::Resource(path) => core.aggregation.find(&path.group, &path.version),
        Route::Server(segments) => match segments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["apis", group, version] => core.aggregation.find(group, version),
            ["api", version] => core.aggregation.find("", version),
            // What it has said in another form is told here.
            ["openapi", "v3", "apis", group, version] => {
                core.aggregation.find(group, version).filter(|backend| backend.has_own_document())
            }
            ["openapi", "v3", "api", version] => {
                core.aggregation.find("", version).filter(|backend| backend.has_own_document())
            }
            _ => None,
        },
    }
}

/// The code that answers for a path below an object, in an extension server.
fn subresource_of(core: &Core, route: &Route) -> Option<Arc<Subresource>> {
    core.programs.as_ref()?;
    let Route::Resource(path) = route else { return None };
    let resource = core.definitions.find(&path.group, &path.version, &path.resource)?;
    let program = resource.definition()?.program.as_ref()?;
    program.subresource(path.subresource.as_deref()?).filter(|_| path.name.is_some()).cloned()
}

/// A request that the author of an extension server answers.
struct OfAuthor<'a> {
    parts: &'a Parts,
    path: ResourcePath,
    user: &'a Arc<User>,
    body: RequestBody,
}

impl OfAuthor<'_> {
    async fn answer(self, core: &Core, subresource: &Subresource) -> Result<Response<Body>> {
        let OfAuthor { parts, path, user, body } = self;
        if !path.rest.is_empty() {
            return Err(Status::no_such_path());
        }
        if !subresource.takes(&parts.method) {
            return Err(Status::method_not_allowed());
        }
        let place = core.limits.watch(user)?;
        let asked = Asked::of(user, path.namespace.as_deref());
        let name = path.name.unwrap_or_default();
        let answer = subresource.serve(Call::new(asked, name, parts.clone(), body)).await?;
        let (head, body) = answer.into_parts();
        Ok(Response::from_parts(head, Body::relay(body).ended_by([core.watch_token()], place)))
    }
}

/// A request that another server answers.
struct Handed<'a> {
    parts: &'a Parts,
    query: &'a Query,
    user: &'a User,
    is_long: bool,
}

impl Handed<'_> {
    async fn on(
        self,
        core: &Arc<Core>,
        backend: &Arc<Backend>,
        route: &Route,
        body: RequestBody,
    ) -> Result<Response<Body>> {
        let Handed { parts, query, user, is_long } = self;
        if matches!(parts.method, Method::CONNECT | Method::TRACE) {
            // The one makes a tunnel of the connection, the other tells what this server says of its users.
            return Err(Status::method_not_allowed());
        }
        let path = routes::plain_path(parts.uri.path())?;
        let target = |query: &Query| match query.encode() {
            query if query.is_empty() => path.clone(),
            query => format!("{path}?{query}"),
        };
        match route {
            Route::Server(segments) if segments[0] == "openapi" => {
                let targets = [target(query), target(&query.without("hash"))];
                aggregation::forward_document(core, backend, user, parts, targets).await
            }
            route => {
                let is_discovery = matches!(route, Route::Server(_));
                let target = target(query);
                let request = Forwarded { parts, target, user, is_long, is_discovery, body };
                aggregation::forward(core, backend, request).await
            }
        }
    }
}

/// [`Prepared`], without what a request keeps.
enum Step {
    Answered(Response<Body>),
    Write(ResourceRequest),
}

/// A write that is allowed and has been read.
struct Write {
    request: ResourceRequest,
    place: Place,
    deadline: Deadline,
}

impl Write {
    async fn run(self, core: &Arc<Core>) -> Result<Response<Body>> {
        let Write { request, place, deadline } = self;
        let work = async {
            let outcome = Box::pin(dispatch::resource(core, &request)).await;
            // Also after an error: it may have come after the commit. What is cut off here is done by `rbac::upkeep`.
            if is_cluster_role(&request)
                && let Err(error) = Box::pin(rbac::gather(core)).await
            {
                tracing::warn!(%error, "aggregated ClusterRoles are not up to date yet");
            }
            outcome
        };
        let response = within(deadline, &place, work).await?;
        Ok(response.map(|body| body.with_place(place)))
    }
}

/// Runs a part of a request in the lane of its user, until the deadline.
async fn within<T>(deadline: Deadline, place: &Place, work: impl Future<Output = Result<T>>) -> Result<T> {
    let work = async {
        match place.lane() {
            Some(lane) => lane.run(work).await,
            None => work.await,
        }
    };
    tokio::time::timeout_at(deadline.instant(), work)
        .await
        .unwrap_or_else(|_| Err(Status::timeout("the request did not complete within the allotted timeout")))
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
    deadline: Deadline,
    user: Arc<User>,
    (body, place): (RequestBody, &Place),
) -> Result<ResourceRequest> {
    let verb = path.verb(&parts.method, query.flag("watch"))?;
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
    let subject = Subject::of(&resource, path.subresource.as_deref());
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
        deadline,
        good_until: parts.extensions.get().map(|certificate: &PeerCertificate| certificate.end),
        is_own: parts.extensions.get::<Author>().is_some(),
        warnings: Warnings::default(),
        body: if verb.is_write() { read_body(core, place, body).await? } else { Bytes::new() },
    })
}

/// The body of a write. As long as it lives it has its room among all bodies.
async fn read_body(core: &Core, place: &Place, body: RequestBody) -> Result<Bytes> {
    let announced = body.size_hint().exact().and_then(|size| usize::try_from(size).ok());
    let mut room = core.limits.body(place, announced.unwrap_or(0).min(MAX_BODY))?;
    let bytes = body::read(body, MAX_BODY, |size| {
        // Whoever does not say how long it will be needs room once it is not small.
        if announced.is_none() && room.is_none() && size > SMALL_BODY {
            room = core.limits.body(place, MAX_BODY)?;
        }
        Ok(())
    })
    .await?;
    let Some(mut room) = room else { return Ok(bytes) };
    room.shrink(bytes.len());
    Ok(Bytes::from_owner(Roomed { bytes, _room: room }))
}

struct Roomed {
    bytes: Bytes,
    _room: Place,
}

impl AsRef<[u8]> for Roomed {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// What a request wants to do, and in which version of the API.
fn asked(parts: &Parts, route: Option<&Route>, query: &Query) -> (Attributes, String) {
    let method = || parts.method.as_str().to_ascii_lowercase();
    let raw = parts.uri.path();
    let path = match route {
        Some(Route::Resource(path)) => {
            let verb = path.verb(&parts.method, query.flag("watch"));
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
