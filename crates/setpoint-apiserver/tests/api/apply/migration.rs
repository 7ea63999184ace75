//! From `kubectl apply` to `kubectl apply --server-side`.

use serde_json::{Value, json};

use super::{apply, owners};
use crate::support::{Api, MAPS};

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

fn object(value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"key": value}})
}

async fn client_side(api: &Api) {
    let mut created = object("x");
    created["metadata"]["annotations"] = json!({ANNOTATION: object("x").to_string()});
    api.post(&format!("{MAPS}?fieldManager=kubectl-client-side-apply"), &created).await.ok();
}

#[tokio::test]
async fn kubectl_takes_over_what_it_has_applied_and_keeps_the_annotation() {
    let api = Api::new();
    client_side(&api).await;
    let path = format!("{MAPS}/a");
    let applied = apply(&api, &path, "kubectl", "", &object("y")).await.ok();
    assert_eq!(applied["data"]["key"], "y");
    let annotation = applied["metadata"]["annotations"][ANNOTATION].as_str().unwrap();
    assert!(annotation.ends_with("}\n"));
    assert_eq!(serde_json::from_str::<Value>(annotation).unwrap(), object("y"));
    assert_eq!(owners(&applied)[0].0, "kubectl Apply");
}

#[tokio::test]
async fn others_do_not_and_what_has_changed_since_is_a_conflict() {
    let api = Api::new();
    client_side(&api).await;
    let path = format!("{MAPS}/a");
    assert_eq!(apply(&api, &path, "somebody", "", &object("y")).await.code, 409);
    api.merge(&format!("{path}?fieldManager=edit"), &json!({"data": {"key": "z"}})).await.ok();
    apply(&api, &path, "kubectl", "", &object("y"))
        .await
        .refused(409, "Apply failed with 1 conflict: conflict with \"edit\" using v1: .data.key");
}
