//! JSON as rules see it: by its schema.

use serde_json::{Map, Value};

use crate::cel;
use crate::schema::{Structural, Type};

/// `value` as the variable of a rule. `resource`: apiVersion, kind and the names in metadata can be seen.
pub(super) fn to_cel(value: &Value, schema: &Structural, resource: bool) -> cel::Value {
    match value {
        Value::Object(fields) => object(fields, schema, resource),
        Value::Array(items) => match &schema.items {
            Some(schema) => cel::list(items.iter().map(|item| child(item, schema)).collect()),
            None => cel::of_json(value),
        },
        Value::Number(number) if schema.type_ == Some(Type::Number) => {
            cel::Value::Float(number.as_f64().unwrap_or(f64::NAN))
        }
        Value::String(text) if schema.type_ == Some(Type::String) => match schema.values.format.as_str() {
            format @ ("date" | "date-time" | "duration") => cel::timestamp_or_duration(text, format),
            "byte" => bytes(text),
            _ => cel::text(text),
        },
        other => cel::of_json(other),
    }
}

fn child(value: &Value, schema: &Structural) -> cel::Value {
    to_cel(value, schema, schema.embedded_resource)
}

fn bytes(text: &str) -> cel::Value {
    use base64::Engine as _;
    match base64::engine::general_purpose::STANDARD.decode(text) {
        Ok(bytes) => cel::Value::Bytes(bytes.into()),
        Err(_) => cel::text(text),
    }
}

/// A map by its keys; an object by the names that rules can spell, and only what the schema knows.
fn object(fields: &Map<String, Value>, schema: &Structural, resource: bool) -> cel::Value {
    if let Some(additional) = schema.additional() {
        return cel::map(fields.iter().map(|(name, value)| (name.clone(), child(value, additional))));
    }
    if schema.properties.is_empty() && !resource {
        let unknown = Value::Object(if schema.preserve_unknown_fields { fields.clone() } else { Map::new() });
        return cel::of_json(&unknown);
    }
    // Null counts as absent, where a field may be null.
    let known = fields.iter().filter(|(_, value)| !value.is_null()).filter_map(|(name, value)| {
        let converted = match (name.as_str(), schema.properties.get(name)) {
            ("apiVersion" | "kind", _) if resource => cel::of_json(value),
            ("metadata", _) if resource => names(value),
            (_, Some(schema)) => child(value, schema),
            (_, None) => return None,
        };
        Some((cel::escape(name)?, converted))
    });
    cel::map(known)
}

/// Of the metadata, rules see the names.
fn names(metadata: &Value) -> cel::Value {
    let names = ["name", "generateName"].into_iter();
    cel::map(names.filter_map(|name| Some((name.to_owned(), cel::of_json(metadata.get(name)?)))))
}
