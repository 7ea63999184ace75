//! One question, one answer.

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use serde_json::Value;

use super::{CallError, Target};
use crate::body::{self, Undecoded, Unread};
use crate::bounds::{MAX_NODES, Meter};
use crate::upstream::{Clients, Peer, Protocol, chain};

/// An answer holds a patch of an object, or as many objects as were sent to be converted.
const MOST_BYTES: usize = 16 << 20;
/// How many values it may have: those of four of the largest objects.
const MOST_VALUES: usize = 4 * MAX_NODES;
/// How much of an error page is told.
const MOST_TEXT: usize = 256;

/// Sends JSON; the answer must be JSON, too.
pub(crate) async fn post(clients: &Clients, target: Target, body: Bytes) -> Result<Value, CallError> {
    let Target { url, place, trusted } = target;
    let failed = |why: String| CallError::Failed { url: url.clone(), why };
    let request = Request::post(&url)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json, */*")
        .body(Full::new(body).map_err(|never| match never {}).boxed_unsync())
        .map_err(|error| failed(error.to_string()))?;
    let peer = Peer { place, trusted, protocol: Protocol::Any };
    let client = clients.get(peer).map_err(CallError::Unreachable)?;
    let response = client.request(request).await.map_err(|error| failed(chain(&error)))?;
    let code = response.status();
    let body = body::read(response.into_body(), MOST_BYTES, |_| Ok(())).await.map_err(|unread| {
        CallError::Unusable(match unread {
            Unread::TooLarge(limit) => format!("it has more than {limit} bytes"),
            Unread::Broken(error) => error.to_string(),
            Unread::Refused(status) => status.message,
        })
    })?;
    if code != StatusCode::OK {
        let text = String::from_utf8_lossy(&body);
        let text = text.trim().chars().take(MOST_TEXT).collect();
        return Err(CallError::Refused { code: code.as_u16(), text });
    }
    read(&body).map_err(CallError::Unusable)
}

/// Reads an answer; an error says why it cannot be used.
fn read(body: &[u8]) -> Result<Value, String> {
    let decoded = body::parse_json_metered(body, &Meter::of(MOST_VALUES));
    decoded.map(|decoded| decoded.value).map_err(|error| match error {
        Undecoded::Malformed(why) => why,
        Undecoded::Exceeded(_) => format!("it has more than {MOST_VALUES} values"),
    })
}
