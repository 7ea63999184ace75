use serde_json::{Value, json};

use crate::support::{Api, DEPLOYMENTS, MAPS, deployment, map, version};

async fn json_patch(api: &Api, path: &str, operations: Value) -> crate::support::Answer {
    api.call("PATCH", path, "application/json-patch+json", operations.to_string()).await
}

#[tokio::test]
async fn a_merge_patch_changes_what_it_names() {
    let api = Api::new();
    let created = api.post(MAPS, &map("a", "x")).await.ok();
    let patch = json!({"metadata": {"labels": {"app": "web"}}, "data": {"key": null, "other": "y"}});
    let patched = api.merge(&format!("{MAPS}/a"), &patch).await.ok();
    assert_eq!(patched["data"], json!({"other": "y"}));
    assert_eq!(patched["metadata"]["labels"], json!({"app": "web"}));
    assert!(version(&patched) > version(&created));
    let again = api.merge(&format!("{MAPS}/a"), &json!({"data": {"other": "y"}})).await.ok();
    assert_eq!(version(&again), version(&patched), "a patch that changes nothing makes no version");
}

#[tokio::test]
async fn a_json_patch_is_all_or_nothing() {
    let api = Api::new();
    api.post(MAPS, &map("a", "x")).await.ok();
    let path = format!("{MAPS}/a");
    let good = json!([
        {"op": "test", "path": "/data/key", "value": "x"},
        {"op": "replace", "path": "/data/key", "value": "y"}
    ]);
    assert_eq!(json_patch(&api, &path, good.clone()).await.ok()["data"]["key"], "y");
    let failed = json_patch(&api, &path, good).await;
    assert_eq!((failed.code, failed.reason()), (422, "Invalid"), "{}", failed.body);
    assert_eq!(api.get(&path).await.ok()["data"]["key"], "y");
}

#[tokio::test]
async fn a_patch_with_a_stale_version_is_a_conflict() {
    let api = Api::new();
    let created = api.post(MAPS, &map("a", "x")).await.ok();
    api.merge(&format!("{MAPS}/a"), &json!({"data": {"key": "y"}})).await.ok();
    let stale = json!({"metadata": {"resourceVersion": created["metadata"]["resourceVersion"]}, "data": {"key": "z"}});
    assert_eq!(api.merge(&format!("{MAPS}/a"), &stale).await.reason(), "Conflict");
}

#[tokio::test]
async fn a_status_patch_touches_the_status_only() {
    let api = Api::new();
    api.post(DEPLOYMENTS, &deployment("web")).await.ok();
    let patch = json!({"spec": {"replicas": 9}, "status": {"replicas": 2}});
    let patched = api.merge(&format!("{DEPLOYMENTS}/web/status"), &patch).await.ok();
    assert_eq!((&patched["spec"]["replicas"], &patched["status"]["replicas"]), (&json!(3), &json!(2)));
}

#[tokio::test]
async fn concurrent_patches_all_count() {
    let api = Api::new();
    api.post(MAPS, &map("a", "x")).await.ok();
    let path = format!("{MAPS}/a");
    let patches: Vec<Value> = (0..30).map(|n| json!({"data": {format!("k{n}"): "v"}})).collect();
    let writes = patches.iter().map(|patch| api.merge(&path, patch));
    for answer in futures::future::join_all(writes).await {
        answer.ok();
    }
    assert_eq!(api.get(&path).await.ok()["data"].as_object().unwrap().len(), 31);
}

#[tokio::test]
async fn bad_patches_are_refused() {
    let api = Api::new();
    api.post(MAPS, &map("a", "x")).await.ok();
    let path = format!("{MAPS}/a");
    for (media, body, code) in [
        ("application/merge-patch+json", "{", 400),
        ("application/merge-patch+json", "[]", 400),
        ("application/json-patch+json", "{}", 400),
        ("application/json-patch+json", r#"[{"op":"frob","path":"/a"}]"#, 422),
        ("application/json-patch+json", r#"[{"op":"remove","path":"/data/none"}]"#, 422),
        ("application/json", "{}", 415),
        ("text/plain", "x", 415),
    ] {
        let answer = api.call("PATCH", &path, media, body).await;
        assert_eq!(answer.code, code, "{media} {body}: {}", answer.body);
        assert_eq!(answer.body["kind"], "Status");
    }
    let missing = api.merge(&format!("{MAPS}/none"), &json!({})).await;
    assert_eq!(missing.reason(), "NotFound");
    let wrong = api.merge(&path, &json!({"data": 5})).await;
    assert_eq!((wrong.code, wrong.reason()), (422, "Invalid"), "{}", wrong.body);
    assert_eq!(wrong.body["details"]["causes"][0]["field"], "patch");
    assert_eq!(api.get(&path).await.ok()["data"]["key"], "x");
}

/// What kube-apiserver 1.37 answers.
#[tokio::test]
async fn a_patch_that_makes_no_object_of_the_kind_is_invalid() {
    let api = Api::new();
    api.post(MAPS, &map("a", "x")).await.ok();
    api.post(DEPLOYMENTS, &deployment("a")).await.ok();
    let array = "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct";
    for path in [
        format!("{MAPS}/a"),
        format!("{DEPLOYMENTS}/a"),
        format!("{DEPLOYMENTS}/a/status"),
        format!("{DEPLOYMENTS}/a/scale"),
    ] {
        let answer = json_patch(&api, &path, json!([{"op": "replace", "path": "", "value": []}])).await;
        assert_eq!((answer.code, answer.reason()), (422, "Invalid"), "{path}: {}", answer.message());
        assert!(answer.message().contains(array), "{}", answer.message());
        for value in [json!(5), json!([]), json!({}), json!(true)] {
            for field in ["kind", "apiVersion"] {
                let answer = json_patch(
                    &api,
                    &path,
                    json!([{"op": "replace", "path": format!("/{field}"), "value": value}]),
                )
                .await;
                assert_eq!((answer.code, answer.reason()), (422, "Invalid"), "{path} {field} {value}");
                assert!(
                    answer.message().contains(&format!("Go struct field .{field}")),
                    "{}",
                    answer.message()
                );
            }
        }
        for wrong in [json!({"kind": "Pod"}), json!({"kind": "None"}), json!({"apiVersion": "batch/v1"})] {
            let answer = api.merge(&path, &wrong).await;
            assert_eq!((answer.code, answer.reason()), (422, "Invalid"), "{path} {wrong}");
        }
    }
    // Of a strategic patch the kind does not matter.
    let strategic = "application/strategic-merge-patch+json";
    let patched =
        api.call("PATCH", &format!("{MAPS}/a"), strategic, r#"{"kind":"Pod","data":{"key":"y"}}"#).await.ok();
    assert_eq!((&patched["kind"], &patched["data"]["key"]), (&json!("ConfigMap"), &json!("y")));
}
