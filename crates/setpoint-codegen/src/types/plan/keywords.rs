//! What a schema says beyond the type: it goes into attributes, word for word.

use serde_json::{Map, Value};

use super::{Position, Schema};
use crate::types::model::Keywords;

/// Under this keyword stands what must reach the CRD untouched. `kube` moves the parts of `oneOf` and `anyOf`
/// around, for it takes them for Rust enums.
pub(crate) const VERBATIM: &str = "x-setpoint-schema";

/// Keywords that are Rust types already, or the field's doc comment and default.
const ALWAYS_KNOWN: [&str; 4] = ["type", "description", "default", "nullable"];

/// The keywords of a schema but those that are in the Rust type already.
pub(super) fn extras(schema: &Schema, known: &[&str], position: Position) -> Keywords {
    let mut keywords = Keywords::new();
    let repeats = known.contains(&"x-kubernetes-int-or-string");
    for (key, value) in schema {
        let is_of_item = position == Position::Item && key == "description";
        let is_known = ALWAYS_KNOWN.contains(&key.as_str()) && !is_of_item || known.contains(&key.as_str());
        let is_off = key.starts_with("x-") && *value == Value::Bool(false);
        let is_repeated = repeats && key == "anyOf" && is_int_or_string(value);
        if !(is_known || is_off || is_repeated) {
            add(&mut keywords, key, value);
        }
    }
    keywords.extend(super::nullable(schema));
    keywords
}

/// Adds a keyword, untouchable if `kube` would touch it.
pub(super) fn add(keywords: &mut Keywords, key: &str, value: &Value) {
    if !(is_part(key) || has_parts(value)) {
        keywords.push((key.to_owned(), value.clone()));
        return;
    }
    match keywords.iter_mut().find(|(key, _)| key == VERBATIM) {
        Some((_, Value::Object(map))) => drop(map.insert(key.to_owned(), value.clone())),
        _ => {
            let map = Map::from_iter([(key.to_owned(), value.clone())]);
            keywords.push((VERBATIM.to_owned(), Value::Object(map)));
        }
    }
}

pub(super) fn without(schema: &Schema, keys: &[&str]) -> Schema {
    schema
        .iter()
        .filter(|(key, _)| !keys.contains(&key.as_str()))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect()
}

fn is_part(key: &str) -> bool {
    matches!(key, "allOf" | "anyOf" | "oneOf" | "not")
}

fn has_parts(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(key, value)| is_part(key) || has_parts(value)),
        Value::Array(items) => items.iter().any(has_parts),
        _ => false,
    }
}

/// `anyOf: [{type: integer}, {type: string}]` repeats what the extension says.
fn is_int_or_string(any_of: &Value) -> bool {
    *any_of == serde_json::json!([{"type": "integer"}, {"type": "string"}])
}
