//! Its schemas: where they are, so that clients can be led there, and what of them goes into the one document of v2.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Map, Value};

use super::super::Backend;
use super::fetch;
use crate::openapi::Part;
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
}

/// Asks for them; whether they are not what they were.
pub(super) async fn learn(core: &Core, backend: &Backend) -> Result<bool, String> {
    let path = backend.spec.path().trim_start_matches('/').to_owned();
    let index = fetch(core, backend, "/openapi/v3".to_owned(), "application/json", None, INDEX).await?;
    if index.code != StatusCode::OK {
        return Err(format!("it answers {}", index.code));
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
    *backend.open_api.write() = Some(Arc::new(OpenApi { path, url, part }));
    Ok(true)
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
