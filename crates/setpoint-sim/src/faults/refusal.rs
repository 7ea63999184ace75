//! Error answers in the server's place, as kube-apiserver words them.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, header};
use serde_json::{Value, json};
use setpoint_kinds::protobuf;

use super::lines::Framing;
use crate::request::RequestInfo;

/// An error that a legal server can answer with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// 409 Conflict: somebody else has written the object (a *spurious* one: nobody has).
    Conflict,
    /// 410 Expired: the server has forgotten this resourceVersion or this page.
    Expired,
    /// 429 TooManyRequests with a Retry-After header of whole seconds.
    TooManyRequests {
        /// How long the client shall wait.
        retry_after: Duration,
    },
    /// 500 InternalError.
    InternalError,
    /// 503 ServiceUnavailable.
    ServiceUnavailable,
}

impl Refusal {
    /// The HTTP status code.
    pub fn code(self) -> u16 {
        match self {
            Refusal::Conflict => 409,
            Refusal::Expired => 410,
            Refusal::TooManyRequests { .. } => 429,
            Refusal::InternalError => 500,
            Refusal::ServiceUnavailable => 503,
        }
    }

    /// The machine-readable reason.
    pub fn reason(self) -> &'static str {
        match self {
            Refusal::Conflict => "Conflict",
            Refusal::Expired => "Expired",
            Refusal::TooManyRequests { .. } => "TooManyRequests",
            Refusal::InternalError => "InternalError",
            Refusal::ServiceUnavailable => "ServiceUnavailable",
        }
    }

    fn message(self, request: &RequestInfo) -> String {
        match self {
            Refusal::Conflict => format!(
                "Operation cannot be fulfilled on {} {:?}: the object has been modified; \
                 please apply your changes to the latest version and try again",
                request.group_resource(),
                request.name
            ),
            Refusal::Expired if request.query("continue").is_some() => {
                "The provided continue parameter is too old to display a consistent list result.".to_owned()
            }
            Refusal::Expired => {
                format!("too old resource version: {}", request.query("resourceVersion").unwrap_or("0"))
            }
            Refusal::TooManyRequests { .. } => "too many requests, please try again later".to_owned(),
            Refusal::InternalError => "Internal error occurred: injected fault".to_owned(),
            Refusal::ServiceUnavailable => "the server is currently unable to handle the request".to_owned(),
        }
    }

    fn retry_after(self) -> Option<u64> {
        match self {
            // A Retry-After counts whole seconds: a part of a second is one.
            Refusal::TooManyRequests { retry_after } => {
                Some(retry_after.as_secs() + u64::from(retry_after.subsec_nanos() > 0))
            }
            _ => None,
        }
    }

    fn status(self, request: &RequestInfo) -> Value {
        let mut details = json!({});
        for (key, value) in [("name", &request.name), ("group", &request.group), ("kind", &request.resource)]
        {
            if !value.is_empty() {
                details[key] = json!(value);
            }
        }
        if let Some(seconds) = self.retry_after() {
            details["retryAfterSeconds"] = json!(seconds);
        }
        json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message(request),
            "reason": self.reason(),
            "details": details,
            "code": self.code(),
        })
    }

    /// The whole answer to `request`.
    pub(crate) fn response(self, request: &RequestInfo) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from(self.status(request).to_string()));
        *response.status_mut() = http::StatusCode::from_u16(self.code()).expect("the codes above are valid");
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after() {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }

    /// The ERROR event in a watch, in the form that the watch has.
    pub(crate) fn event(self, request: &RequestInfo, framing: Framing) -> Bytes {
        if framing == Framing::Messages
            && let Ok(status) = protobuf::encode(&self.status(request))
        {
            let mut event = Vec::new();
            protobuf::append_event("ERROR", &status, &mut event);
            return event.into();
        }
        let event = json!({ "type": "ERROR", "object": self.status(request) });
        Bytes::from(format!("{event}\n"))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code(), self.reason())
    }
}
