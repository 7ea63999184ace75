//! Objects that fit a schema.

use serde_json::{Map, Value, json};

use crate::definition::{Definition, Version};
use crate::structural::{is_int_or_string, is_true, preserves_unknown, type_of};

/// How much of a schema a sample contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// What is required, no more.
    Required,
    /// Every property, every list with an item.
    Full,
}

/// An object of a version that its schema allows, except for patterns, formats and CEL rules, which cannot be
/// satisfied automatically.
pub fn sample(definition: &Definition, version: &Version, extent: Extent) -> Value {
    let mut object = value(version.schema(), extent);
    let mut metadata = json!({"name": "demo"});
    if definition.is_namespaced {
        metadata["namespace"] = "default".into();
    }
    if let Some(map) = object.as_object_mut() {
        map.insert("apiVersion".to_owned(), format!("{}/{}", definition.group, version.name).into());
        map.insert("kind".to_owned(), definition.names.kind.clone().into());
        map.insert("metadata".to_owned(), metadata);
        if extent == Extent::Required {
            map.remove("status");
        }
        let spec =
            version.schema().get("properties").and_then(|properties| properties.get("spec")?.as_object());
        if let Some(spec) = spec.filter(|_| !map.contains_key("spec")) {
            map.insert("spec".to_owned(), value(spec, extent));
        }
    }
    object
}

/// A field of the spec of such an object, and another value for it that the schema allows. None if there is no plain one, or if
/// CEL rules may forbid the change.
pub(crate) fn change(version: &Version, object: &Value) -> Option<(String, Value)> {
    let spec = version.schema().get("properties")?.get("spec")?;
    if spec.to_string().contains("x-kubernetes-validations") {
        return None;
    }
    let mut fields = spec.get("properties")?.as_object()?.iter();
    fields.find_map(|(name, schema)| {
        let schema = schema.as_object()?;
        Some((name.clone(), other_value(schema, object["spec"].get(name)?)?))
    })
}

/// Another value, of a field that is plain enough to be sure of it.
fn other_value(schema: &Map<String, Value>, value: &Value) -> Option<Value> {
    if ["enum", "pattern", "format", "multipleOf"].iter().any(|rule| schema.contains_key(*rule)) {
        return None;
    }
    match (type_of(schema)?, value) {
        ("string", Value::String(text)) => {
            let longest = schema.get("maxLength").and_then(Value::as_u64).unwrap_or(u64::MAX);
            let other = format!("{text}b");
            (other.len() as u64 <= longest).then(|| other.into())
        }
        ("boolean", Value::Bool(is_true)) => Some((!is_true).into()),
        ("integer", Value::Number(number)) => {
            let highest = schema.get("maximum").and_then(Value::as_f64).unwrap_or(f64::MAX);
            let other = number.as_i64()?.checked_add(1)?;
            ((other as f64) < highest).then(|| other.into())
        }
        _ => None,
    }
}

fn value(schema: &Map<String, Value>, extent: Extent) -> Value {
    if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
        return if extent == Extent::Full { full_default(schema, default) } else { default.clone() };
    }
    if let Some(first) = schema.get("enum").and_then(|values| values.as_array()?.first()) {
        return first.clone();
    }
    if is_int_or_string(schema) {
        return "1".into();
    }
    match type_of(schema) {
        Some("string") => string(schema),
        Some("integer") => json!(at_least(schema, 1.0) as i64),
        Some("number") => json!(at_least(schema, 0.0) + 0.5),
        Some("boolean") => true.into(),
        Some("array") => list(schema, extent),
        Some("object") => object(schema, extent),
        _ => json!({"any": ["thing", 1, null]}),
    }
}

/// A default that is an object may leave out what the schema has.
fn full_default(schema: &Map<String, Value>, default: &Value) -> Value {
    if type_of(schema) == Some("object") { object(schema, Extent::Full) } else { default.clone() }
}

fn string(schema: &Map<String, Value>) -> Value {
    let shortest = schema.get("minLength").and_then(Value::as_u64).unwrap_or(1);
    let text = match schema.get("format").and_then(Value::as_str) {
        Some("date-time") => return "2026-01-02T03:04:05Z".into(),
        Some("byte") => return "YQ==".into(),
        Some("uri") => "https://example.com",
        _ => "a",
    };
    let missing = usize::try_from(shortest).unwrap_or(0).saturating_sub(text.len());
    format!("{text}{}", "a".repeat(missing)).into()
}

fn at_least(schema: &Map<String, Value>, usual: f64) -> f64 {
    let lowest = schema.get("minimum").and_then(Value::as_f64).unwrap_or(f64::MIN);
    let highest = schema.get("maximum").and_then(Value::as_f64).unwrap_or(f64::MAX);
    usual.max(lowest).min(highest)
}

fn list(schema: &Map<String, Value>, extent: Extent) -> Value {
    let fewest = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0);
    let count = if extent == Extent::Full { fewest.max(1) } else { fewest };
    let Some(items) = schema.get("items").and_then(Value::as_object) else { return json!([]) };
    (0..count.min(16)).map(|_| value(items, extent)).collect()
}

fn object(schema: &Map<String, Value>, extent: Extent) -> Value {
    if is_true(schema, "x-kubernetes-embedded-resource") {
        return json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "demo"}});
    }
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut object = Map::new();
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let is_shown = extent == Extent::Full || required.contains(&name.as_str());
        if let Some(property) = property.as_object().filter(|_| is_shown) {
            object.insert(name.clone(), value(property, extent));
        }
    }
    if extent == Extent::Full {
        match schema.get("additionalProperties") {
            Some(Value::Object(values)) => drop(object.insert("key".to_owned(), value(values, extent))),
            Some(_) => drop(object.insert("key".to_owned(), json!({"free": [1]}))),
            None if preserves_unknown(schema) => {
                drop(object.insert("unknown".to_owned(), json!({"kept": true})))
            }
            None => {}
        }
    }
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(schema: Value, value: Value) -> Option<Value> {
        other_value(schema.as_object().expect("a schema"), &value)
    }

    #[test]
    fn only_what_the_schema_surely_allows_is_changed() {
        assert_eq!(other(json!({"type": "string"}), json!("a")), Some(json!("ab")));
        assert_eq!(other(json!({"type": "integer"}), json!(1)), Some(json!(2)));
        assert_eq!(other(json!({"type": "boolean"}), json!(true)), Some(json!(false)));
        for (schema, value) in [
            (json!({"type": "string", "maxLength": 1}), json!("a")),
            (json!({"type": "string", "enum": ["a", "c"]}), json!("a")),
            (json!({"type": "string", "pattern": "^a$"}), json!("a")),
            (json!({"type": "string", "format": "uri"}), json!("https://example.com")),
            (json!({"type": "integer", "maximum": 1}), json!(1)),
            (json!({"type": "object"}), json!({})),
        ] {
            assert_eq!(other(schema.clone(), value), None, "{schema}");
        }
    }
}
