//! What a request can make is bounded, whichever way it makes it.

use serde_json::{Value, json};

use crate::support::{Api, MAPS, PODS, map, pod};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const JSON_PATCH: &str = "application/json-patch+json";

/// `{"a":{"a":…}}`, so many levels.
fn nested(levels: usize) -> String {
    format!("{}{}", "{\"a\":".repeat(levels), "1").to_owned() + &"}".repeat(levels)
}

/// Copies a deep value into its own leaf again and again.
fn deep_copies() -> String {
    let mut patch = format!(r#"[{{"op":"add","path":"/x","value":{}}}"#, nested(90));
    let mut leaf = "/x".to_owned() + &"/a".repeat(90);
    for _ in 0..7 {
        patch.push_str(&format!(r#",{{"op":"copy","from":"/x","path":"{leaf}"}}"#));
        leaf = leaf.clone() + &leaf[2..];
    }
    patch + "]"
}

#[tokio::test]
async fn a_patch_cannot_nest_a_value_deeper_than_a_body_can() {
    let api = Api::new();
    let path = format!("{MAPS}/a");
    api.post(MAPS, &map("a", "x")).await.ok();
    let answer = api.call("PATCH", &path, JSON_PATCH, deep_copies()).await;
    answer.refused(
        413,
        "Request entity too large: an object may be nested 120 levels deep, and this one would be deeper",
    );
    assert_eq!(api.get(&path).await.ok()["data"]["key"], "x");
}

#[tokio::test]
async fn a_name_that_is_a_path_segment_has_a_greatest_length() {
    let api = Api::new();
    let role = |name: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}});
    api.post(ROLES, &role(&"r".repeat(1024))).await.ok();
    let answer = api.post(ROLES, &role(&"r".repeat(70_000))).await;
    assert_eq!((answer.code, answer.reason()), (422, "Invalid"));
    assert_eq!(answer.body["details"]["causes"][0]["field"], "metadata.name");
    assert!(answer.message().ends_with(": must be no more than 1024 bytes"), "{}", answer.message().len());
    let mut generated = role("");
    generated["metadata"] = json!({"generateName": "r".repeat(1025)});
    let answer = api.post(ROLES, &generated).await;
    assert_eq!(answer.body["details"]["causes"][0]["field"], "metadata.generateName");
    let answer = api.put(&format!("{ROLES}/{}", "r".repeat(1025)), &role(&"r".repeat(1025))).await;
    assert_eq!((answer.code, answer.reason()), (422, "Invalid"), "nor by a PUT to a free name");
}

#[tokio::test]
async fn a_pod_may_be_given_more_time_to_end_than_there_is() {
    let api = Api::new();
    let mut placed = pod("a");
    placed["spec"]["nodeName"] = "n".into();
    api.post(PODS, &placed).await.ok();
    let deleted = api.delete(&format!("{PODS}/a"), &json!({"gracePeriodSeconds": i64::MAX})).await.ok();
    assert_eq!(deleted["metadata"]["deletionGracePeriodSeconds"], i64::MAX);
    assert_eq!(deleted["metadata"]["deletionTimestamp"], "9999-12-30T22:00:00Z");
    let sooner = api.delete(&format!("{PODS}/a?gracePeriodSeconds={}", u64::MAX), &Value::Null).await;
    assert_ne!(sooner.code, 500, "{}", sooner.body);
    let sooner = api.delete(&format!("{PODS}/a"), &json!({"gracePeriodSeconds": 5})).await.ok();
    assert_eq!(sooner["metadata"]["deletionTimestamp"], "2026-01-01T00:00:05Z");
}
