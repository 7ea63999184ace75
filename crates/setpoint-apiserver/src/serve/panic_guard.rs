//! A panic in the service is one failed request, not a dead connection.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::FutureExt;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use setpoint_env::panic_text;
use tower::ServiceExt;

use super::HttpService;
use crate::status::Status;

/// Calls `service`. Its panics become a 500 Status, or, once the response has started, an error that ends
/// the response.
pub(super) async fn call<S: HttpService>(
    service: S,
    request: Request<Incoming>,
) -> Result<Response<GuardedBody<S::Body>>, Infallible> {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    // Safe to go on after a panic: this future and the request are dropped, and what the service shares
    // between requests does not poison.
    match AssertUnwindSafe(service.oneshot(request)).catch_unwind().await {
        Ok(Ok(response)) => Ok(response.map(|body| GuardedBody::Service(Box::pin(body)))),
        Err(panic) => {
            tracing::error!(%method, path = uri.path(), panic = panic_text(&*panic), "a request handler panicked");
            Ok(failed())
        }
    }
}

fn failed<B>() -> Response<GuardedBody<B>> {
    let status = Status::internal("the server panicked while it handled this request");
    let json = Bytes::from(status.to_json());
    let length = HeaderValue::from(json.len());
    let mut response = Response::new(GuardedBody::Failure(Some(json)));
    *response.status_mut() = status.code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CONTENT_LENGTH, length);
    response
}

/// A response body whose panics are errors.
pub(super) enum GuardedBody<B> {
    /// What the service answers.
    Service(Pin<Box<B>>),
    /// What we answer in its place.
    Failure(Option<Bytes>),
}

impl<B> Body for GuardedBody<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>>,
{
    type Data = Bytes;
    type Error = Box<dyn StdError + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        let body = match this {
            GuardedBody::Failure(json) => return Poll::Ready(json.take().map(|json| Ok(Frame::data(json)))),
            GuardedBody::Service(body) => body,
        };
        match catch_unwind(AssertUnwindSafe(|| body.as_mut().poll_frame(cx))) {
            Ok(frame) => Poll::Ready(ready!(frame).map(|frame| frame.map_err(Into::into))),
            Err(panic) => {
                tracing::error!(panic = panic_text(&*panic), "a response body panicked");
                *this = GuardedBody::Failure(None);
                Poll::Ready(Some(Err("the server panicked while it wrote this response".into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            GuardedBody::Service(body) => body.is_end_stream(),
            GuardedBody::Failure(json) => json.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            GuardedBody::Service(body) => body.size_hint(),
            GuardedBody::Failure(json) => SizeHint::with_exact(json.as_ref().map_or(0, Bytes::len) as u64),
        }
    }
}
