//! Objects that a server stored before there were bounds: whoever has one can make it smaller, and delete it.

use bytes::Bytes;
use http_body_util::Full;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::super::*;
use crate::bounds::MAX_NODES;
use crate::object;
use crate::storage::{Action, Change, Expect};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEEPS: &str = "/apis/example.com/v1/namespaces/default/deeps";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON: &str = "application/json-patch+json";

async fn send(server: &ApiServer, method: &str, path: &str, media: &str, body: &Value) -> u16 {
    let request = Request::builder().method(method).uri(path).header("content-type", media);
    let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
    server.as_user(User::admin()).oneshot(request).await.unwrap().status().as_u16()
}

/// Stores an object past all checks.
async fn store(server: &ApiServer, (group, plural): (&str, &str), value: Bytes) {
    let core = server.core();
    let key = core.resource(group, "v1", plural).unwrap().key(Some("default"), "old");
    let change = Change { key, expect: Expect::Absent, action: Action::Put { value, ttl: None } };
    core.storage.commit(change).await.unwrap();
}

#[tokio::test]
async fn an_object_of_too_many_values_can_be_patched_smaller_and_deleted() {
    let server = ApiServer::builder().build();
    let data: serde_json::Map<String, Value> =
        (0..MAX_NODES + 1000).map(|n| (n.to_string(), json!(""))).collect();
    let old = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": data,
        "metadata": {"name": "old", "namespace": "default", "uid": "u", "finalizers": ["example.com/a", "example.com/b"]},
    });
    store(&server, ("", "configmaps"), object::encode(&old)).await;
    let path = format!("{MAPS}/old");
    for (media, patch, code) in [
        (MERGE, json!({"data": {"1": null}}), 200),
        (STRATEGIC, json!({"data": {"2": null}}), 200),
        (JSON, json!([{"op": "remove", "path": "/data/3"}]), 200),
        (MERGE, json!({"data": {"4": null, "x": ""}}), 200),
        (MERGE, json!({"data": {"y": "", "z": ""}}), 413),
        (JSON, json!([{"op": "add", "path": "/data/y", "value": ""}]), 413),
        (MERGE, json!({"metadata": {"finalizers": null}}), 200),
    ] {
        assert_eq!(send(&server, "PATCH", &path, media, &patch).await, code, "{media} {patch}");
    }
    assert_eq!(send(&server, "DELETE", &path, "application/json", &json!({})).await, 200);
    assert_eq!(send(&server, "GET", &path, "application/json", &Value::Null).await, 404);
}

#[tokio::test]
async fn an_object_that_is_too_deep_can_be_freed_and_goes_with_its_definition() {
    let server = ApiServer::builder().build();
    let definition = json!({
        "metadata": {"name": "deeps.example.com"},
        "spec": {
            "group": "example.com", "names": {"kind": "Deep", "plural": "deeps"}, "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true
            }}}],
        }
    });
    assert_eq!(send(&server, "POST", DEFINITIONS, "application/json", &definition).await, 201);
    let nested = format!("{}1{}", "{\"a\":".repeat(3_000), "}".repeat(3_000));
    let old = format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Deep","metadata":{{"name":"old","namespace":"default","uid":"u","finalizers":["example.com/a"]}},"spec":{nested}}}"#
    );
    store(&server, ("example.com", "deeps"), Bytes::from(old)).await;
    let definition = format!("{DEFINITIONS}/deeps.example.com");
    assert_eq!(send(&server, "DELETE", &definition, "application/json", &json!({})).await, 200);
    let free = json!({"metadata": {"finalizers": null}});
    assert_eq!(send(&server, "PATCH", &format!("{DEEPS}/old"), MERGE, &free).await, 200);
    let gone = async {
        while send(&server, "GET", &definition, "application/json", &Value::Null).await != 404 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.expect("the definition goes with its objects");
}
