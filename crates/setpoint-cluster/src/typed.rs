//! JSON → an object of its type.

use serde::de::DeserializeOwned;
use serde_json::{Error, Value};

/// Reads an object from a value by way of its text, as `kube` reads answers. A reader of values would be compiled a second
/// time for each kind, and is not quicker for the few objects that are made so.
pub(crate) fn typed<T: DeserializeOwned>(value: &Value) -> Result<T, Error> {
    serde_json::from_str(&value.to_string())
}
