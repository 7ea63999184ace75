//! HTTPS: limits, and which handler gets what.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use rustls::ServerConfig;
use setpoint_env::Env;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::metrics::{Call, WebhookMetrics};
use super::{Handler, NotAReview};
use crate::server::HttpServer;

/// API servers are few and keep their connections; more wait.
const MOST_CONNECTIONS: usize = 256;
const MOST_STREAMS: u32 = 128;
/// A review is sent in one go.
const BODY_TIME: Duration = Duration::from_secs(10);
/// API servers wait no longer than this for an answer.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// A review holds up to two objects, and those are up to 3 MiB.
const MOST_BYTES: usize = 8 << 20;

/// What answers, and what measures it.
pub(super) struct Webhooks {
    pub(super) handlers: BTreeMap<String, Handler>,
    pub(super) metrics: WebhookMetrics,
}

/// Serves until the shutdown, then lets those that work end.
pub(super) async fn serve(
    env: &Env,
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    webhooks: Webhooks,
    shutdown: CancellationToken,
) {
    let server =
        HttpServer::new(env).tls(Some(tls)).limits(MOST_CONNECTIONS, MOST_STREAMS).grace(ANSWER_TIME);
    let webhooks = Arc::new(webhooks);
    let answer = move |request| {
        let webhooks = Arc::clone(&webhooks);
        async move { webhooks.answer(request).await }
    };
    server.serve(listener, shutdown, answer).await;
}

impl Webhooks {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path().to_owned();
        let Some(handler) = self.handlers.get(&path) else {
            return text(StatusCode::NOT_FOUND, "there is no webhook at this path\n");
        };
        let call = self.metrics.begin(&path);
        let response = self.review(request, handler, &call, &path).await;
        call.answered(response.status());
        response
    }

    async fn review(
        &self,
        request: Request<Incoming>,
        handler: &Handler,
        call: &Call<'_>,
        path: &str,
    ) -> Response<Full<Bytes>> {
        if request.method() != Method::POST {
            return text(StatusCode::METHOD_NOT_ALLOWED, "reviews are sent with POST\n");
        }
        let bytes = match tokio::time::timeout(BODY_TIME, read(request.into_body())).await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => {
                return text(StatusCode::PAYLOAD_TOO_LARGE, "the review is too large, or was cut off\n");
            }
            Err(_) => return text(StatusCode::REQUEST_TIMEOUT, "the review did not come in time\n"),
        };
        let review = match serde_json::from_slice(&bytes) {
            Ok(review) => review,
            Err(error) => return text(StatusCode::BAD_REQUEST, format!("the body is not JSON: {error}\n")),
        };
        let work = AssertUnwindSafe(handler(review)).catch_unwind();
        match tokio::time::timeout(ANSWER_TIME, work).await {
            Ok(Ok(Ok(review))) => {
                call.reviewed(&review);
                json(&review)
            }
            Ok(Ok(Err(NotAReview(why)))) => text(StatusCode::BAD_REQUEST, format!("{why}\n")),
            Ok(Err(_)) => {
                self.metrics.panicked();
                tracing::error!(path, "a webhook handler panicked");
                text(StatusCode::INTERNAL_SERVER_ERROR, "the handler panicked\n")
            }
            Err(_) => {
                tracing::warn!(path, "a webhook handler took too long");
                text(StatusCode::GATEWAY_TIMEOUT, "the handler took too long\n")
            }
        }
    }
}

/// All of a body, unless it is too large or breaks off.
async fn read(body: Incoming) -> Option<Vec<u8>> {
    let mut body = Limited::new(body, MOST_BYTES);
    // Parts are joined as they come: thousands of tiny ones would take far more than their bytes.
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        bytes.extend_from_slice(frame.ok()?.data_ref().map_or(&[], |data| data));
    }
    Some(bytes)
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
