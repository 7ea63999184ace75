//! Subresources have managers of their own.

use serde_json::json;

use super::{apply, owners};
use crate::support::{Api, DEPLOYMENTS, PODS, deployment, pod};

#[tokio::test]
async fn whoever_writes_the_status_owns_no_spec_and_the_other_way_round() {
    let api = Api::new();
    let path = format!("{DEPLOYMENTS}/web");
    api.post(&format!("{DEPLOYMENTS}?fieldManager=user"), &deployment("web")).await.ok();
    let patch = json!({"spec": {"replicas": 9}, "status": {"replicas": 2}});
    let status = api.merge(&format!("{path}/status?fieldManager=controller"), &patch).await.ok();
    let entries = owners(&status);
    assert_eq!(entries[0].0, "controller Update status");
    assert_eq!(entries[0].1, json!({"f:status": {"f:replicas": {}}}));
    let both = json!({"spec": {"replicas": 4}, "status": {"replicas": 7}});
    let spec = api.merge(&format!("{path}?fieldManager=user"), &both).await.ok();
    assert_eq!(owners(&spec).len(), 2, "{:?}", owners(&spec));
    assert_eq!(spec["status"]["replicas"], 2);
}

#[tokio::test]
async fn a_status_can_be_applied() {
    let api = Api::new();
    api.post(PODS, &pod("a")).await.ok();
    let status = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}
    });
    let applied = apply(&api, &format!("{PODS}/a/status"), "kubelet", "", &status).await.ok();
    assert_eq!(
        owners(&applied)[0],
        (
            "kubelet Apply status".to_owned(),
            json!({"f:status": {"f:conditions": {r#"k:{"type":"Ready"}"#: {".": {}, "f:status": {}, "f:type": {}}}}})
        )
    );
    let absent = apply(&api, &format!("{PODS}/b/status"), "kubelet", "", &status).await;
    assert_eq!(absent.code, 404);
}

#[tokio::test]
async fn a_scale_takes_the_replicas() {
    let api = Api::new();
    let path = format!("{DEPLOYMENTS}/web");
    apply(&api, &path, "user", "", &deployment("web")).await.ok();
    api.merge(&format!("{path}/scale?fieldManager=scaler"), &json!({"spec": {"replicas": 5}})).await.ok();
    let entries = owners(&api.get(&path).await.ok());
    assert_eq!(entries[1], ("scaler Update scale".to_owned(), json!({"f:spec": {"f:replicas": {}}})));
    assert!(entries[0].1["f:spec"].get("f:replicas").is_none(), "{entries:?}");
    apply(&api, &path, "user", "", &deployment("web")).await.refused(
        409,
        "Apply failed with 1 conflict: conflict with \"scaler\" with subresource \"scale\" using apps/v1: \
         .spec.replicas",
    );
    let scale = json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 7}
    });
    let conflict = apply(&api, &format!("{path}/scale"), "other", "", &scale).await;
    assert_eq!(conflict.code, 409, "{}", conflict.body);
    let applied = apply(&api, &format!("{path}/scale"), "other", "&force=true", &scale).await.ok();
    assert_eq!(applied["spec"]["replicas"], 7);
    let entries = owners(&api.get(&path).await.ok());
    assert_eq!(entries[0].0, "other Apply scale");
    assert_eq!(entries.len(), 2, "{entries:?}");
}

#[tokio::test]
async fn managers_of_other_versions_keep_what_they_own() {
    let api = Api::new();
    let base = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let mut hpa = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 5, "minReplicas": 2
        }
    });
    apply(&api, &format!("{base}/a"), "two", "", &hpa).await.ok();
    let old = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers/a";
    let one = json!({
        "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 6
        }
    });
    apply(&api, old, "one", "", &one)
        .await
        .refused(409, "Apply failed with 1 conflict: conflict with \"two\": .spec.maxReplicas");
    apply(&api, old, "one", "&force=true", &one).await.ok();
    hpa["spec"].as_object_mut().unwrap().remove("maxReplicas");
    hpa["spec"].as_object_mut().unwrap().remove("minReplicas");
    let left = apply(&api, &format!("{base}/a"), "two", "", &hpa).await.ok();
    assert_eq!(left["spec"]["maxReplicas"], 6, "the manager of the other version owns it");
    assert_eq!(left["spec"]["minReplicas"], 1, "what nobody owns is the default again");
}
