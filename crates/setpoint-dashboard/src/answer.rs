//! Answers, each with the headers that keep a page from doing what it should not.

use std::convert::Infallible;

use bytes::Bytes;
use futures::Stream;
use http::header::{self, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;
pub(crate) type Answer = Response<Body>;

/// Scripts, styles, images and data from here alone; nothing inline; no page around it; and no text can become markup.
pub(crate) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    // With `no-referrer`, browsers do not say which site a form comes from.
    (header::REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::X_FRAME_OPTIONS, "DENY"),
];

fn new(code: StatusCode, kind: &'static str, cache: &'static str, body: Body) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = code;
    let headers = answer.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    answer
}

fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed_unsync()
}

/// A file of the page. It may be kept, and is asked for again each time.
pub(crate) fn file(kind: &'static str, content: &'static [u8]) -> Answer {
    new(StatusCode::OK, kind, "no-cache", full(content))
}

pub(crate) fn json(value: impl Into<Bytes>) -> Answer {
    new(StatusCode::OK, "application/json", "no-store", full(value))
}

/// A page that says why not.
pub(crate) fn html(code: StatusCode, text: &'static [u8]) -> Answer {
    new(code, "text/html; charset=utf-8", "no-store", full(text))
}

/// What went wrong, as JSON: `{"error": "…"}`.
pub(crate) fn refuse(code: StatusCode, why: &str) -> Answer {
    let body = serde_json::json!({"error": why}).to_string();
    new(code, "application/json", "no-store", full(body))
}

pub(crate) fn see_other(to: &'static str) -> Answer {
    let mut answer = new(StatusCode::SEE_OTHER, "text/plain", "no-store", full(Bytes::new()));
    answer.headers_mut().insert(header::LOCATION, HeaderValue::from_static(to));
    answer
}

/// Server-sent events, as they come.
pub(crate) fn events(stream: impl Stream<Item = Bytes> + Send + 'static) -> Answer {
    use futures::StreamExt;
    let frames = stream.map(|bytes| Ok(Frame::data(bytes)));
    new(StatusCode::OK, "text/event-stream", "no-store", StreamBody::new(frames).boxed_unsync())
}
