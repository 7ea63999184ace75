//! `managedFields` of those who create, update and patch.

use std::time::Duration;

use serde_json::{Value, json};

use super::{apply, owners};
use crate::support::{Api, DEPLOYMENTS, MAPS, deployment, map, version};

async fn put_as(api: &Api, manager: &str, path: &str, object: &Value) -> Value {
    api.put(&format!("{path}?fieldManager={manager}"), object).await.ok()
}

#[tokio::test]
async fn whoever_creates_owns_what_is_set_and_defaulted() {
    let api = Api::new();
    let created = api.post(&format!("{DEPLOYMENTS}?fieldManager=me"), &deployment("web")).await.ok();
    let entry = &created["metadata"]["managedFields"][0];
    assert_eq!(
        (&entry["manager"], &entry["operation"], &entry["apiVersion"], &entry["fieldsType"]),
        (&json!("me"), &json!("Update"), &json!("apps/v1"), &json!("FieldsV1"))
    );
    assert_eq!(entry["time"], created["metadata"]["creationTimestamp"]);
    assert_eq!(
        entry["fieldsV1"],
        json!({"f:spec": {
            "f:progressDeadlineSeconds": {}, "f:replicas": {}, "f:revisionHistoryLimit": {}, "f:selector": {},
            "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}, "f:maxUnavailable": {}}, "f:type": {}},
            "f:template": {
                "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                "f:spec": {
                    "f:containers": {r#"k:{"name":"web"}"#: {
                        ".": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {}, "f:resources": {},
                        "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {}
                    }},
                    "f:dnsPolicy": {}, "f:restartPolicy": {}, "f:schedulerName": {}, "f:securityContext": {},
                    "f:terminationGracePeriodSeconds": {}
                }
            }
        }})
    );
}

#[tokio::test]
async fn the_manager_is_the_program_unless_the_request_names_one() {
    let api = Api::new();
    for (agent, manager) in [("kubectl/v1.37 (linux)", "kubectl"), ("", "unknown"), ("a\tb", "ab")] {
        let request = http::Request::post(format!("{MAPS}?dryRun=All"))
            .header("content-type", "application/json")
            .header("user-agent", agent)
            .body(map("a", "x").to_string().into())
            .unwrap();
        let created = api.answer(request).await.ok();
        assert_eq!(created["metadata"]["managedFields"][0]["manager"], manager, "{agent:?}");
    }
    let long = "x".repeat(129);
    let refused = api.post(&format!("{MAPS}?fieldManager={long}"), &map("a", "x")).await;
    refused.refused(
        422,
        "CreateOptions.meta.k8s.io \"\" is invalid: fieldManager: Too long: may not be more than 128 bytes",
    );
    let refused = api.post(&format!("{MAPS}?fieldManager=a%07"), &map("a", "x")).await;
    assert!(refused.message().contains("invalid character U+0007 (at position 1)"), "{}", refused.message());
}

#[tokio::test]
async fn what_an_update_changes_changes_hands() {
    let api = Api::new();
    let path = format!("{MAPS}/a");
    let mut object = map("a", "x");
    object["data"]["other"] = json!("x");
    api.post(&format!("{MAPS}?fieldManager=one"), &object).await.ok();
    object["data"]["other"] = json!("y");
    let updated = put_as(&api, "two", &path, &object).await;
    assert_eq!(
        owners(&updated),
        [
            ("one Update".to_owned(), json!({"f:data": {".": {}, "f:key": {}}})),
            ("two Update".to_owned(), json!({"f:data": {"f:other": {}}})),
        ]
    );
    object["data"] = json!({"key": "x"});
    let removed = put_as(&api, "three", &path, &object).await;
    assert_eq!(owners(&removed), [("one Update".to_owned(), json!({"f:data": {".": {}, "f:key": {}}}))]);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_changes_nothing_is_none_however_late_it_comes() {
    let api = Api::new();
    let path = format!("{MAPS}/a");
    let created = api.post(&format!("{MAPS}?fieldManager=one"), &map("a", "x")).await.ok();
    tokio::time::advance(Duration::from_secs(100)).await;
    for manager in ["one", "two"] {
        let same = put_as(&api, manager, &path, &map("a", "x")).await;
        assert_eq!(same, created, "{manager}");
        let same =
            api.merge(&format!("{path}?fieldManager={manager}"), &json!({"data": {"key": "x"}})).await.ok();
        assert_eq!(same, created, "{manager}");
    }
    let changed = put_as(&api, "one", &path, &map("a", "y")).await;
    let time = |object: &Value| object["metadata"]["managedFields"][0]["time"].clone();
    assert_ne!(time(&changed), time(&created));
}

#[tokio::test]
async fn ownership_can_be_reset_and_comes_back_with_the_first_apply() {
    for reset in [json!([{}]), json!([])] {
        let api = Api::new();
        let path = format!("{MAPS}/a");
        api.post(MAPS, &map("a", "x")).await.ok();
        let patch = json!([{"op": "replace", "path": "/metadata/managedFields", "value": reset}]);
        let none = api.call("PATCH", &path, "application/json-patch+json", patch.to_string()).await.ok();
        assert!(none["metadata"].get("managedFields").is_none(), "{none}");
        let still = put_as(&api, "two", &path, &map("a", "y")).await;
        assert!(still["metadata"].get("managedFields").is_none(), "{still}");
        let mut wanted = map("a", "y");
        wanted["data"]["more"] = json!("1");
        let applied = apply(&api, &path, "three", "", &wanted).await.ok();
        assert_eq!(
            owners(&applied),
            [
                ("three Apply".to_owned(), json!({"f:data": {"f:key": {}, "f:more": {}}})),
                ("before-first-apply Update".to_owned(), json!({"f:data": {".": {}, "f:key": {}}})),
            ]
        );
    }
}

#[tokio::test]
async fn entries_of_an_update_count_if_they_make_sense() {
    let api = Api::new();
    let path = format!("{MAPS}/a");
    let created = api.post(&format!("{MAPS}?fieldManager=one"), &map("a", "x")).await.ok();
    let mut object = created.clone();
    object["metadata"]["managedFields"][0]["operation"] = json!("Merge");
    assert_eq!(put_as(&api, "two", &path, &object).await, created, "nonsense is passed over");
    let mut object = created.clone();
    object["metadata"]["managedFields"][0]["manager"] = json!("heir");
    let renamed = put_as(&api, "two", &path, &object).await;
    assert_eq!(owners(&renamed)[0].0, "heir Update");
    assert!(version(&renamed) > version(&created));
}

#[tokio::test(start_paused = true)]
async fn the_oldest_updaters_are_joined_when_there_are_too_many() {
    let api = Api::new();
    let path = format!("{MAPS}/a");
    api.post(&format!("{MAPS}?fieldManager=m00"), &map("a", "x")).await.ok();
    for n in 1..14 {
        tokio::time::advance(Duration::from_secs(1)).await;
        let patch = json!({"data": {format!("k{n:02}"): "v"}});
        api.merge(&format!("{path}?fieldManager=m{n:02}"), &patch).await.ok();
    }
    let entries = owners(&api.get(&path).await.ok());
    assert_eq!(entries.len(), 10, "{entries:?}");
    assert_eq!(entries[0].0, "ancient-changes Update");
    assert_eq!(entries[0].1["f:data"]["f:k04"], json!({}));
    assert_eq!(entries[9].0, "m13 Update");
}
