//! What `cargo xtask real --only codegen` does with generated types: samples through them and back, and the CRD that
//! they make beside the one that they were made from. It says one line of JSON.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use setpoint_codegen::{Definition, Extent, crd, sample};

/// One version of the kind in the CRD `file`. The CRD of the types goes to `made`, beside the versions that are there.
pub fn check<K>(file: &str, version: &str, made: &str) -> Result<()>
where
    K: CustomResourceExt + JsonSchema + Serialize + DeserializeOwned,
{
    let text = std::fs::read_to_string(file)?;
    let definition = Definition::read(file, &text)?.pop().context("no CRD")?;
    let original = definition.versions.iter().find(|one| one.name == version).context("no version")?;
    let schema = Value::Object(original.schema().clone());
    let (mut values, mut lost, mut added, mut errors) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for extent in [Extent::Required, Extent::Full] {
        let object = sample(&definition, original, extent);
        leaves(&object, "", &mut values);
        match serde_json::from_value::<K>(object.clone()) {
            Ok(typed) => {
                let again = serde_json::to_value(&typed)?;
                missing(&object, &again, "", &mut lost);
                new(&object, &again, &schema, "", &mut added);
            }
            Err(error) => {
                leaves(&object, "", &mut lost);
                errors.push(format!("{extent:?}: {error}"));
            }
        }
    }
    let crd = match crd::of::<K>() {
        Ok(crd) => {
            write(crd.clone(), Path::new(made))?;
            crd
        }
        Err(error) => {
            errors.push(format!("a server would refuse its CRD: {error}"));
            K::crd()
        }
    };
    let again = crd.spec.versions.first().and_then(|one| one.schema.clone()?.open_api_v3_schema);
    let mut difference = Difference::default();
    difference.root(&schema, &serde_json::to_value(again)?);
    let line = json!({
        "values": values.len(), "lost": lost, "added": added, "errors": errors,
        "before": difference.before, "changes": difference.changes,
    });
    println!("{line}");
    Ok(())
}

/// Adds a version to the CRD of the kind. Several are one CRD once all of them are there.
fn write(version: CustomResourceDefinition, path: &Path) -> Result<()> {
    let mut versions: Vec<CustomResourceDefinition> = Vec::new();
    let parts = path.with_extension("parts");
    if parts.exists() {
        versions = serde_json::from_str(&std::fs::read_to_string(&parts)?)?;
    }
    versions.push(version);
    std::fs::write(&parts, serde_json::to_string(&versions)?)?;
    if let Ok(merged) = crd::merge(versions) {
        std::fs::write(path, serde_json::to_string_pretty(&merged)?)?;
    }
    Ok(())
}

/// The path of every value that holds no other.
fn leaves(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Array(items) if !items.is_empty() => items.iter().for_each(|item| leaves(item, path, found)),
        Value::Object(fields) if !fields.is_empty() => {
            fields.iter().for_each(|(name, field)| leaves(field, &format!("{path}.{name}"), found));
        }
        _ => found.push(path.to_owned()),
    }
}

/// What is in `before` and not, or not so, in `after`. A whole number and the same with `.0` are one.
fn missing(before: &Value, after: &Value, path: &str, lost: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(old), Value::Object(new)) if !old.is_empty() => {
            for (name, value) in old {
                let path = format!("{path}.{name}");
                match new.get(name) {
                    Some(found) => missing(value, found, &path, lost),
                    None => leaves(value, &path, lost),
                }
            }
        }
        (Value::Object(_), Value::Object(_)) => {}
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            old.iter().zip(new).for_each(|(old, new)| missing(old, new, path, lost));
        }
        (Value::Number(old), Value::Number(new)) if old.as_f64() == new.as_f64() => {}
        (old, new) if old == new => {}
        (old, _) => leaves(old, path, lost),
    }
}

/// What is in `after` alone, but for defaults of the schema: a server would have filled them in as well.
fn new(before: &Value, after: &Value, schema: &Value, path: &str, added: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(old), Value::Object(new_fields)) => {
            for (name, value) in new_fields {
                let (path, schema) = (format!("{path}.{name}"), field(schema, name));
                match (old.get(name), schema.get("default")) {
                    (Some(old), _) => new(old, value, schema, &path, added),
                    (None, Some(default)) => new(default, value, schema, &path, added),
                    (None, None) => leaves(value, &path, added),
                }
            }
        }
        (Value::Array(old), Value::Array(items)) if old.len() == items.len() => {
            old.iter().zip(items).for_each(|(old, item)| new(old, item, &schema["items"], path, added));
        }
        _ => {}
    }
}

/// The schema of a field.
fn field<'a>(schema: &'a Value, name: &str) -> &'a Value {
    schema["properties"].get(name).unwrap_or(&schema["additionalProperties"])
}

/// The keywords of a schema that are not what they were.
#[derive(Default)]
struct Difference {
    /// How often each keyword was there.
    before: BTreeMap<String, usize>,
    /// Where one was left out, changed or added: `default left out`.
    changes: BTreeMap<String, Vec<String>>,
}

impl Difference {
    /// The root's `apiVersion`, `kind` and `metadata` are those of every object, said or not.
    fn root(&mut self, before: &Value, after: &Value) {
        let mut before = before.clone();
        if let Some(properties) = before["properties"].as_object_mut() {
            properties.retain(|name, _| !["apiVersion", "kind", "metadata"].contains(&name.as_str()));
        }
        self.schema(&before, after, "");
    }

    /// What is missing in `after` is missing with everything in it.
    fn schema(&mut self, before: &Value, after: &Value, path: &str) {
        let nothing = serde_json::Map::new();
        let Some(old) = before.as_object() else { return };
        let new = after.as_object().unwrap_or(&nothing);
        for (name, value) in old {
            match (name.as_str(), value) {
                ("properties", Value::Object(properties)) => {
                    for (field, schema) in properties {
                        self.schema(schema, &after["properties"][field], &format!("{path}.{field}"));
                    }
                }
                ("items" | "additionalProperties", Value::Object(_)) => {
                    self.schema(value, &after[name], &format!("{path}[]"));
                }
                _ => self.keyword(keyword(old, name), value, new.get(name), path),
            }
        }
        for name in new.keys().filter(|name| !old.contains_key(*name)) {
            self.note(&format!("{name} added"), path);
        }
    }

    fn keyword(&mut self, name: &str, old: &Value, new: Option<&Value>, path: &str) {
        *self.before.entry(name.to_owned()).or_default() += 1;
        match new {
            None => self.note(&format!("{name} left out"), path),
            Some(new) if same(old, new) => {}
            Some(_) => self.note(&format!("{name} changed"), path),
        }
    }

    fn note(&mut self, what: &str, path: &str) {
        self.changes.entry(what.to_owned()).or_default().push(path.to_owned());
    }
}

/// Whoever writes that a value is an integer or a string writes it twice.
fn keyword<'a>(schema: &serde_json::Map<String, Value>, name: &'a str) -> &'a str {
    match name {
        "anyOf" if schema.contains_key("x-kubernetes-int-or-string") => "anyOf beside int-or-string",
        name => name,
    }
}

/// The order of a list of names is of no account, nor is `1.0` for `1`, nor where the lines of a text end.
fn same(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Array(old), Value::Array(new)) => {
            let text = |values: &[Value]| {
                let mut texts: Vec<String> = values.iter().map(Value::to_string).collect();
                texts.sort();
                texts
            };
            text(old) == text(new)
        }
        (Value::Number(old), Value::Number(new)) => old.as_f64() == new.as_f64(),
        (Value::String(old), Value::String(new)) => old.split_whitespace().eq(new.split_whitespace()),
        (old, new) => old == new,
    }
}
