//! What `cargo xtask real --only codegen` does with generated types: a sample through them and back, and the CRD that
//! they make beside the one that they were made from. One line of JSON for each version of a kind.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use setpoint_codegen::{Definition, Extent, crd, sample};

/// One version of a kind: prints what became of it, and returns its CRD.
pub fn check<K>(file: &str, version: &str) -> Result<CustomResourceDefinition>
where
    K: CustomResourceExt + JsonSchema + Serialize + DeserializeOwned,
{
    let text = std::fs::read_to_string(file)?;
    let definition = Definition::read(file, &text)?.pop().context("no CRD")?;
    let original = definition.versions.iter().find(|one| one.name == version).context("no version")?;
    let schema = Value::Object(original.schema().clone());
    let (mut lost, mut values, mut error) = (Vec::new(), 0, None);
    for extent in [Extent::Required, Extent::Full] {
        let object = sample(&definition, original, extent);
        match serde_json::from_value::<K>(object.clone()) {
            Ok(typed) => compare(&object, &serde_json::to_value(&typed)?, &schema, "", &mut lost),
            Err(problem) => error = Some(problem.to_string()),
        }
        values = count(&object);
    }
    let made = crd::of::<K>()?;
    let again = made.spec.versions.first().and_then(|one| one.schema.as_ref()?.open_api_v3_schema.as_ref());
    let mut changes = BTreeMap::new();
    difference(&schema, &serde_json::to_value(again)?, &mut changes);
    let line = json!({
        "crd": definition.name(), "version": version, "values": values, "lost": lost, "error": error,
        "changes": changes,
    });
    println!("{line}");
    Ok(made)
}

/// The same for types of somebody else's: what goes wrong is told, and the next one goes on.
#[allow(dead_code)]
pub fn attempt<K>(file: &str, version: &str)
where
    K: CustomResourceExt + JsonSchema + Serialize + DeserializeOwned,
{
    if let Err(error) = check::<K>(file, version) {
        println!("{}", json!({"crd": file, "version": version, "error": format!("{error:#}")}));
    }
}

/// Writes one CRD of all versions.
#[allow(dead_code)]
pub fn write(versions: Vec<CustomResourceDefinition>, path: &str) -> Result<()> {
    let merged = crd::merge(versions)?;
    Ok(std::fs::write(path, serde_json::to_string_pretty(&merged)?)?)
}

fn count(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 1,
    }
}

/// What is in `before` and not in `after`, by path, and what is new there but no default of the schema. A whole number
/// and the same with `.0` are one.
fn compare(before: &Value, after: &Value, schema: &Value, path: &str, lost: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (name, value) in before {
                let path = format!("{path}.{name}");
                match after.get(name) {
                    Some(found) => compare(value, found, field(schema, name), &path, lost),
                    None => lost.push(path),
                }
            }
            for (name, value) in after.iter().filter(|(name, _)| !before.contains_key(*name)) {
                let (path, schema) = (format!("{path}.{name}"), field(schema, name));
                match schema.get("default") {
                    // A server would have filled it in as well.
                    Some(default) => compare(default, value, schema, &path, lost),
                    None => lost.push(format!("{path} was added")),
                }
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            let items = before.iter().zip(after);
            items.for_each(|(before, after)| compare(before, after, &schema["items"], path, lost));
        }
        (Value::Number(before), Value::Number(after)) if before.as_f64() == after.as_f64() => {}
        (before, after) if before == after => {}
        (before, after) => lost.push(format!("{path}: {before} became {after}")),
    }
}

/// The schema of a field.
fn field<'a>(schema: &'a Value, name: &str) -> &'a Value {
    schema["properties"].get(name).unwrap_or(&schema["additionalProperties"])
}

/// Counts the keywords of a schema that are not what they were.
fn difference(before: &Value, after: &Value, changes: &mut BTreeMap<String, usize>) {
    let (Some(old), Some(new)) = (before.as_object(), after.as_object()) else { return };
    let names = old.keys().chain(new.keys().filter(|name| !old.contains_key(*name)));
    for name in names {
        match (name.as_str(), old.get(name), new.get(name)) {
            ("properties", Some(Value::Object(old)), Some(Value::Object(new))) => {
                for (name, schema) in old {
                    match new.get(name) {
                        Some(again) => difference(schema, again, changes),
                        None => *changes.entry(format!("property {name} left out")).or_default() += 1,
                    }
                }
            }
            ("items" | "additionalProperties", Some(old @ Value::Object(_)), Some(new @ Value::Object(_))) => {
                difference(old, new, changes);
            }
            ("description", ..) => {}
            (_, old, new) if same(old, new) => {}
            (name, None, Some(value)) if value.is_string() => {
                *changes.entry(format!("{name} {value} added")).or_default() += 1;
            }
            (name, None, Some(_)) => *changes.entry(format!("{name} added")).or_default() += 1,
            (name, Some(_), None) => *changes.entry(format!("{name} left out")).or_default() += 1,
            (name, ..) => *changes.entry(format!("{name} changed")).or_default() += 1,
        }
    }
}

/// The order of a list of names is of no account, nor is `1.0` for `1`.
fn same(old: Option<&Value>, new: Option<&Value>) -> bool {
    match (old, new) {
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            let text = |values: &[Value]| {
                let mut texts: Vec<String> = values.iter().map(Value::to_string).collect();
                texts.sort();
                texts
            };
            text(old) == text(new)
        }
        (Some(Value::Number(old)), Some(Value::Number(new))) => old.as_f64() == new.as_f64(),
        (old, new) => old == new,
    }
}
