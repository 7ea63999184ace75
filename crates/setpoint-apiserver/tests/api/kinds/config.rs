use serde_json::{Value, json};

use super::Kind;
use crate::support::{Api, MAPS};

#[tokio::test]
async fn config_maps() {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "b"}});
    let maps = Kind::new(MAPS, map);
    maps.check(
        &[("/data", json!({"..": "x"})), ("/binaryData", json!({"..": "AAEC"}))],
        &[
            "data[..]: Invalid value: \"..\": must not be '..'",
            "data[..]: Invalid value: \"..\": duplicate of key present in binaryData",
            "binaryData[..]: Invalid value: \"..\": must not be '..'",
        ],
    )
    .await;
    maps.check(
        &[("/data", json!({"big": "x".repeat(1024 * 1024 + 1)}))],
        &[": Too long: may not be more than 1048576 bytes"],
    )
    .await;
    let immutable = [("/immutable", json!(true))];
    let data = [("/data/a", json!("c"))];
    let label = [("/metadata/labels", json!({"x": "z"}))];
    let unmark = [("/immutable", Value::Null)];
    maps.check_updates(&[
        (&immutable, &[]),
        (&data, &["data: Forbidden: field is immutable when `immutable` is set"]),
        (&label, &[]),
        (&unmark, &["immutable: Forbidden: field is immutable when `immutable` is set"]),
    ])
    .await;
}

#[tokio::test]
async fn secrets() {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
    let secrets = Kind::new("/api/v1/namespaces/default/secrets", secret);
    let required = |key: &str| format!("data[{key}]: Required value");
    secrets
        .check(&[("/type", json!("kubernetes.io/tls"))], &[&required("tls.crt"), &required("tls.key")])
        .await;
    secrets
        .check(
            &[("/type", json!("kubernetes.io/basic-auth"))],
            &[&required("username"), &required("password")],
        )
        .await;
    secrets
        .check(
            &[
                ("/type", json!("kubernetes.io/dockerconfigjson")),
                ("/stringData", json!({".dockerconfigjson": "[]"})),
            ],
            &["data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": json: cannot unmarshal array into \
               Go value of type map[string]interface {}"],
        )
        .await;
    let kind = [("/type", json!("other"))];
    secrets.check_updates(&[(&kind, &["type: Invalid value: \"other\": field is immutable"])]).await;
}

#[tokio::test]
async fn nodes_and_namespaces() {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {}});
    let nodes = Kind::new("/api/v1/nodes", node);
    let made = nodes.made(&[("/status", json!({"capacity": {"cpu": "4"}}))]).await;
    assert_eq!(
        made["spec"]["taints"],
        json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    );
    assert_eq!(made["status"]["allocatable"], json!({"cpu": "4"}));
    nodes
        .check(
            &[("/spec/taints", json!([{"key": "a", "effect": "Odd"}]))],
            &["metadata.taints[0].effect: Unsupported value: \"Odd\": supported values: \"NoSchedule\", \
               \"PreferNoSchedule\", \"NoExecute\""],
        )
        .await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}, "spec": {}});
    Kind::new("/api/v1/namespaces", namespace)
        .check(
            &[("/metadata/finalizers", json!(["short"]))],
            &["metadata.finalizers[0]: Invalid value: \"short\": name is neither a standard finalizer name nor is it \
               fully qualified"],
        )
        .await;
}

#[tokio::test]
async fn bytes_that_are_null_are_empty_whoever_writes_them() {
    const JSON: &str = "application/json";
    const JSON_PATCH: &str = "application/json-patch+json";
    const APPLY: &str = "application/apply-patch+yaml";
    let api = Api::new();
    for (kind, collection, field) in
        [("ConfigMap", MAPS, "binaryData"), ("Secret", "/api/v1/namespaces/default/secrets", "data")]
    {
        let object = |key: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}, field: {key: null, "full": "AA=="}});
        let patch = json!([{"op": "add", "path": format!("/{field}/patched"), "value": null}]);
        let path = format!("{collection}/a");
        for (method, path, media, body, key) in [
            ("POST", collection, JSON, object("created"), "created"),
            ("PUT", &path, JSON, object("updated"), "updated"),
            ("PATCH", &path, JSON_PATCH, patch, "patched"),
            ("PATCH", &format!("{path}?fieldManager=test&force=true"), APPLY, object("applied"), "applied"),
        ] {
            let made = api.call(method, path, media, body.to_string()).await.ok();
            assert_eq!(made[field][key], "", "{kind}, {method}: {made}");
            assert_eq!(made[field]["full"], "AA==", "{kind}, {method}: {made}");
        }
    }
}
