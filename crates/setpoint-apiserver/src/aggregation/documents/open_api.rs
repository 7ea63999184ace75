//! Its schemas: where they are, so that clients can be led there, and what of them goes into the one document of v2.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, StatusCode, header};
use serde_json::{Map, Value};

use super::super::Backend;
use super::fetch;
use crate::openapi::{self, Part};
use crate::server::Core;

const INDEX: (usize, Duration) = (1 << 20, Duration::from_secs(10));
const DOCUMENT: (usize, Duration) = (16 << 20, Duration::from_secs(60));
const PREFIX: &str = "/openapi/v3/";

/// What is known of a backend's schemas.
#[derive(Debug)]
pub(crate) struct OpenApi {
    /// `apis/GROUP/VERSION`.
    pub(crate) path: String,
    /// Where the document of v3 is; it changes when the document does.
    pub(crate) url: String,
    /// What it has for v2.
    pub(crate) part: Part,
    /// Its document, if it has none of v3 itself.
    pub(crate) converted: Option<Converted>,
}

/// A document of v3 that was made from one of v2: servers that are built on older libraries have no other.
#[derive(Debug)]
pub(crate) struct Converted {
    pub(crate) hash: String,
    pub(crate) text: String,
    /// The tag of what it was made from.
    tag: Option<HeaderValue>,
}

/// Asks for them; whether they are not what they were.
pub(super) async fn learn(core: &Core, backend: &Backend) -> Result<bool, String> {
    let path = backend.spec.path().trim_start_matches('/').to_owned();
    let index = fetch(core, backend, "/openapi/v3".to_owned(), "application/json", None, INDEX).await?;
    match index.code {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => return learn_older(core, backend, path).await,
        code => return Err(format!("it answers {code}")),
    }
    let index = index.json()?;
    let Some(url) = index["paths"][&path]["serverRelativeURL"].as_str().map(str::to_owned) else {
        return Err("it has no schemas of this version".to_owned());
    };
    // It is shown to clients, and asked for here.
    if !url.starts_with(PREFIX) || !url.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("its address is none of its own".to_owned());
    }
    if backend.open_api().is_some_and(|known| known.url == url) {
        return Ok(false);
    }
    let document = fetch(core, backend, url.clone(), "application/json", None, DOCUMENT).await?;
    if document.code != StatusCode::OK {
        return Err(format!("it answers {}", document.code));
    }
    let part = Part::foreign(only_own(document.json()?, &format!("/{path}/")));
    *backend.open_api.write() = Some(Arc::new(OpenApi { path, url, part, converted: None }));
    Ok(true)
}

/// The same of a server that knows v2 alone.
async fn learn_older(core: &Core, backend: &Backend, path: String) -> Result<bool, String> {
    let known = backend.open_api();
    let tag = known.as_ref().and_then(|known| known.converted.as_ref()?.tag.as_ref());
    let document = fetch(core, backend, "/openapi/v2".to_owned(), "application/json", tag, DOCUMENT).await?;
    match document.code {
        StatusCode::OK => {}
        StatusCode::NOT_MODIFIED if tag.is_some() => return Ok(false),
        code => return Err(format!("it answers {code}")),
    }
    let tag = document.headers.get(header::ETAG).cloned();
    let own = openapi::converted(only_own(document.json()?, &format!("/{path}/")));
    let text = own.to_string();
    let hash = openapi::hash(&text);
    let url = format!("{PREFIX}{path}?hash={hash}");
    let is_new = known.is_none_or(|known| known.url != url);
    let converted = Some(Converted { hash, text, tag });
    *backend.open_api.write() = Some(Arc::new(OpenApi { path, url, part: Part::foreign(own), converted }));
    Ok(is_new)
}

/// The document without paths of other group-versions, which it has no say in.
fn only_own(mut document: Value, prefix: &str) -> Value {
    if let Some(paths) = document.get_mut("paths").and_then(Value::as_object_mut) {
        let all: Map<String, Value> = std::mem::take(paths);
        *paths = all
            .into_iter()
            .filter(|(path, _)| {
                path.starts_with(prefix) || path.trim_end_matches('/') == prefix.trim_end_matches('/')
            })
            .collect();
    }
    document
}
