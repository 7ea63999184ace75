//! What the controller connects to.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, FuturesUnordered, StreamExt};
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use setpoint_apiserver::serve::CancellationToken;
use setpoint_env::{Env, Process, Task};
use setpoint_sim::{Body, FaultLayer, FaultService};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tower::{BoxError, Layer, ServiceExt};

use super::upstream::Upstream;

const MOST_CONNECTIONS: usize = 256;
/// How long a handshake, and the head of a request, may take.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// Servers take no larger ones.
const MOST_BYTES: usize = 8 << 20;
/// Long enough for what was written to be on its way.
const FLUSH: Duration = Duration::from_millis(20);

/// The process of the controller that runs now, if the proxy runs it. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Current {
    process: Arc<Mutex<Option<Process>>>,
}

impl Current {
    pub(super) fn set(&self, process: &Process) {
        *self.process.lock() = Some(process.clone());
    }

    fn get(&self) -> Option<Process> {
        self.process.lock().clone()
    }
}

/// Listens for the controller.
pub(super) struct Front {
    listener: TcpListener,
    tls: TlsAcceptor,
    token: Arc<str>,
    layer: FaultLayer,
    upstream: Upstream,
    current: Current,
}

impl Front {
    pub(super) fn new(
        listener: TcpListener,
        tls: Arc<ServerConfig>,
        token: String,
        layer: FaultLayer,
        upstream: Upstream,
        current: Current,
    ) -> Front {
        Front { listener, tls: tls.into(), token: token.into(), layer, upstream, current }
    }

    /// Serves whoever connects, until the shutdown.
    pub(super) async fn serve(self, env: Env, shutdown: CancellationToken) {
        let mut open: FuturesUnordered<Task<()>> = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                Some(_) = open.next() => {}
                accepted = self.listener.accept(), if open.len() < MOST_CONNECTIONS => match accepted {
                    Ok((stream, _)) => {
                        // Whoever has connected is the process that runs now; what a dead one sends reaches nobody.
                        let layer = match self.current.get() {
                            Some(process) => self.layer.clone().process(&process),
                            None => self.layer.clone(),
                        };
                        let service = layer.layer(self.upstream.clone());
                        open.push(env.spawn(connection(stream, self.tls.clone(), self.token.clone(), service)));
                    }
                    // Too many open files, most likely: it passes.
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                },
            }
        }
    }
}

async fn connection(stream: TcpStream, tls: TlsAcceptor, token: Arc<str>, service: FaultService<Upstream>) {
    let _unsupported = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(HEAD_TIME, tls.accept(stream)).await else { return };
    let service = service_fn(move |request| answer(token.clone(), service.clone(), request));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(1000);
    // An error is a fault that was injected, or the end of the controller: both are in the log.
    let _ended = builder.serve_connection(TokioIo::new(stream), service).await;
}

/// An error breaks the connection, or the stream of it.
async fn answer(
    token: Arc<str>,
    service: FaultService<Upstream>,
    request: Request<Incoming>,
) -> Result<Response<Body>, BoxError> {
    if !is_allowed(&request, &token) {
        return Ok(status(
            StatusCode::UNAUTHORIZED,
            "Unauthorized",
            "use the kubeconfig that setpoint sim proxy has written",
        ));
    }
    if request.headers().contains_key(header::UPGRADE) || request.method() == http::Method::CONNECT {
        let why = "setpoint sim proxy passes no upgrades (exec, attach, port-forward): use the server itself";
        return Ok(status(StatusCode::NOT_IMPLEMENTED, "NotImplemented", why));
    }
    let response = service.oneshot(request.map(|body| Limited::new(body, MOST_BYTES))).await?;
    Ok(response.map(flushed))
}

/// The same body. What breaks it comes when all before it has been sent: a connection that breaks forgets what it has not sent
/// yet, and a watch that is cut after three events would end after two.
fn flushed(body: Body) -> Body {
    let frames = stream::unfold(Some(body), |body| async {
        let mut body = body?;
        match body.frame().await? {
            Ok(frame) => Some((Ok(frame), Some(body))),
            Err(error) => {
                tokio::time::sleep(FLUSH).await;
                Some((Err(error), None))
            }
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

fn is_allowed(request: &Request<Incoming>, token: &str) -> bool {
    let said = request.headers().get(header::AUTHORIZATION).map(|value| value.as_bytes()).unwrap_or_default();
    let wanted = format!("Bearer {token}");
    let differences = said.iter().zip(wanted.as_bytes()).fold(0, |differences, (a, b)| differences | (a ^ b));
    said.len() == wanted.len() && differences == 0
}

fn status(code: StatusCode, reason: &str, message: &str) -> Response<Body> {
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    let body = Full::new(Bytes::from(status.to_string())).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}
