use serde_json::{Value, json};

use crate::support::{Answer, Api, DEPLOYMENTS, MAPS, PODS, deployment, map, pod, version};

async fn strategic(api: &Api, path: &str, patch: &Value) -> Answer {
    api.call("PATCH", path, "application/strategic-merge-patch+json", patch.to_string()).await
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn containers_are_merged_by_name() {
    let api = Api::new();
    let created = api.post(DEPLOYMENTS, &deployment("web")).await.ok();
    let path = format!("{DEPLOYMENTS}/web");
    let patch = json!({"spec": {"template": {"spec": {"containers": [
        {"name": "web", "image": "nginx:2", "env": [{"name": "A", "value": "1"}]},
        {"name": "sidecar", "image": "busybox"},
    ]}}}});
    let patched = strategic(&api, &path, &patch).await.ok();
    let containers = &patched["spec"]["template"]["spec"]["containers"];
    assert_eq!(names(containers), ["web", "sidecar"]);
    assert_eq!(containers[0]["image"], "nginx:2");
    assert_eq!(patched["metadata"]["generation"], 2);
    assert!(version(&patched) > version(&created));
    let again = strategic(&api, &path, &patch).await.ok();
    assert_eq!(version(&again), version(&patched), "a patch that changes nothing makes no version");
    let delete = json!({"spec": {"template": {"spec": {
        "$setElementOrder/containers": [{"name": "sidecar"}],
        "containers": [{"name": "web", "$patch": "delete"}],
    }}}});
    let patched = strategic(&api, &path, &delete).await.ok();
    assert_eq!(names(&patched["spec"]["template"]["spec"]["containers"]), ["sidecar"]);
}

#[tokio::test]
async fn finalizers_are_added_and_removed_one_by_one() {
    let api = Api::new();
    api.post(MAPS, &map("a", "x")).await.ok();
    let path = format!("{MAPS}/a");
    let patch = |finalizers: Value| json!({"metadata": finalizers});
    strategic(&api, &path, &patch(json!({"finalizers": ["x.example/a"]}))).await.ok();
    let both = strategic(&api, &path, &patch(json!({"finalizers": ["x.example/b"]}))).await.ok();
    assert_eq!(both["metadata"]["finalizers"].as_array().unwrap().len(), 2);
    let gone = json!({"$deleteFromPrimitiveList/finalizers": ["x.example/a"]});
    let one = strategic(&api, &path, &patch(gone)).await.ok();
    assert_eq!(one["metadata"]["finalizers"], json!(["x.example/b"]));
    let none = strategic(&api, &path, &patch(json!({"finalizers": null}))).await.ok();
    assert_eq!(none["metadata"].get("finalizers"), None);
}

#[tokio::test]
async fn status_and_scale_take_strategic_patches() {
    let api = Api::new();
    api.post(DEPLOYMENTS, &deployment("web")).await.ok();
    let status = |kind: &str, value: &str| json!({"status": {"conditions": [{"type": kind, "status": value, "reason": "Test", "message": "m"}]}});
    let path = format!("{DEPLOYMENTS}/web/status");
    strategic(&api, &path, &status("Available", "True")).await.ok();
    strategic(&api, &path, &status("Progressing", "True")).await.ok();
    let patched = strategic(&api, &path, &status("Available", "False")).await.ok();
    let conditions = patched["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 2, "{conditions:?}");
    let available = conditions.iter().find(|condition| condition["type"] == "Available").unwrap();
    assert_eq!(available["status"], "False");
    let scaled =
        strategic(&api, &format!("{DEPLOYMENTS}/web/scale"), &json!({"spec": {"replicas": 7}})).await.ok();
    assert_eq!((&scaled["kind"], &scaled["spec"]["replicas"]), (&json!("Scale"), &json!(7)));
}

#[tokio::test]
async fn patches_that_make_no_sense_are_explained_as_in_kube_apiserver() {
    let api = Api::new();
    api.post(PODS, &pod("a")).await.ok();
    let path = format!("{PODS}/a");
    for (patch, code, reason, message) in [
        (
            json!({"spec": {"containers": [{"image": "x"}]}}),
            500,
            "",
            "map: map[image:x] does not contain declared merge key: name",
        ),
        (json!({"spec": {"$patch": "frob"}}), 500, "", "unknown patch type: frob in map: map[$patch:frob]"),
        (json!({"spec": {"$retainKeys": "all"}}), 400, "BadRequest", "invalid patch format of retainKeys"),
        (
            json!({"spec": {"$deleteFromPrimitiveList": ["a"]}}),
            400,
            "BadRequest",
            "invalid patch format of primitive list",
        ),
        (
            json!({"metadata": {"labels": 5}}),
            422,
            "Invalid",
            " \"\" is invalid: patch: Invalid value: \"map[metadata:map[labels:5]]\": cannot restore map from int64",
        ),
        (
            json!({"$patch": "delete"}),
            400,
            "BadRequest",
            "the name of the object (a based on URL) was undeterminable: name must be provided",
        ),
    ] {
        let answer = strategic(&api, &path, &patch).await;
        assert_eq!((answer.code, answer.reason(), answer.message()), (code, reason, message), "{patch}");
    }
    for (body, message) in [
        ("{", "invalid JSON patch"),
        ("[]", "json: cannot unmarshal array into Go value of type map[string]interface {}"),
    ] {
        let answer = api.call("PATCH", &path, "application/strategic-merge-patch+json", body).await;
        answer.refused(400, message);
    }
    let strict = strategic(&api, &format!("{path}?fieldValidation=Strict"), &json!({"frob": 1})).await;
    strict.refused(
        422,
        " \"\" is invalid: patch: Invalid value: \"map[frob:1]\": strict decoding error: unknown field \"frob\"",
    );
}

#[tokio::test]
async fn a_patch_cannot_change_the_name() {
    let api = Api::new();
    api.post(MAPS, &map("a", "x")).await.ok();
    let answer = strategic(&api, &format!("{MAPS}/a"), &json!({"metadata": {"name": "b"}})).await;
    answer.refused(400, "the name of the object (b) does not match the name on the URL (a)");
}
