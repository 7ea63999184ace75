//! YAML in and out.

use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, Options};

use crate::error::{Error, FieldPath};

/// All documents of a text that are not empty.
pub(crate) fn documents(text: &str) -> Result<Vec<Value>, Error> {
    let read = serde_saphyr::from_multiple_with_options::<Value>(text, options());
    let documents = read.map_err(|error| Error::new(FieldPath::default(), explain(&error)))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// A document as we write it.
pub(crate) fn render<T: serde::Serialize>(value: &T) -> Result<String, Error> {
    serde_saphyr::to_string(value).map_err(|error| Error::new("", error))
}

/// CRDs of 20,000 lines are ordinary; these limits are far above them.
fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: 160,
            max_nodes: 4_000_000,
            max_events: 16_000_000,
            max_total_scalar_bytes: 256 * 1024 * 1024,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        with_snippet: false,
    }
}

fn explain(error: &serde_saphyr::Error) -> String {
    let text = error.to_string();
    format!("not YAML: {}", text.lines().next().unwrap_or_default())
}
