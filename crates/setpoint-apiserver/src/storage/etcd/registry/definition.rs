//! CustomResourceDefinitions are stored in v1beta1, which is not served any more: what all versions have in common stands
//! once there, in the specification itself.

use serde_json::{Map, Value};

/// The fields that each version has in v1, and the specification in v1beta1 if all versions agree.
const SHARED: [(&str, &str); 4] = [
    ("subresources", "subresources"),
    ("schema", "validation"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

pub(super) fn to_v1beta1(mut object: Value) -> Value {
    object["apiVersion"] = "apiextensions.k8s.io/v1beta1".into();
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return object };
    let mut versions = take_list(spec, "versions");
    for (own, shared) in SHARED {
        let first = versions.first().and_then(|version| version.get(own)).cloned();
        if !versions.iter().all(|version| version.get(own) == first.as_ref()) {
            continue;
        }
        for version in versions.iter_mut().filter_map(Value::as_object_mut) {
            version.remove(own);
        }
        if let Some(value) = first {
            spec.insert(shared.to_owned(), value);
        }
    }
    if let Some(columns) = spec.get_mut("additionalPrinterColumns") {
        rename_paths(columns, "jsonPath", "JSONPath");
    }
    for version in &mut versions {
        if let Some(columns) = version.get_mut("additionalPrinterColumns") {
            rename_paths(columns, "jsonPath", "JSONPath");
        }
    }
    if let Some(name) = versions.first().map(|version| version["name"].clone()) {
        spec.insert("version".to_owned(), name);
    }
    if !versions.is_empty() {
        spec.insert("versions".to_owned(), Value::Array(versions));
    }
    if let Some(conversion) = spec.get_mut("conversion").and_then(Value::as_object_mut)
        && let Some(Value::Object(mut webhook)) = conversion.remove("webhook")
    {
        if let Some(client) = webhook.remove("clientConfig") {
            conversion.insert("webhookClientConfig".to_owned(), client);
        }
        if let Some(reviews) = webhook.remove("conversionReviewVersions") {
            conversion.insert("conversionReviewVersions".to_owned(), reviews);
        }
    }
    spec.entry("preserveUnknownFields").or_insert(Value::Bool(false));
    object
}

pub(super) fn to_v1(mut object: Value) -> Value {
    object["apiVersion"] = "apiextensions.k8s.io/v1".into();
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return object };
    let mut versions = take_list(spec, "versions");
    let name = spec.remove("version");
    if versions.is_empty()
        && let Some(name) = name
    {
        versions.push(serde_json::json!({"name": name, "served": true, "storage": true}));
    }
    for (own, shared) in SHARED {
        let Some(value) = spec.remove(shared) else { continue };
        for version in versions.iter_mut().filter_map(Value::as_object_mut) {
            version.insert(own.to_owned(), value.clone());
        }
    }
    for version in &mut versions {
        if let Some(columns) = version.get_mut("additionalPrinterColumns") {
            rename_paths(columns, "JSONPath", "jsonPath");
        }
    }
    spec.insert("versions".to_owned(), Value::Array(versions));
    let preserves = spec.remove("preserveUnknownFields").is_none_or(|preserves| preserves == true);
    if preserves {
        spec.insert("preserveUnknownFields".to_owned(), Value::Bool(true));
    }
    if let Some(conversion) = spec.get_mut("conversion").and_then(Value::as_object_mut) {
        let mut webhook = Map::new();
        if let Some(client) = conversion.remove("webhookClientConfig") {
            webhook.insert("clientConfig".to_owned(), client);
        }
        if let Some(reviews) = conversion.remove("conversionReviewVersions") {
            webhook.insert("conversionReviewVersions".to_owned(), reviews);
        }
        if !webhook.is_empty() {
            conversion.insert("webhook".to_owned(), Value::Object(webhook));
        }
    }
    object
}

fn take_list(spec: &mut Map<String, Value>, name: &str) -> Vec<Value> {
    match spec.remove(name) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

/// The path of a column is written differently in the two versions.
fn rename_paths(columns: &mut Value, from: &str, to: &str) {
    for column in columns.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        if let Some(path) = column.remove(from) {
            column.insert(to.to_owned(), path);
        }
    }
}
