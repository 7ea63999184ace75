//! HTTPS: connections, limits, and which handler gets what.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::stream::{FuturesUnordered, StreamExt};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use setpoint_env::{Env, Task};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{Handler, NotAReview};

/// API servers are few and keep their connections; more wait.
const MOST_CONNECTIONS: usize = 256;
/// How long a handshake, and the head of a request, may take.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// API servers wait no longer than this for an answer.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// A review holds up to two objects, and those are up to 3 MiB.
const MOST_BYTES: usize = 8 << 20;

pub(super) type Handlers = Arc<BTreeMap<String, Handler>>;

/// Accepts connections until the shutdown, then lets those that work end.
pub(super) async fn serve(
    env: &Env,
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    handlers: Handlers,
    shutdown: CancellationToken,
) {
    let acceptor = TlsAcceptor::from(tls);
    let mut open: FuturesUnordered<Task<()>> = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(_) = open.next() => {}
            accepted = listener.accept(), if open.len() < MOST_CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    let connection = serve_one(stream, acceptor.clone(), Arc::clone(&handlers), shutdown.clone());
                    open.push(env.spawn(connection));
                }
                // Too many open files, most likely: it passes.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            },
        }
    }
    let rest = async { while open.next().await.is_some() {} };
    if tokio::time::timeout(ANSWER_TIME, rest).await.is_err() {
        tracing::warn!("webhook calls were cut off at the end");
    }
}

async fn serve_one(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    handlers: Handlers,
    shutdown: CancellationToken,
) {
    let stream = match tokio::time::timeout(HEAD_TIME, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "a handshake failed"),
        Err(_) => return tracing::debug!("a handshake took too long"),
    };
    let service = service_fn(move |request| {
        let handlers = Arc::clone(&handlers);
        async move { Ok::<_, Infallible>(answer(&handlers, request).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(128);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn answer(handlers: &Handlers, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let Some(handler) = handlers.get(request.uri().path()).cloned() else {
        return text(StatusCode::NOT_FOUND, "there is no webhook at this path\n");
    };
    if request.method() != Method::POST {
        return text(StatusCode::METHOD_NOT_ALLOWED, "reviews are sent with POST\n");
    }
    let path = request.uri().path().to_owned();
    let mut body = Limited::new(request.into_body(), MOST_BYTES);
    // Parts are joined as they come: thousands of tiny ones would take far more than their bytes.
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return text(StatusCode::PAYLOAD_TOO_LARGE, "the review is too large, or was cut off\n");
        };
        bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
    }
    let review = match serde_json::from_slice(&bytes) {
        Ok(review) => review,
        Err(error) => return text(StatusCode::BAD_REQUEST, format!("the body is not JSON: {error}\n")),
    };
    let work = AssertUnwindSafe(handler(review)).catch_unwind();
    match tokio::time::timeout(ANSWER_TIME, work).await {
        Ok(Ok(Ok(review))) => json(&review),
        Ok(Ok(Err(NotAReview(why)))) => text(StatusCode::BAD_REQUEST, format!("{why}\n")),
        Ok(Err(_)) => {
            tracing::error!(path, "a webhook handler panicked");
            text(StatusCode::INTERNAL_SERVER_ERROR, "the handler panicked\n")
        }
        Err(_) => {
            tracing::warn!(path, "a webhook handler took too long");
            text(StatusCode::GATEWAY_TIMEOUT, "the handler took too long\n")
        }
    }
}

fn json(review: &serde_json::Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(review.to_string().into()));
    let kind = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn text(code: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = code;
    response
}
