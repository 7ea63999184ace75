//! Custom resources are merged by the schemas of their definitions.

use serde_json::{Value, json};

use super::{apply, owners};
use crate::support::{Api, version};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GADGETS: &str = "/apis/example.com/v1/namespaces/default/gadgets";

async fn served() -> Api {
    let api = Api::new();
    let properties = json!({
        "ports": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": {"type": "object", "required": ["port"], "properties": {
                "port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}, "name": {"type": "string"}
            }}
        },
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "list": {"type": "array", "items": {"type": "string"}},
        "color": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "integer"}},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "size": {"type": "integer"}
    });
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {"type": "object", "properties": properties},
        "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}}
    }}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": schema, "subresources": {"status": {}}}
            ]
        }
    });
    api.post(DEFINITIONS, &definition).await.ok();
    api
}

fn gadget(spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "a"}, "spec": spec})
}

#[tokio::test]
async fn lists_and_maps_are_merged_as_the_schema_says() {
    let api = served().await;
    let path = format!("{GADGETS}/a");
    let one = gadget(json!({
        "ports": [{"port": 80, "name": "web"}], "tags": ["a"], "list": ["x"], "color": {"red": 1}, "open": {"a": {"b": 1}}
    }));
    let created = apply(&api, &path, "one", "", &one).await;
    assert_eq!(created.code, 201, "{}", created.body);
    let two = gadget(json!({"ports": [{"port": 443}], "tags": ["b"], "open": {"a": {"c": 2}}}));
    let merged = apply(&api, &path, "two", "", &two).await.ok();
    let spec = &merged["spec"];
    assert_eq!(spec["ports"].as_array().unwrap().len(), 2, "{spec}");
    assert_eq!(spec["tags"], json!(["a", "b"]));
    assert_eq!(spec["open"], json!({"a": {"b": 1, "c": 2}}));
    assert_eq!(
        owners(&merged)[1].1,
        json!({"f:spec": {
            "f:open": {"f:a": {".": {}, "f:c": {}}},
            "f:ports": {r#"k:{"port":443,"protocol":"TCP"}"#: {".": {}, "f:port": {}}},
            "f:tags": {r#"v:"b""#: {}}
        }})
    );
    apply(&api, &path, "two", "", &gadget(json!({"list": ["x", "y"], "color": {"red": 1, "blue": 2}})))
        .await
        .refused(409, "Apply failed with 2 conflicts: conflicts with \"one\":\n- .spec.color\n- .spec.list");
}

#[tokio::test]
async fn the_same_apply_twice_is_no_write_and_what_is_unknown_is_refused() {
    let api = served().await;
    let path = format!("{GADGETS}/a");
    let object = gadget(json!({"ports": [{"port": 80}], "size": 3}));
    let first = apply(&api, &path, "m", "", &object).await.ok();
    let again = apply(&api, &path, "m", "", &object).await.ok();
    assert_eq!(version(&first), version(&again));
    apply(&api, &path, "m", "", &gadget(json!({"shape": "round"}))).await.refused(
        500,
        "failed to create typed patch object (/a; example.com/v1, Kind=Gadget): .spec.shape: field not declared in schema",
    );
    let status =
        api.merge(&format!("{path}/status?fieldManager=c"), &json!({"status": {"ready": true}})).await.ok();
    assert_eq!(
        owners(&status)[1],
        ("c Update status".to_owned(), json!({"f:status": {".": {}, "f:ready": {}}}))
    );
}
