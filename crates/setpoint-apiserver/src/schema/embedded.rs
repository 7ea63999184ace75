//! Resources within resources: their apiVersion, kind and metadata are checked whatever the schema says.

use serde_json::{Map, Value};

use super::Structural;
use crate::field_error::FieldError;
use crate::metadata::{self, names, names::NameRule};

/// Gives the metadata of the resources below `value` the shape of everybody's. Appends the paths of the fields that are
/// dropped; an error is what cannot be read as metadata.
pub(super) fn coerce(
    schema: &Structural,
    value: &mut Value,
    path: &str,
    dropped: &mut Vec<String>,
) -> Result<(), FieldError> {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let at = child(path, name);
                match name.as_str() {
                    "apiVersion" | "kind" if schema.embedded_resource && !value.is_string() => {
                        return Err(FieldError::invalid(at, value.clone(), "must be a string"));
                    }
                    "metadata" if schema.embedded_resource => coerce_metadata(value, &at, dropped)?,
                    _ => {}
                }
                if let Some(schema) = schema.properties.get(name) {
                    coerce(schema, value, &at, dropped)?;
                } else if let Some(schema) = schema.additional() {
                    coerce(schema, value, &format!("{path}[{name}]"), dropped)?;
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for (index, item) in items.iter_mut().enumerate() {
                    coerce(schema, item, &format!("{path}[{index}]"), dropped)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn coerce_metadata(metadata: &mut Value, path: &str, dropped: &mut Vec<String>) -> Result<(), FieldError> {
    let kind = setpoint_kinds::table().type_named("meta.v1.ObjectMeta").expect("the table has it");
    let mut unknown = Vec::new();
    let before = metadata.clone();
    let coerced = setpoint_kinds::conform(kind, metadata, &mut unknown);
    coerced.map_err(|error| FieldError::invalid(path, before, error.to_string()))?;
    dropped.extend(unknown.iter().map(|field| format!("{path}.{}", field.path)));
    Ok(())
}

/// Appends what is wrong with the embedded resources below `value`.
pub(super) fn validate(schema: &Structural, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            if schema.embedded_resource {
                validate_resource(fields, path, errors);
            }
            for (name, value) in fields {
                if let Some(schema) = schema.properties.get(name) {
                    validate(schema, value, &child(path, name), errors);
                } else if let Some(schema) = schema.additional() {
                    validate(schema, value, &format!("{path}[{name}]"), errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    validate(schema, item, &format!("{path}[{index}]"), errors);
                }
            }
        }
        _ => {}
    }
}

fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn validate_resource(fields: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    for name in ["apiVersion", "kind"] {
        if !fields.contains_key(name) {
            errors.push(FieldError::required(child(path, name), ""));
        }
    }
    if let Some(problem) = fields.get("apiVersion").and_then(api_version_problem) {
        errors.push(FieldError::invalid(child(path, "apiVersion"), fields["apiVersion"].clone(), problem));
    }
    if let Some(problem) = fields.get("kind").and_then(kind_problem) {
        errors.push(FieldError::invalid(child(path, "kind"), fields["kind"].clone(), problem));
    }
    if let Some(metadata) = fields.get("metadata") {
        errors.extend(validate_metadata(metadata, path));
    }
}

fn api_version_problem(value: &Value) -> Option<String> {
    let Some(text) = value.as_str() else { return Some("must be a string".to_owned()) };
    if text.is_empty() {
        return Some("must not be empty".to_owned());
    }
    let slashes = text.matches('/').count();
    (slashes > 1 && text != "/").then(|| format!("unexpected GroupVersion string: {text}"))
}

fn kind_problem(value: &Value) -> Option<String> {
    let Some(text) = value.as_str() else { return Some("must be a string".to_owned()) };
    if text.is_empty() {
        return Some("must not be empty".to_owned());
    }
    let problems = names::dns1035_label(&text.to_lowercase());
    let prefix = "may have mixed case, but should otherwise match: ";
    (!problems.is_empty()).then(|| format!("{prefix}{}", problems.join(",")))
}

/// An embedded resource need not have a name, and its namespace is its own affair.
fn validate_metadata(metadata: &Value, path: &str) -> Vec<FieldError> {
    if !metadata.is_object() {
        return Vec::new();
    }
    let mut named = metadata.clone();
    if named["name"].as_str().unwrap_or_default().is_empty() {
        named["name"] = "fakename".into();
    }
    let namespaced = !named["namespace"].as_str().unwrap_or_default().is_empty();
    let mut errors = metadata::validate_create(&named, namespaced, NameRule::PathSegment);
    for error in &mut errors {
        error.field = child(path, &error.field);
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_metadata_of_embedded_resources_have_the_shape_of_everybodys() {
        let resource = json!({"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true});
        let schema = json!({"type": "object", "properties": {
            "one": resource, "many": {"type": "array", "items": resource}, "map": {"type": "object",
                "additionalProperties": resource}}});
        let schema = Structural::parse(&schema).unwrap();
        let embedded =
            |metadata: Value| json!({"apiVersion": "v1", "kind": "A", "metadata": metadata, "x": {"y": 1}});
        let good = || embedded(json!({"name": "a", "labels": {"a": "b"}}));
        let odd = || embedded(json!({"name": "a", "odd": 1, "labels": {"a": "b"}, "annotations": {}}));
        let mut object = json!({"one": odd(), "many": [good(), odd()], "map": {"k": odd()}});
        let mut dropped = Vec::new();
        coerce(&schema, &mut object, "", &mut dropped).unwrap();
        assert_eq!(object, json!({"one": good(), "many": [good(), good()], "map": {"k": good()}}));
        dropped.sort();
        assert_eq!(dropped, ["many[1].metadata.odd", "map[k].metadata.odd", "one.metadata.odd"]);

        for (wrong, path) in [
            (json!({"one": {"kind": 5}}), "one.kind: Invalid value: 5: must be a string"),
            (json!({"one": embedded(json!({"labels": {"a": 1}}))}), "one.metadata: Invalid value: {"),
        ] {
            let error = coerce(&schema, &mut wrong.clone(), "", &mut Vec::new()).unwrap_err().to_string();
            assert!(error.starts_with(path), "{error}");
        }
    }

    #[test]
    fn embedded_resources_need_a_version_a_kind_and_sound_metadata() {
        let schema = Structural::parse(&json!({"type": "object", "properties": {"list": {
            "type": "array", "items": {
                "type": "object", "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true,
            },
        }}}))
        .unwrap();
        let mut errors = Vec::new();
        let object = json!({"list": [
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"labels": {"a": "b"}}},
            {"kind": "a_b", "metadata": {"name": "a/b"}},
            {"apiVersion": "a/b/c", "kind": ""},
        ]});
        validate(&schema, &object, "", &mut errors);
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            errors,
            [
                "list[1].apiVersion: Required value",
                "list[1].kind: Invalid value: \"a_b\": may have mixed case, but should otherwise match: a DNS-1035 \
                 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, \
                 and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is \
                 '[a-z]([-a-z0-9]*[a-z0-9])?')",
                "list[1].metadata.name: Invalid value: \"a/b\": may not contain '/'",
                "list[2].apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
                "list[2].kind: Invalid value: \"\": must not be empty",
            ]
        );
    }
}
