use serde_json::{Value, json};

use crate::support::{Answer, Api, DEPLOYMENTS, MAPS, deployment, version};

mod custom;
mod migration;
mod nested;
mod ownership;
mod parts;
mod property;

const MEDIA: &str = "application/apply-patch+yaml";

/// Applies an object as a manager; `more` is more of the query.
pub(crate) async fn apply(api: &Api, path: &str, manager: &str, more: &str, object: &Value) -> Answer {
    let path = format!("{path}?fieldManager={manager}{more}");
    api.call("PATCH", &path, MEDIA, object.to_string()).await
}

/// `manager operation subresource` → the fields, of every entry.
pub(crate) fn owners(object: &Value) -> Vec<(String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    let line = |entry: &Value| {
        let text = |field: &str| entry[field].as_str().unwrap_or_default();
        let who = format!("{} {} {}", text("manager"), text("operation"), text("subresource"));
        (who.trim_end().to_owned(), entry["fieldsV1"].clone())
    };
    entries.iter().map(line).collect()
}

fn data(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

#[tokio::test]
async fn what_is_not_there_is_created_and_what_is_there_is_merged() {
    let api = Api::new();
    let path = format!("{MAPS}/a");
    let created = apply(&api, &path, "one", "", &data("a", json!({"x": "1"}))).await;
    assert_eq!(created.code, 201, "{}", created.body);
    let merged = apply(&api, &path, "two", "", &data("a", json!({"y": "2"}))).await;
    assert_eq!(merged.code, 200, "{}", merged.body);
    assert_eq!(merged.body["data"], json!({"x": "1", "y": "2"}));
    assert_eq!(
        owners(&merged.body),
        [
            ("one Apply".to_owned(), json!({"f:data": {"f:x": {}}})),
            ("two Apply".to_owned(), json!({"f:data": {"f:y": {}}})),
        ]
    );
}

#[tokio::test]
async fn yaml_is_applied_too() {
    let api = Api::new();
    let body = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  x: '1'\n";
    let path = format!("{MAPS}/a?fieldManager=m");
    assert_eq!(api.call("PATCH", &path, MEDIA, body).await.ok()["data"], json!({"x": "1"}));
    let twice = format!("{body}data: {{}}\n");
    let strict = api.call("PATCH", &format!("{path}&fieldValidation=Strict"), MEDIA, twice).await;
    assert_eq!(strict.code, 400, "{}", strict.body);
    assert!(strict.message().starts_with("error strict decoding patch: yaml: unmarshal errors:"));
}

#[tokio::test]
async fn another_uid_is_a_field_that_may_not_change() {
    let api = Api::new();
    let path = format!("{MAPS}/a");
    apply(&api, &path, "m", "", &data("a", json!({"x": "1"}))).await.ok();
    let mut other = data("a", json!({"x": "1"}));
    other["metadata"]["uid"] = "other".into();
    apply(&api, &path, "m", "", &other).await.refused(
        422,
        "ConfigMap \"a\" is invalid: metadata.uid: Invalid value: \"other\": field is immutable",
    );
}

#[tokio::test]
async fn what_is_applied_is_an_object() {
    let api = Api::new();
    for (body, found) in [("[1]", "array"), ("1", "number")] {
        api.call("PATCH", &format!("{MAPS}/a?fieldManager=m"), MEDIA, body).await.refused(
            400,
            &format!(
                "error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into \
                 Go value of type map[string]interface {{}}"
            ),
        );
    }
}

#[tokio::test]
async fn fields_that_are_not_applied_any_more_go_unless_somebody_else_owns_them() {
    let api = Api::new();
    let path = format!("{MAPS}/a");
    apply(&api, &path, "one", "", &data("a", json!({"x": "1", "y": "1", "z": "1"}))).await.ok();
    apply(&api, &path, "two", "", &data("a", json!({"y": "1"}))).await.ok();
    api.merge(&path, &json!({"data": {"w": "1"}})).await.ok();
    let left = apply(&api, &path, "one", "", &data("a", json!({"z": "1"}))).await.ok();
    assert_eq!(left["data"], json!({"w": "1", "y": "1", "z": "1"}));
}

#[tokio::test]
async fn the_same_apply_twice_is_no_write() {
    let api = Api::new();
    let path = format!("{DEPLOYMENTS}/web");
    let object = deployment("web");
    let first = apply(&api, &path, "m", "", &object).await.ok();
    let again = apply(&api, &path, "m", "", &object).await.ok();
    assert_eq!(version(&first), version(&again));
    assert_eq!(first, again);
}

#[tokio::test]
async fn conflicts_name_the_manager_and_the_field_and_can_be_forced() {
    let api = Api::new();
    let path = format!("{DEPLOYMENTS}/web");
    let update = format!("{DEPLOYMENTS}?fieldManager=kubectl-client-side-apply");
    api.post(&update, &deployment("web")).await.ok();
    let mut wanted = deployment("web");
    wanted["spec"]["replicas"] = json!(5);
    let refused = apply(&api, &path, "m", "", &wanted).await;
    let message = "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using apps/v1: .spec.replicas";
    assert_eq!(
        refused.body["details"]["causes"],
        json!([{
            "reason": "FieldManagerConflict",
            "message": "conflict with \"kubectl-client-side-apply\" using apps/v1",
            "field": ".spec.replicas"
        }])
    );
    refused.refused(409, message);
    wanted["spec"]["template"]["spec"]["containers"][0]["image"] = json!("other");
    apply(&api, &path, "m", "", &wanted).await.refused(
        409,
        "Apply failed with 2 conflicts: conflicts with \"kubectl-client-side-apply\" using apps/v1:\n- .spec.replicas\n\
         - .spec.template.spec.containers[name=\"web\"].image",
    );
    assert_eq!(api.get(&path).await.ok()["spec"]["replicas"], 3);
    let forced = apply(&api, &path, "m", "&force=true", &wanted).await.ok();
    assert_eq!(forced["spec"]["replicas"], 5);
    let entries = owners(&forced);
    assert_eq!(entries[0].1["f:spec"]["f:replicas"], json!({}));
    assert!(entries[1].1["f:spec"].get("f:replicas").is_none(), "{entries:?}");
}

#[tokio::test]
async fn bad_requests_are_refused_and_change_nothing() {
    let api = Api::new();
    let path = format!("{MAPS}/a");
    apply(&api, &path, "m", "", &data("a", json!({"x": "1"}))).await.ok();
    let before = api.get(&path).await.ok();
    api.call("PATCH", &path, MEDIA, "{}").await.refused(
        422,
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
    );
    api.call("PATCH", &format!("{path}?force=true"), "application/merge-patch+json", "{}").await.refused(
        422,
        "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch",
    );
    let mut object = data("a", json!({"x": "1"}));
    object["metadata"]["managedFields"] = json!([]);
    apply(&api, &path, "m", "", &object).await.refused(400, "metadata.managedFields must be nil");
    let mut object = data("a", json!({"x": "1"}));
    object["kind"] = json!("Secret");
    apply(&api, &path, "m", "", &object).await.refused(400, "invalid object type: /v1, Kind=Secret");
    let mut object = data("a", json!({"x": "1"}));
    object["spec"] = json!({"color": "red"});
    apply(&api, &path, "m", "", &object).await.refused(
        500,
        "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .spec: field not declared in schema",
    );
    apply(&api, &path, "m", "", &data("a", json!(["x"]))).await.refused(
        500,
        "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .data: expected map, got &{[x]}",
    );
    apply(&api, &path, "m", "", &data("b", json!({})))
        .await
        .refused(400, "the name of the object (b) does not match the name on the URL (a)");
    assert_eq!(api.call("PATCH", &format!("{path}?fieldManager=m"), MEDIA, "[").await.code, 400);
    assert_eq!(api.get(&path).await.ok(), before);
}

#[tokio::test]
async fn items_of_keyed_lists_may_be_applied_once_only() {
    let api = Api::new();
    let mut object = deployment("web");
    let ports = json!([{"containerPort": 80}, {"containerPort": 80, "protocol": "TCP"}]);
    object["spec"]["template"]["spec"]["containers"][0]["ports"] = ports;
    apply(&api, &format!("{DEPLOYMENTS}/web"), "m", "", &object).await.refused(
        500,
        "failed to create typed patch object (/web; apps/v1, Kind=Deployment): \
         .spec.template.spec.containers[name=\"web\"].ports: duplicate entries for key \
         [containerPort=80,protocol=\"TCP\"]",
    );
}

#[tokio::test]
async fn a_uid_is_not_for_what_is_not_there() {
    let api = Api::new();
    let mut object = data("a", json!({}));
    object["metadata"]["uid"] = json!("11111111-1111-1111-1111-111111111111");
    let refused = apply(&api, &format!("{MAPS}/a"), "m", "", &object).await;
    assert_eq!((refused.code, refused.reason()), (409, "Conflict"));
    assert!(refused.message().contains("uid mismatch"), "{}", refused.message());
    assert_eq!(api.get(&format!("{MAPS}/a")).await.code, 404);
}

#[tokio::test]
async fn a_dry_run_applies_nothing() {
    let api = Api::new();
    let path = format!("{MAPS}/a");
    let dry = apply(&api, &path, "m", "&dryRun=All", &data("a", json!({"x": "1"}))).await;
    assert_eq!(dry.code, 201, "{}", dry.body);
    assert_eq!(api.get(&path).await.code, 404);
    apply(&api, &path, "m", "", &data("a", json!({"x": "1"}))).await.ok();
    let before = api.get(&path).await.ok();
    let dry = apply(&api, &path, "m", "&dryRun=All", &data("a", json!({"x": "2"}))).await.ok();
    assert_eq!(dry["data"]["x"], "2");
    assert_eq!(api.get(&path).await.ok(), before);
}

#[tokio::test]
async fn all_of_many_at_the_same_time_are_applied() {
    let api = Api::new();
    let path = format!("{MAPS}/a");
    let objects: Vec<Value> = (0..20).map(|n| data("a", json!({format!("k{n}"): "v"}))).collect();
    let managers: Vec<String> = (0..20).map(|n| format!("m{n}")).collect();
    let applies =
        objects.iter().zip(&managers).map(|(object, manager)| apply(&api, &path, manager, "", object));
    for answer in futures::future::join_all(applies).await {
        answer.ok();
    }
    assert_eq!(api.get(&path).await.ok()["data"].as_object().unwrap().len(), 20);
}
