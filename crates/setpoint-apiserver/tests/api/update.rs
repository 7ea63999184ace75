use serde_json::{Value, json};

use crate::support::{Api, DEPLOYMENTS, MAPS, deployment, map, version};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

#[tokio::test]
async fn a_stale_version_is_a_conflict() {
    let api = Api::new();
    let first = api.post(MAPS, &map("a", "x")).await.ok();
    let mut second = first.clone();
    second["data"]["key"] = "y".into();
    let second = api.put(&format!("{MAPS}/a"), &second).await.ok();
    assert!(version(&second) > version(&first));
    let mut stale = first;
    stale["data"]["key"] = "z".into();
    api.put(&format!("{MAPS}/a"), &stale).await.refused(
        409,
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your \
         changes to the latest version and try again",
    );
}

#[tokio::test]
async fn an_update_without_a_version_is_unconditional_where_the_kind_allows_it() {
    let api = Api::new();
    api.post(MAPS, &map("a", "x")).await.ok();
    assert_eq!(api.put(&format!("{MAPS}/a"), &map("a", "y")).await.ok()["data"]["key"], "y");
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}});
    api.post(LEASES, &lease).await.ok();
    let answer = api.put(&format!("{LEASES}/l"), &lease).await;
    assert_eq!(answer.code, 422);
    assert!(answer.message().contains("metadata.resourceVersion: Invalid value"), "{}", answer.message());
}

#[tokio::test]
async fn a_write_that_changes_nothing_makes_no_version() {
    let api = Api::new();
    let created = api.post(MAPS, &map("a", "x")).await.ok();
    assert_eq!(api.put(&format!("{MAPS}/a"), &created).await.ok(), created);
    assert_eq!(api.put(&format!("{MAPS}/a"), &map("a", "x")).await.ok(), created);
    assert_eq!(version(&api.get(MAPS).await.ok()), version(&created));
}

#[tokio::test]
async fn a_put_to_a_free_name_creates_where_the_kind_allows_it() {
    let api = Api::new();
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}});
    assert_eq!(api.put(&format!("{LEASES}/l"), &lease).await.code, 201);
    api.put(&format!("{MAPS}/a"), &map("a", "x")).await.refused(404, "configmaps \"a\" not found");
}

#[tokio::test]
async fn the_name_in_the_body_is_the_name_in_the_path() {
    let api = Api::new();
    api.post(MAPS, &map("a", "x")).await.ok();
    api.put(&format!("{MAPS}/a"), &map("b", "x"))
        .await
        .refused(400, "the name of the object (b) does not match the name on the URL (a)");
}

#[tokio::test]
async fn generation_counts_changes_of_the_spec_only() {
    let api = Api::new();
    let path = format!("{DEPLOYMENTS}/web");
    let mut object = api.post(DEPLOYMENTS, &deployment("web")).await.ok();
    let generation = |object: &Value| object["metadata"]["generation"].as_i64().unwrap();
    object["metadata"]["labels"] = json!({"a": "b"});
    object = api.put(&path, &object).await.ok();
    assert_eq!(generation(&object), 1);
    object["spec"]["replicas"] = 4.into();
    object = api.put(&path, &object).await.ok();
    assert_eq!(generation(&object), 2);
    object["status"] = json!({"replicas": 4, "observedGeneration": 2});
    object = api.put(&format!("{path}/status"), &object).await.ok();
    assert_eq!((generation(&object), &object["status"]["replicas"]), (2, &json!(4)));
    object["metadata"]["generation"] = 99.into();
    object = api.put(&path, &object).await.ok();
    assert_eq!(generation(&object), 2, "it is the server's");
}

#[tokio::test]
async fn status_and_spec_are_written_apart() {
    let api = Api::new();
    let path = format!("{DEPLOYMENTS}/web");
    let mut object = api.post(DEPLOYMENTS, &deployment("web")).await.ok();
    object["spec"]["replicas"] = 9.into();
    object["status"] = json!({"replicas": 1});
    let after = api.put(&format!("{path}/status"), &object).await.ok();
    assert_eq!((&after["spec"]["replicas"], &after["status"]["replicas"]), (&json!(3), &json!(1)));
    let mut object = after;
    object["spec"]["replicas"] = 5.into();
    object["status"] = json!({"replicas": 2});
    let after = api.put(&path, &object).await.ok();
    assert_eq!((&after["spec"]["replicas"], &after["status"]["replicas"]), (&json!(5), &json!(1)));
}

#[tokio::test]
async fn what_the_server_decided_stays() {
    let api = Api::new();
    let created = api.post(MAPS, &map("a", "x")).await.ok();
    let mut bare = map("a", "y");
    bare["metadata"] = json!({"name": "a"});
    let updated = api.put(&format!("{MAPS}/a"), &bare).await.ok();
    for field in ["uid", "creationTimestamp", "namespace"] {
        assert_eq!(updated["metadata"][field], created["metadata"][field], "{field}");
    }
    let mut other = created;
    other["metadata"]["uid"] = "another".into();
    let answer = api.put(&format!("{MAPS}/a"), &other).await;
    assert_eq!((answer.code, answer.reason()), (409, "Conflict"), "{}", answer.body);
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let api = Api::new();
    api.post(MAPS, &map("a", "x")).await.ok();
    let answer = api.put(&format!("{MAPS}/a?dryRun=All"), &map("a", "y")).await.ok();
    assert_eq!(answer["data"]["key"], "y");
    assert_eq!(api.get(&format!("{MAPS}/a")).await.ok()["data"]["key"], "x");
}

/// The object that the client means has been deleted; another one must not take its place.
#[tokio::test]
async fn a_put_that_names_a_uid_does_not_create() {
    let api = Api::new();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases/a";
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a", "uid": "gone"}});
    let answer = api.put(leases, &lease).await;
    assert_eq!((answer.code, answer.reason()), (409, "Conflict"), "{}", answer.body);
    assert!(
        answer.message().ends_with("UID in precondition: gone, UID in object meta: "),
        "{}",
        answer.message()
    );
    assert_eq!(api.get(leases).await.code, 404);
}
