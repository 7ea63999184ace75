//! A request on its way to a backend, and the answer on its way back. Nothing is kept: what one side sends goes on when the
//! other side takes it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header};
use http_body::Body as _;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use tokio::sync::OwnedSemaphorePermit;

use super::tunnel::Tunnel;
use super::untrailed::Untrailed;
use super::{Backend, headers, words};
use crate::audit::PeerAddress;
use crate::response::{Body, respond};
use crate::server::Core;
use crate::status::{Result, Status};
use crate::upstream::{Peer, Protocol, RequestBody, service};
use crate::user::User;

/// The time for the discovery of one backend: clients ask for that of all of them.
const DISCOVERY: Duration = Duration::from_secs(5);

/// What is handed on.
pub(crate) struct Forwarded<'a> {
    pub(crate) parts: &'a Parts,
    /// Path and query as they were understood, and allowed.
    pub(crate) target: String,
    pub(crate) user: &'a User,
    /// Whether it goes on until somebody ends it.
    pub(crate) is_long: bool,
    /// Whether it is about the group-version itself.
    pub(crate) is_discovery: bool,
    pub(crate) body: RequestBody,
}

/// Hands a request on. Whoever waits sets a limit for the head of the answer.
pub(crate) async fn forward(
    core: &Arc<Core>,
    backend: &Arc<Backend>,
    request: Forwarded<'_>,
) -> Result<Response<Body>> {
    if !backend.is_available() {
        return Ok(words::unavailable());
    }
    let Forwarded { parts, target, user, is_long, is_discovery, body } = request;
    let own = core.authenticator.trust().name_headers();
    let peer = parts.extensions.get().map(|PeerAddress(address)| address.ip());
    let mut sent = headers::for_backend(&parts.headers, user, peer, &own)?;
    let is_upgrade = headers::asks_for_upgrade(&parts.headers);
    if is_upgrade {
        if headers::asks_for_http(&parts.headers) {
            // The backend would take whatever is said in it for this server's own words, its users among them.
            return Err(Status::bad_request("a connection is not upgraded to another version of HTTP"));
        }
        sent.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        for value in parts.headers.get_all(header::UPGRADE) {
            sent.append(header::UPGRADE, value.clone());
        }
    }
    let body = Untrailed(body).boxed_unsync();
    let is_lasting = is_long || is_upgrade;
    let call = Call { method: parts.method.clone(), target, headers: sent, body, is_lasting };
    let asking = backend.call(core, call);
    let called = match is_discovery {
        true => match tokio::time::timeout(DISCOVERY, asking).await {
            Ok(called) => called,
            Err(_) => return Ok(words::unreachable("context deadline exceeded")),
        },
        false => asking.await,
    };
    let (response, room) = match called {
        Ok(called) => called,
        Err(Uncalled::Nowhere) => return Ok(words::unavailable()),
        Err(Uncalled::Unusable(why)) => return Ok(words::text(StatusCode::INTERNAL_SERVER_ERROR, &why)),
        Err(Uncalled::Crowded) => return Ok(words::unreachable("too many requests at the same time")),
        Err(Uncalled::Failed(why)) => {
            // Perhaps it is not there any more: look at once.
            backend.wake.notify_one();
            return Ok(words::unreachable(&why));
        }
    };
    if is_redirect(&response) {
        return Ok(redirected());
    }
    if is_upgrade {
        return upgrade(core, backend, parts, user, response, room);
    }
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let protocol = response.headers().get(header::UPGRADE).and_then(|value| value.to_str().ok());
        let why = format!(
            "backend tried to switch protocol {:?} when \"\" was requested",
            protocol.unwrap_or_default()
        );
        return Ok(words::text(StatusCode::SERVICE_UNAVAILABLE, &why));
    }
    let ends = [core.watch_token(), backend.ended.clone()];
    let place = if is_long { Some(core.limits.watch(user)?) } else { None };
    let (head, body) = response.into_parts();
    let body = relay(body, room);
    let body = match place {
        Some(place) => body.ended_by(ends, place),
        None => body,
    };
    Ok(answer(head.status, head.headers, body))
}

/// What a backend sends. Its connection ends with it.
fn relay(body: Incoming, room: OwnedSemaphorePermit) -> Body {
    Body::relay(body.map_err(std::io::Error::other)).with_room(room)
}

/// The same for a document of the backend, whose address may be an old one.
pub(crate) async fn forward_document(
    core: &Arc<Core>,
    backend: &Arc<Backend>,
    user: &User,
    parts: &Parts,
    targets: [String; 2],
) -> Result<Response<Body>> {
    let mut last = words::unavailable();
    for target in targets {
        let request = Forwarded { parts, target, user, is_long: false, is_discovery: false, body: nothing() };
        last = forward(core, backend, request).await?;
        if last.status() != StatusCode::BAD_GATEWAY {
            break;
        }
    }
    Ok(last)
}

fn answer(code: StatusCode, headers: HeaderMap, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    *response.headers_mut() = headers::for_client(headers);
    response
}

/// Clients follow redirects, with their credentials: a backend has no say in where those go.
fn is_redirect(response: &Response<Incoming>) -> bool {
    response.status().is_redirection() && response.headers().contains_key(header::LOCATION)
}

fn redirected() -> Response<Body> {
    let why = "the backend attempted to redirect this request, which is not permitted";
    respond(StatusCode::BAD_GATEWAY, "text/plain; charset=utf-8", why)
}

/// The answer to a client that asks for another protocol.
fn upgrade(
    core: &Arc<Core>,
    backend: &Arc<Backend>,
    parts: &Parts,
    user: &User,
    mut response: Response<Incoming>,
    room: OwnedSemaphorePermit,
) -> Result<Response<Body>> {
    let code = response.status();
    if code != StatusCode::SWITCHING_PROTOCOLS {
        if code.as_u16() < 400 {
            let why = format!("invalid upgrade response: status code {}", code.as_u16());
            return Ok(words::text(StatusCode::SERVICE_UNAVAILABLE, &why));
        }
        let (head, body) = response.into_parts();
        return Ok(answer(code, head.headers, relay(body, room)));
    }
    let Some(client) = parts.extensions.get::<OnUpgrade>().cloned() else {
        let why = "this connection cannot be upgraded; use HTTP/1.1";
        return Ok(words::text(StatusCode::SERVICE_UNAVAILABLE, why));
    };
    let place = core.limits.watch(user)?;
    Tunnel { client, backend: hyper::upgrade::on(&mut response), room, place }.open(core, backend);
    let upgrade: Vec<HeaderValue> = response.headers().get_all(header::UPGRADE).iter().cloned().collect();
    let mut switched = answer(code, std::mem::take(response.headers_mut()), Body::full(Bytes::new()));
    let headers = switched.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    for value in upgrade {
        headers.append(header::UPGRADE, value);
    }
    Ok(switched)
}

/// One request as a backend gets it.
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) target: String,
    pub(super) headers: HeaderMap,
    pub(super) body: RequestBody,
    /// Whether it has its room among the watches.
    pub(super) is_lasting: bool,
}

impl Call {
    /// The same once more, if it changes nothing and has no body.
    fn again(&self) -> Option<Call> {
        let is_read = matches!(self.method, Method::GET | Method::HEAD) && self.body.is_end_stream();
        is_read.then(|| Call {
            method: self.method.clone(),
            target: self.target.clone(),
            headers: self.headers.clone(),
            body: nothing(),
            is_lasting: self.is_lasting,
        })
    }

    fn into_request(self, uri: Uri) -> Request<RequestBody> {
        let mut request = Request::new(self.body);
        *request.uri_mut() = uri;
        *request.method_mut() = self.method;
        *request.headers_mut() = self.headers;
        *request.version_mut() = Version::HTTP_11;
        request
    }
}

/// The body of a request that has none.
pub(super) fn nothing() -> RequestBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Uncalled {
    /// Its service leads nowhere.
    Nowhere,
    /// What the APIService says makes no connection.
    Unusable(String),
    /// It has enough to do.
    Crowded,
    Failed(String),
}

impl Backend {
    /// Sends a request, and returns the head of the answer.
    pub(super) async fn call(
        &self,
        core: &Core,
        call: Call,
    ) -> Result<(Response<Incoming>, OwnedSemaphorePermit), Uncalled> {
        let spec = &self.spec;
        let located = service::locate(core, &spec.namespace, &spec.service, spec.port).await;
        let located = located.map_err(|_| Uncalled::Nowhere)?;
        let room = if call.is_lasting { &self.room.long } else { &self.room.short };
        let room = Arc::clone(room).try_acquire_owned().map_err(|_| Uncalled::Crowded)?;
        let peer = Peer { place: located.place, trusted: spec.trusted.clone(), protocol: Protocol::Http1 };
        let client = core.aggregation.clients.get(peer).map_err(Uncalled::Unusable)?;
        // Without a port, so that the one of the address counts.
        let uri = format!("https://{}{}", spec.host(), call.target);
        let uri = Uri::try_from(uri).map_err(|error| Uncalled::Unusable(error.to_string()))?;
        // A kept connection may have ended meanwhile: what can be asked twice is.
        let again = call.again();
        let mut sent = client.request(call.into_request(uri.clone())).await;
        if let (Err(error), Some(again)) = (&sent, again)
            && !error.is_connect()
        {
            sent = client.request(again.into_request(uri)).await;
        }
        let response = sent.map_err(|error| Uncalled::Failed(words::reason(&error, &located.authority)))?;
        Ok((response, room))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use serde_json::json;
    use setpoint_env::Env;
    use tower::ServiceExt;

    use super::super::backend::MOST_SHORT;
    use super::*;
    use crate::ApiServer;

    #[tokio::test]
    async fn one_backend_takes_so_many_requests_and_no_more() {
        let address = ([127, 0, 0, 1], 9).into();
        let server =
            ApiServer::builder().env(Env::seeded(1)).service_address("a", "b", None, address).build();
        let object = json!({"metadata": {"name": "v1.g.example"}, "spec": {
            "group": "g.example", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1,
            "insecureSkipTLSVerify": true, "service": {"namespace": "a", "name": "b"}}});
        let send = async |request: Request<Full<Bytes>>| {
            let response = server.as_user(User::admin()).oneshot(request).await.unwrap();
            let code = response.status();
            (code, response.into_body().collect().await.unwrap().to_bytes())
        };
        let post = Request::post("/apis/apiregistration.k8s.io/v1/apiservices")
            .header("content-type", "application/json")
            .body(Full::from(object.to_string()))
            .unwrap();
        assert_eq!(send(post).await.0, 201);
        let backend = server.core().aggregation.find("g.example", "v1").unwrap();
        let all = Arc::clone(&backend.room.short).acquire_many_owned(MOST_SHORT as u32).await.unwrap();
        backend.set_available(true);
        let (code, text) =
            send(Request::get("/apis/g.example/v1/things").body(Full::default()).unwrap()).await;
        assert_eq!(
            (code, &*text),
            (
                StatusCode::SERVICE_UNAVAILABLE,
                &b"error trying to reach service: too many requests at the same time\n"[..],
            )
        );
        drop(all);
    }
}
