use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Api, DEPLOYMENTS, MAPS, PODS, deployment, labelled, map, pod};

#[tokio::test]
async fn a_deleted_object_is_gone_and_the_answer_says_what_it_was() {
    let api = Api::new();
    let created = api.post(DEPLOYMENTS, &deployment("web")).await.ok();
    let answer =
        api.delete(&format!("{DEPLOYMENTS}/web"), &json!({"propagationPolicy": "Background"})).await.ok();
    assert_eq!(answer["status"], "Success");
    assert_eq!(
        answer["details"],
        json!({"name": "web", "group": "apps", "kind": "deployments", "uid": created["metadata"]["uid"]})
    );
    api.delete(&format!("{DEPLOYMENTS}/web"), &Value::Null)
        .await
        .refused(404, "deployments.apps \"web\" not found");
}

#[tokio::test]
async fn finalizers_hold_an_object_back_until_they_are_gone() {
    let api = Api::new();
    let path = format!("{MAPS}/a");
    let mut object = map("a", "x");
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.post(MAPS, &object).await.ok();
    let marked = api.delete(&path, &Value::Null).await.ok();
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(api.get(&path).await.code, 200);
    let again = api.delete(&path, &Value::Null).await.ok();
    assert_eq!(again["metadata"]["resourceVersion"], marked["metadata"]["resourceVersion"]);
    let more =
        api.merge(&path, &json!({"metadata": {"finalizers": ["example.com/hold", "example.com/new"]}})).await;
    assert_eq!(more.code, 422, "{}", more.body);
    let changed = api.merge(&path, &json!({"data": {"key": "y"}})).await.ok();
    assert_eq!(changed["data"]["key"], "y", "it can still be written");
    api.merge(&path, &json!({"metadata": {"finalizers": null}})).await.ok();
    assert_eq!(api.get(&path).await.code, 404);
}

#[tokio::test]
async fn the_generation_counts_the_deletion() {
    let api = Api::new();
    let mut object = deployment("web");
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.post(DEPLOYMENTS, &object).await.ok();
    let marked = api.delete(&format!("{DEPLOYMENTS}/web"), &Value::Null).await.ok();
    assert_eq!(marked["metadata"]["generation"], 2);
}

#[tokio::test]
async fn propagation_is_noted_for_the_garbage_collector() {
    let api = Api::new();
    for (policy, finalizer) in [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")] {
        api.post(DEPLOYMENTS, &deployment("web")).await.ok();
        let path = format!("{DEPLOYMENTS}/web");
        let marked = api.delete(&path, &json!({"propagationPolicy": policy})).await.ok();
        assert_eq!(marked["metadata"]["finalizers"], json!([finalizer]));
        api.merge(&path, &json!({"metadata": {"finalizers": null}})).await.ok();
    }
    let wrong = api.delete(&format!("{MAPS}/a?propagationPolicy=Sideways"), &Value::Null).await;
    assert_eq!(wrong.code, 422);
}

#[tokio::test]
async fn preconditions_must_hold() {
    let api = Api::new();
    let created = api.post(MAPS, &map("a", "x")).await.ok();
    let path = format!("{MAPS}/a");
    for wrong in [json!({"uid": "another"}), json!({"resourceVersion": "1"})] {
        let answer = api.delete(&path, &json!({"preconditions": wrong})).await;
        assert_eq!((answer.code, answer.reason()), (409, "Conflict"), "{}", answer.body);
    }
    let right =
        json!({"uid": created["metadata"]["uid"], "resourceVersion": created["metadata"]["resourceVersion"]});
    api.delete(&path, &json!({"preconditions": right})).await.ok();
}

#[tokio::test]
async fn a_dry_run_deletes_nothing() {
    let api = Api::new();
    api.post(MAPS, &map("a", "x")).await.ok();
    api.delete(&format!("{MAPS}/a"), &json!({"dryRun": ["All"]})).await.ok();
    api.delete(&format!("{MAPS}/a?dryRun=All"), &Value::Null).await.ok();
    assert_eq!(api.get(&format!("{MAPS}/a")).await.code, 200);
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    let api = Api::new();
    for (name, app) in [("a", "web"), ("b", "web"), ("c", "db")] {
        api.post(MAPS, &labelled(name, app)).await.ok();
    }
    let answer = api.delete(&format!("{MAPS}?labelSelector=app%3Dweb"), &Value::Null).await;
    assert_eq!(answer.names(), ["a", "b"]);
    assert_eq!(api.get(MAPS).await.names(), ["c"]);
}

#[tokio::test]
async fn a_placed_pod_ends_gracefully_and_any_other_at_once() {
    let api = Api::new();
    api.post(PODS, &pod("unplaced")).await.ok();
    let gone = api.delete(&format!("{PODS}/unplaced"), &Value::Null).await.ok();
    assert_eq!(gone["kind"], "Pod", "a delete of a pod answers with the pod");
    assert_eq!(api.get(&format!("{PODS}/unplaced")).await.code, 404);

    let mut placed = pod("placed");
    placed["spec"]["nodeName"] = "node-1".into();
    api.post(PODS, &placed).await.ok();
    let path = format!("{PODS}/placed");
    let marked = api.delete(&path, &Value::Null).await.ok();
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2026-01-01T00:00:30Z");
    let shorter = api.delete(&path, &json!({"gracePeriodSeconds": 5})).await.ok();
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5);
    let longer = api.delete(&path, &json!({"gracePeriodSeconds": 60})).await.ok();
    assert_eq!(longer["metadata"]["deletionGracePeriodSeconds"], 5, "time only gets shorter");
    api.delete(&path, &json!({"gracePeriodSeconds": 0})).await.ok();
    assert_eq!(api.get(&path).await.code, 404);
}

/// A pod on a node, deleted with its usual 30 seconds at midnight.
async fn ending_pod(api: &Api, name: &str) -> String {
    let mut placed = pod(name);
    placed["spec"]["nodeName"] = "node-1".into();
    api.post(PODS, &placed).await.ok();
    let path = format!("{PODS}/{name}");
    assert_eq!(
        end_of(&api.delete(&path, &Value::Null).await.ok()),
        (json!("2026-01-01T00:00:30Z"), json!(30))
    );
    path
}

fn end_of(pod: &Value) -> (Value, Value) {
    let metadata = &pod["metadata"];
    (metadata["deletionTimestamp"].clone(), metadata["deletionGracePeriodSeconds"].clone())
}

#[tokio::test(start_paused = true)]
async fn a_second_delete_shortens_the_time_counted_from_the_first() {
    let api = Api::new();
    let path = ending_pod(&api, "web").await;
    tokio::time::advance(Duration::from_secs(10)).await;
    let shorter = api.delete(&path, &json!({"gracePeriodSeconds": 20})).await.ok();
    assert_eq!(end_of(&shorter), (json!("2026-01-01T00:00:20Z"), json!(20)));
    tokio::time::advance(Duration::from_secs(5)).await;
    // It cannot end in the past, and somebody has to see that it ends.
    let over = api.delete(&path, &json!({"gracePeriodSeconds": 5})).await.ok();
    assert_eq!(end_of(&over), (json!("2026-01-01T00:00:15Z"), json!(1)));
    for later in [Value::Null, json!({"gracePeriodSeconds": 1}), json!({"gracePeriodSeconds": 60})] {
        assert_eq!(api.delete(&path, &later).await.ok()["metadata"], over["metadata"], "{later}");
    }
    api.delete(&path, &json!({"gracePeriodSeconds": 0})).await.ok();
    assert_eq!(api.get(&path).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_waits_for_its_end_takes_no_other_wishes() {
    let api = Api::new();
    let path = ending_pod(&api, "web").await;
    let waiting = api.delete(&path, &json!({"propagationPolicy": "Foreground"})).await.ok();
    assert_eq!(waiting["metadata"].get("finalizers"), None);
    // A shorter time is as long as it says, even for a pod that has come to its end meanwhile.
    api.merge(&format!("{path}/status"), &json!({"status": {"phase": "Succeeded"}})).await.ok();
    let shorter = api.delete(&path, &json!({"gracePeriodSeconds": 20})).await.ok();
    assert_eq!(end_of(&shorter), (json!("2026-01-01T00:00:20Z"), json!(20)));
    assert_eq!(api.get(&path).await.code, 200);
}

#[tokio::test]
async fn a_namespace_is_terminating_until_it_is_finalized() {
    let api = Api::new();
    api.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).await.ok();
    let marked = api.delete("/api/v1/namespaces/team", &Value::Null).await.ok();
    assert_eq!(marked["status"]["phase"], "Terminating");
    let refused = api.post("/api/v1/namespaces/team/configmaps", &map("a", "x")).await;
    assert_eq!(
        (refused.code, refused.message()),
        (
            403,
            "configmaps \"a\" is forbidden: unable to create new content in namespace team because it is being \
             terminated"
        )
    );
    assert_eq!(refused.body["details"]["causes"][0]["reason"], "NamespaceTerminating");
    let mut finalized = api.get("/api/v1/namespaces/team").await.ok();
    finalized["spec"]["finalizers"] = json!([]);
    api.put("/api/v1/namespaces/team", &finalized).await.ok();
    assert_eq!(api.get("/api/v1/namespaces/team").await.code, 200, "only /finalize does that");
    let mut finalized = api.get("/api/v1/namespaces/team").await.ok();
    finalized["spec"]["finalizers"] = json!([]);
    api.put("/api/v1/namespaces/team/finalize", &finalized).await.ok();
    assert_eq!(api.get("/api/v1/namespaces/team").await.code, 404);
    let default = api.delete("/api/v1/namespaces/default", &Value::Null).await;
    default.refused(403, "namespaces \"default\" is forbidden: this namespace may not be deleted");
}

#[tokio::test(start_paused = true)]
async fn events_expire_after_an_hour() {
    let api = Api::new();
    let events = "/api/v1/namespaces/default/events";
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "a", "namespace": "default"}, "reason": "Started"});
    api.post(events, &event).await.ok();
    tokio::time::sleep(Duration::from_secs(59 * 60)).await;
    assert_eq!(api.get(&format!("{events}/e")).await.code, 200);
    tokio::time::sleep(Duration::from_secs(2 * 60)).await;
    assert_eq!(api.get(&format!("{events}/e")).await.code, 404);
}

#[tokio::test]
async fn a_pod_is_seen_to_end_even_when_it_ends_at_once() {
    let api = Api::new();
    api.post(PODS, &pod("web")).await.ok();
    let mut watch = api.watch(&format!("{PODS}?watch=true")).await;
    assert_eq!(watch.line().await, "ADDED web");
    api.delete(&format!("{PODS}/web"), &Value::Null).await.ok();
    let marked = watch.next().await.unwrap();
    assert_eq!(marked["type"], "MODIFIED");
    assert_eq!(marked["object"]["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(watch.line().await, "DELETED web");
}

#[tokio::test]
async fn a_collection_delete_with_a_limit_deletes_one_page() {
    let api = Api::new();
    for name in ["a", "b", "c", "d", "e"] {
        api.post(MAPS, &map(name, "x")).await.ok();
    }
    let first = api.delete(&format!("{MAPS}?limit=2"), &Value::Null).await;
    assert_eq!(first.names(), ["a", "b"]);
    assert_eq!(first.body["metadata"]["remainingItemCount"], 3);
    assert_eq!(api.get(MAPS).await.names(), ["c", "d", "e"]);
    let token = first.body["metadata"]["continue"].as_str().expect("a way on");
    api.merge(&format!("{MAPS}/c"), &json!({"data": {"key": "changed"}})).await.ok();
    let second = api.delete(&format!("{MAPS}?limit=2&continue={token}"), &Value::Null).await;
    assert_eq!(second.names(), ["c", "d"], "it goes on after the first page");
    assert_eq!(api.get(MAPS).await.names(), ["e"]);
    let all = api.delete(MAPS, &Value::Null).await.ok();
    assert!(all["metadata"].get("continue").is_none());
    assert_eq!(api.get(MAPS).await.names(), [""; 0]);
}
