//! The documents of custom resources: their definitions' schemas, with what every resource has.

use serde_json::{Map, Value, json};
use setpoint_kinds::table;

use super::descriptions::Descriptions;
use super::paths::Paths;
use super::schema::{Schemas, add_answers, refer};
use crate::definitions::{Custom, Served};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
/// Any kind whose fields are described.
const DESCRIBED: &str = "io.k8s.api.autoscaling.v1.Scale";
const CONVENTIONS: &str =
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";

/// The document of one group-version.
pub(super) fn document(served: &Served, group: &str, version: &str) -> Value {
    let mut schemas = Schemas::new(Descriptions::find());
    add_answers(&mut schemas);
    for name in ["meta.v1.ListMeta", "meta.v1.ObjectMeta"] {
        schemas.add(table().type_named(name).expect("the table has it"));
    }
    let mut paths = Paths { schemas: &mut schemas, paths: Map::new() };
    for custom in served.resources_of(group, version).filter_map(|resource| resource.definition()) {
        let (name, list_name) = (schema_name(custom, &custom.kind), schema_name(custom, &custom.list_kind));
        let (object, list) =
            (object_schema(paths.schemas, custom), list_schema(paths.schemas, custom, &name));
        paths.schemas.insert(name.clone(), object);
        paths.schemas.insert(list_name.clone(), list);
        paths.add_custom(custom, &name, &list_name);
    }
    super::finish(paths.paths, schemas)
}

/// `io.k8s.samplecontroller.v1alpha1.Foo`: the group the other way round.
fn schema_name(custom: &Custom, kind: &str) -> String {
    let mut parts: Vec<&str> = custom.group.split('.').rev().collect();
    parts.extend([&*custom.version, kind]);
    parts.join(".")
}

fn object_schema(schemas: &Schemas, custom: &Custom) -> Value {
    let mut schema = (*custom.open_api).clone();
    if !schema.is_object() {
        schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    }
    embed(schemas, &mut schema);
    add_meta(schemas, &mut schema, OBJECT_META, "Standard object's metadata. More info: ");
    schema["x-kubernetes-group-version-kind"] = group_version_kind(custom, &custom.kind);
    schema
}

fn list_schema(schemas: &Schemas, custom: &Custom, item: &str) -> Value {
    let mut schema = json!({
        "description": format!("{} is a list of {}", custom.list_kind, custom.kind),
        "type": "object",
        "required": ["items"],
        "properties": {"items": {
            "description": format!("List of {}. More info: {CONVENTIONS}", custom.plural),
            "type": "array",
            "items": refer(item),
        }},
    });
    add_meta(schemas, &mut schema, LIST_META, "Standard list metadata. More info: ");
    schema["x-kubernetes-group-version-kind"] = group_version_kind(custom, &custom.list_kind);
    schema
}

fn group_version_kind(custom: &Custom, kind: &str) -> Value {
    json!([{"group": custom.group, "version": custom.version, "kind": kind}])
}

/// What the schema of a definition need not say about apiVersion, kind and metadata.
fn add_meta(schemas: &Schemas, schema: &mut Value, metadata: &str, sentence: &str) {
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    for field in ["apiVersion", "kind"] {
        let mut property = json!({"type": "string"});
        if let Some(description) = schemas.describe(DESCRIBED, field) {
            property["description"] = description.into();
        }
        schema["properties"][field] = property;
    }
    schema["properties"]["metadata"] = json!({
        "description": format!("{sentence}{CONVENTIONS}#{}", if metadata == LIST_META { "types-kinds" } else { "metadata" }),
        "allOf": [refer(metadata)],
    });
}

/// The same for resources within resources.
fn embed(schemas: &Schemas, schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(|property| embed(schemas, property));
    }
    for field in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get_mut(field) {
            embed(schemas, inner);
        }
    }
    if schema["x-kubernetes-embedded-resource"] == true {
        add_meta(schemas, schema, OBJECT_META, "Standard object's metadata. More info: ");
    }
}
