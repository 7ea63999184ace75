//! What a backend has: its resources, and their schemas.

mod open_api;
mod resources;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde_json::Value;

use super::Backend;
use super::availability::own_call;
use super::proxy::Uncalled;
use crate::body::{self, Undecoded, Unread};
use crate::bounds::{MAX_NODES, Meter};
use crate::server::Core;

pub(crate) use open_api::OpenApi;
pub(super) use resources::Resources;

/// What has come of asking.
#[derive(Clone, Copy, Debug)]
pub(super) struct Learned {
    /// Whether something is not what it was.
    pub(super) is_new: bool,
    /// Whether it is known now.
    pub(super) is_known: bool,
}

/// Asks a backend for its resources.
pub(super) async fn learn_resources(core: &Core, backend: &Backend) -> Learned {
    match resources::learn(core, backend).await {
        Ok(is_new) => Learned { is_new, is_known: true },
        Err(why) => {
            tracing::debug!(name = backend.spec.name, why, "cannot read the discovery of a backend");
            Learned { is_new: forget(backend), is_known: false }
        }
    }
}

/// Asks a backend for its schemas, which may take long; whether they are not what they were.
pub(super) async fn learn_schemas(core: &Core, backend: &Backend) -> bool {
    open_api::learn(core, backend).await.unwrap_or_else(|why| {
        tracing::debug!(name = backend.spec.name, why, "cannot read the OpenAPI schemas of a backend");
        false
    })
}

/// Takes back what it said of its resources; whether it had said something. Its schemas stay, as in kube-apiserver.
pub(super) fn forget(backend: &Backend) -> bool {
    let mut resources = backend.resources.write();
    let is_new = resources.is_current();
    *resources = Resources::default();
    is_new
}

/// An answer that was read.
struct Fetched {
    code: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

/// Asks for one document, of so many bytes at most, within a time.
async fn fetch(
    core: &Core,
    backend: &Backend,
    target: String,
    accept: &'static str,
    tag: Option<&http::HeaderValue>,
    (most, limit): (usize, Duration),
) -> Result<Fetched, String> {
    let mut call = own_call(target, accept);
    if let Some(tag) = tag {
        call.headers.insert(http::header::IF_NONE_MATCH, tag.clone());
    }
    let fetching = async {
        let (response, _room) = backend.call(core, call).await.map_err(|uncalled| match uncalled {
            Uncalled::Nowhere => "its service leads nowhere".to_owned(),
            Uncalled::Crowded => "it has too many requests".to_owned(),
            Uncalled::Unusable(why) | Uncalled::Failed(why) => why,
        })?;
        let (head, body) = response.into_parts();
        let body = body::read(body, most, |_| Ok(())).await.map_err(|unread| match unread {
            Unread::TooLarge(limit) => format!("its answer has more than {limit} bytes"),
            Unread::Broken(error) => error.to_string(),
            Unread::Refused(status) => status.message,
        })?;
        Ok(Fetched { code: head.status, headers: head.headers, body })
    };
    tokio::time::timeout(limit, fetching).await.unwrap_or_else(|_| Err("it took too long".to_owned()))
}

impl Fetched {
    fn json(&self) -> Result<Value, String> {
        let decoded = body::parse_json_metered(&self.body, &Meter::of(4 * MAX_NODES));
        decoded.map(|decoded| decoded.value).map_err(|error| match error {
            Undecoded::Malformed(why) => why,
            Undecoded::Exceeded(_) => "its answer has too many values".to_owned(),
        })
    }
}
