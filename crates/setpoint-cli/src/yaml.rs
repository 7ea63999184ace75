//! YAML, read as JSON.

use anyhow::Context;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads a document that we ship or have written. The YAML is parsed into JSON first: a second decoder for each type would
/// be a megabyte of the program for texts that are read once.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    let value: Value = serde_saphyr::from_str(text).context("not YAML")?;
    Ok(serde_json::from_str(&value.to_string())?)
}
