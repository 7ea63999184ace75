use serde_json::json;

use crate::support::{Api, DEPLOYMENTS, MAPS, PODS, deployment, map, pod, version};

#[tokio::test]
async fn the_server_decides_uid_time_version_and_generation() {
    let api = Api::new();
    let answer = api.post(DEPLOYMENTS, &deployment("web")).await;
    assert_eq!(answer.code, 201);
    let created = answer.ok();
    let metadata = &created["metadata"];
    assert_eq!(metadata["namespace"], "default");
    assert_eq!(metadata["uid"].as_str().unwrap().len(), 36);
    assert_eq!(metadata["creationTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(metadata["generation"], 1);
    assert!(version(&created) > 0);
    assert_eq!(api.get(&format!("{DEPLOYMENTS}/web")).await.ok(), created);
    let map = api.post(MAPS, &map("a", "x")).await.ok();
    assert!(map["metadata"].get("generation").is_none(), "a ConfigMap has no generation");
}

#[tokio::test]
async fn a_name_can_be_taken_once() {
    let api = Api::new();
    api.post(MAPS, &map("a", "x")).await.ok();
    api.post(MAPS, &map("a", "y")).await.refused(409, "configmaps \"a\" already exists");
    assert_eq!(api.get(&format!("{MAPS}/a")).await.ok()["data"]["key"], "x");
}

#[tokio::test]
async fn names_are_generated_from_their_prefix() {
    let api = Api::new();
    let mut names = std::collections::BTreeSet::new();
    for _ in 0..50 {
        let body = json!({"metadata": {"generateName": "web-"}});
        let created = api.post(MAPS, &body).await.ok();
        let name = created["metadata"]["name"].as_str().unwrap().to_owned();
        assert!(name.starts_with("web-") && name.len() == 9, "{name}");
        names.insert(name);
    }
    assert_eq!(names.len(), 50);
}

#[tokio::test]
async fn a_missing_namespace_is_refused() {
    let api = Api::new();
    let path = "/api/v1/namespaces/nowhere/configmaps";
    api.post(path, &map("a", "x")).await.refused(404, "namespaces \"nowhere\" not found");
    let mut elsewhere = map("a", "x");
    elsewhere["metadata"]["namespace"] = "kube-system".into();
    api.post(MAPS, &elsewhere).await.refused(
        400,
        "the namespace of the provided object does not match the namespace sent on the request",
    );
}

#[tokio::test]
async fn a_new_object_has_no_version_yet() {
    let api = Api::new();
    let mut object = map("a", "x");
    object["metadata"]["resourceVersion"] = "5".into();
    let refused = api.post(MAPS, &object).await;
    assert_eq!(refused.reason(), "", "kube-apiserver gives no reason");
    refused.refused(500, "resourceVersion should not be set on objects to be created");
    // What is no version is none that was set.
    for (name, version) in [("zero", "0"), ("text", "none")] {
        let mut object = map(name, "x");
        object["metadata"]["resourceVersion"] = version.into();
        assert_ne!(api.post(MAPS, &object).await.ok()["metadata"]["resourceVersion"], version);
    }
}

#[tokio::test]
async fn a_dry_run_of_a_create_does_not_mind_a_version() {
    let api = Api::new();
    let mut object = map("a", "x");
    object["metadata"]["resourceVersion"] = "5".into();
    let answer = api.post(&format!("{MAPS}?dryRun=All"), &object).await;
    assert_eq!((answer.code, &answer.body["metadata"]["resourceVersion"]), (201, &json!("5")));
    assert_eq!(api.get(&format!("{MAPS}/a")).await.code, 404);
    api.post(MAPS, &map("a", "x")).await.ok();
    assert_eq!(api.post(&format!("{MAPS}?dryRun=All"), &object).await.reason(), "AlreadyExists");
}

#[tokio::test]
async fn a_put_that_creates_does_not_mind_a_version() {
    let api = Api::new();
    let limits = "/api/v1/namespaces/default/limitranges";
    let limit = json!({"metadata": {"name": "a", "resourceVersion": "5"}, "spec": {"limits": []}});
    let created = api.put(&format!("{limits}/a"), &limit).await;
    assert_eq!(created.code, 201, "{}", created.body);
    assert_ne!(created.body["metadata"]["resourceVersion"], "5");
}

#[tokio::test]
async fn the_status_of_a_new_object_is_the_servers() {
    let api = Api::new();
    let mut object = deployment("web");
    object["status"] = json!({"replicas": 7});
    assert_eq!(api.post(DEPLOYMENTS, &object).await.ok()["status"], json!({}));
    let mut object = pod("web");
    object["status"] = json!({"phase": "Running"});
    assert_eq!(api.post(PODS, &object).await.ok()["status"]["phase"], "Pending");
}

#[tokio::test]
async fn a_dry_run_says_what_would_be_and_changes_nothing() {
    let api = Api::new();
    let before = version(&api.get(MAPS).await.ok());
    let answer = api.post(&format!("{MAPS}?dryRun=All"), &map("a", "x")).await;
    assert_eq!(answer.code, 201);
    assert_eq!(answer.ok()["data"]["key"], "x");
    assert_eq!(api.get(&format!("{MAPS}/a")).await.code, 404);
    assert_eq!(version(&api.get(MAPS).await.ok()), before);
    api.post(MAPS, &map("a", "x")).await.ok();
    let again = api.post(&format!("{MAPS}?dryRun=All"), &map("a", "x")).await;
    assert_eq!(again.reason(), "AlreadyExists");
}

#[tokio::test]
async fn namespaces_are_active_and_labelled() {
    let api = Api::new();
    let created = api.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).await.ok();
    assert_eq!(created["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(created["status"]["phase"], "Active");
    assert_eq!(created["metadata"]["labels"]["kubernetes.io/metadata.name"], "team");
    api.post("/api/v1/namespaces/team/configmaps", &map("a", "x")).await.ok();
}

#[tokio::test]
async fn an_object_of_the_cluster_has_no_namespace() {
    let api = Api::new();
    let class = json!({"metadata": {"name": "a", "namespace": "default"}, "provisioner": "x"});
    let created = api.post("/apis/storage.k8s.io/v1/storageclasses", &class).await.ok();
    assert!(created["metadata"].get("namespace").is_none());
}
