//! The schema of a type, as an API server takes it.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use kube::core::schema::{OptionalEnum, StructuralSchemaRewriter};
use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::{Error, FieldPath};
use crate::structural;
use crate::types::VERBATIM;

/// The schema of a whole object. It is checked: what an API server would not take is an error here.
pub(super) fn of<K: JsonSchema>(name: &str) -> Result<JSONSchemaProps, Error> {
    let generator = SchemaSettings::draft2020_12()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .with_transform(NotNull)
        .with_transform(StructuralSchemaRewriter)
        .with_transform(OptionalEnum)
        .with_transform(Finish)
        .into_generator();
    let mut schema = generator.into_root_schema_for::<K>().to_value();
    let path = FieldPath::root(name).field("openAPIV3Schema");
    if let Some(root) = schema.as_object_mut() {
        // Schemars names the type there; nobody needs it twice.
        root.remove("title");
        if let Some(definitions) = root.get("$defs").and_then(Value::as_object) {
            let names = definitions.keys().cloned().collect::<Vec<_>>().join(", ");
            return Err(Error::new(
                path,
                format!("these types hold themselves, which no CRD can say: {names}"),
            ));
        }
        structural::check_root(root, &path)?;
    }
    JSONSchemaProps::deserialize(&schema).map_err(|error| Error::new(path, error))
}

/// `Option<T>` → `T`: whether a field may be missing is said by `required`.
#[derive(Clone)]
struct NotNull;

impl Transform for NotNull {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(map) = schema.as_object_mut() else { return };
        if let Some(Value::Array(types)) = map.get_mut("type") {
            types.retain(|one| one != "null");
            if let [one] = types.as_slice() {
                let one = one.clone();
                map.insert("type".to_owned(), one);
            }
        }
        if map.get("nullable") != Some(&Value::Bool(true))
            && let Some(Value::Array(values)) = map.get_mut("enum")
        {
            values.retain(|value| !value.is_null());
        }
        if let Some(Value::Array(parts)) = map.get_mut("anyOf") {
            parts.retain(|part| part.get("type") != Some(&Value::from("null")));
            if let [Value::Object(only)] = parts.as_slice() {
                let only = only.clone();
                map.remove("anyOf");
                for (key, value) in only {
                    map.entry(key).or_insert(value);
                }
            }
        }
    }
}

/// Takes away what no CRD has, and puts in what must not be touched.
#[derive(Clone)]
struct Finish;

impl Transform for Finish {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(map) = schema.as_object_mut() else { return };
        map.remove("writeOnly");
        if map.get("description") == Some(&Value::from("")) {
            map.remove("description");
        }
        if structural::preserves_unknown(map) && map.get("additionalProperties") == Some(&Value::Bool(true)) {
            map.remove("additionalProperties");
        }
        if map.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint")) {
            unsigned(map);
        }
        whole(map, "minimum");
        whole(map, "maximum");
        if let Some(Value::Object(verbatim)) = map.remove(VERBATIM) {
            map.extend(verbatim);
        }
    }
}

/// Kubernetes knows no unsigned integers, only a minimum.
fn unsigned(map: &mut Map<String, Value>) {
    map.insert("format".to_owned(), "int64".into());
    map.entry("minimum").or_insert(0.into());
}

/// A limit that is a whole number is written as one.
fn whole(map: &mut Map<String, Value>, key: &str) {
    if let Some(number) =
        map.get(key).and_then(Value::as_f64).filter(|number| number.fract() == 0.0 && number.abs() < 1e15)
    {
        map.insert(key.to_owned(), Value::from(number as i64));
    }
}
