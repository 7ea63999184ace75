//! What the server serves, and when.

use std::time::Duration;

use serde_json::{Value, json};
use setpoint_apiserver::ApiServer;

use super::{DEFINITIONS, FOOS, condition, definition, foo, with_foos};
use crate::support::Api;

const NAME: &str = "foos.samplecontroller.example.com";

#[tokio::test(start_paused = true)]
async fn a_definition_is_established_when_its_writer_has_the_answer() {
    let api = with_foos().await;
    assert_eq!(condition(&api, NAME, "NamesAccepted").await, "True NoConflicts: no conflicts found");
    assert_eq!(
        condition(&api, NAME, "Established").await,
        "True InitialNamesAccepted: the initial names have been accepted"
    );
    let found = api.get(&format!("{DEFINITIONS}/{NAME}")).await.ok();
    assert_eq!(
        found["status"]["acceptedNames"],
        json!({
            "plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList",
            "shortNames": ["fo"], "categories": ["all"]
        })
    );
    assert_eq!(found["status"]["storedVersions"], json!(["v1alpha1"]));
    assert_eq!(found["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(found["metadata"]["generation"], 1);
    assert_eq!(api.get(FOOS).await.ok()["kind"], "FooList");
}

#[tokio::test(start_paused = true)]
async fn nothing_in_a_definition_takes_verbs_away() {
    let api = Api::new();
    let mut fewer = definition();
    fewer["metadata"]["annotations"] = json!({"extension.setpoint/verbs": "get"});
    api.post(DEFINITIONS, &fewer).await.ok();
    let list = api.get("/apis/samplecontroller.example.com/v1alpha1").await.ok();
    assert_eq!(list["resources"][0]["verbs"].as_array().unwrap().len(), 8);
    api.post(FOOS, &foo("one")).await.ok();
}

#[tokio::test(start_paused = true)]
async fn discovery_and_openapi_follow_at_once() {
    let api = Api::new();
    assert_eq!(api.get("/apis/samplecontroller.example.com").await.code, 404);
    let index = api.get("/openapi/v3").await.ok();
    let path = "apis/samplecontroller.example.com/v1alpha1";
    assert!(index["paths"].get(path).is_none());

    let created = api.post(DEFINITIONS, &definition()).await.ok();
    let list = api.get("/apis/samplecontroller.example.com/v1alpha1").await.ok();
    assert_eq!(
        list["resources"][0],
        json!({
            "name": "foos", "singularName": "foo", "namespaced": true, "kind": "Foo", "shortNames": ["fo"],
            "categories": ["all"],
            "verbs": ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"],
        })
    );
    assert_eq!(list["resources"][1]["name"], "foos/status");
    assert_eq!(list["resources"][2]["name"], "foos/scale");
    let groups = api.get("/apis").await.ok();
    let names: Vec<&Value> =
        groups["groups"].as_array().unwrap().iter().map(|group| &group["name"]).collect();
    assert!(names.contains(&&json!("samplecontroller.example.com")) && names.contains(&&json!("apps")));

    let url = |index: &Value| index["paths"][path]["serverRelativeURL"].as_str().unwrap().to_owned();
    let first = url(&api.get("/openapi/v3").await.ok());
    let document = api.get(&first).await.ok();
    let schema = &document["components"]["schemas"]["com.example.samplecontroller.v1alpha1.Foo"];
    let name = &schema["properties"]["spec"]["properties"]["deploymentName"];
    assert_eq!(name["description"], "What it is called.");
    assert_eq!(schema["x-kubernetes-group-version-kind"][0]["kind"], "Foo");

    let mut changed = created;
    changed["metadata"]["resourceVersion"].take();
    let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    changed.pointer_mut(schema).unwrap()["more"] = json!({"type": "string"});
    let patch = json!({"spec": changed["spec"]});
    api.merge(&format!("{DEFINITIONS}/{NAME}"), &patch).await.ok();
    assert_ne!(url(&api.get("/openapi/v3").await.ok()), first);
    assert_eq!(api.get(&first).await.code, 301);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_definition_takes_its_objects_with_it_and_ends_their_watches() {
    let api = with_foos().await;
    api.post(FOOS, &foo("a")).await.ok();
    let mut watch = api.watch(&format!("{FOOS}?watch=true&resourceVersion=0")).await;
    assert_eq!(watch.line().await, "ADDED a");
    let marked = api.delete(&format!("{DEFINITIONS}/{NAME}"), &Value::Null).await.ok();
    assert_eq!(marked["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    assert_eq!(watch.line().await, "DELETED a");
    assert!(watch.next().await.is_none());
    assert_eq!(api.get(&format!("{DEFINITIONS}/{NAME}")).await.code, 404);
    assert_eq!(api.get(FOOS).await.code, 404);
    assert_eq!(api.get("/apis/samplecontroller.example.com").await.code, 404);

    api.post(DEFINITIONS, &definition()).await.ok();
    assert!(api.get(FOOS).await.names().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_definition_waits_for_objects_with_finalizers() {
    let api = with_foos().await;
    let mut held = foo("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.post(FOOS, &held).await.ok();
    api.delete(&format!("{DEFINITIONS}/{NAME}"), &Value::Null).await.ok();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(
        condition(&api, NAME, "Terminating").await,
        "True InstanceDeletionInProgress: CustomResource deletion is in progress"
    );
    api.post(FOOS, &foo("late")).await.refused(
        403,
        "foos.samplecontroller.example.com \"late\" is forbidden: create not allowed while custom resource \
         definition is terminating",
    );
    let patch = json!({"metadata": {"finalizers": null}});
    api.merge(&format!("{FOOS}/held"), &patch).await.ok();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(api.get(&format!("{DEFINITIONS}/{NAME}")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn of_two_definitions_that_want_the_same_names_the_first_has_them() {
    let api = with_foos().await;
    let mut other = definition();
    other["metadata"]["name"] = "bars.samplecontroller.example.com".into();
    other["spec"]["names"] =
        json!({"kind": "Foo", "listKind": "BarList", "plural": "bars", "singular": "bar"});
    api.post(DEFINITIONS, &other).await.ok();
    let name = "bars.samplecontroller.example.com";
    assert_eq!(condition(&api, name, "NamesAccepted").await, "False KindConflict: \"Foo\" is already in use");
    assert_eq!(condition(&api, name, "Established").await, "False NotAccepted: not all names are accepted");
    let bars = "/apis/samplecontroller.example.com/v1alpha1/namespaces/default/bars";
    assert_eq!(api.get(bars).await.code, 404);

    api.delete(&format!("{DEFINITIONS}/{NAME}"), &Value::Null).await.ok();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(condition(&api, name, "NamesAccepted").await, "True NoConflicts: no conflicts found");
    assert_eq!(api.get(bars).await.code, 200);
}

#[tokio::test]
async fn definitions_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let api = Api::with(ApiServer::builder().open(&folder).await.unwrap());
    api.post(DEFINITIONS, &definition()).await.ok();
    api.post(FOOS, &foo("kept")).await.ok();
    api.server.close().await;

    let again = Api::with(ApiServer::builder().open(&folder).await.unwrap());
    assert_eq!(again.get(FOOS).await.names(), ["kept"]);
    assert_eq!(again.get("/apis/samplecontroller.example.com/v1alpha1").await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn the_old_form_is_answered_with_what_to_change() {
    let api = Api::new();
    let mut old = definition();
    old["apiVersion"] = "apiextensions.k8s.io/v1beta1".into();
    for path in ["/apis/apiextensions.k8s.io/v1beta1/customresourcedefinitions", DEFINITIONS] {
        let refused = api.post(path, &old).await;
        assert!(matches!(refused.code, 400 | 404), "{}", refused.body);
        for word in ["use apiextensions.k8s.io/v1.", "spec.versions", "openAPIV3Schema", "jsonPath"] {
            assert!(refused.message().contains(word), "{}", refused.message());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_group_version_has_an_api_service() {
    let api = with_foos().await;
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let service = api.get(&format!("{services}/v1alpha1.samplecontroller.example.com")).await.ok();
    assert_eq!(service["metadata"]["labels"], json!({"kube-aggregator.kubernetes.io/automanaged": "true"}));
    assert_eq!(
        service["spec"],
        json!({
            "group": "samplecontroller.example.com", "version": "v1alpha1", "groupPriorityMinimum": 1000,
            "versionPriority": 100
        })
    );
    let condition = &service["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("Available"), &json!("Local")));
    let apps = api.get(&format!("{services}/v1.apps")).await.ok();
    assert_eq!(apps["metadata"]["labels"], json!({"kube-aggregator.kubernetes.io/automanaged": "onstart"}));
    assert_eq!(api.get(&format!("{services}/v1.")).await.code, 200);

    api.delete(&format!("{DEFINITIONS}/{NAME}"), &Value::Null).await.ok();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(api.get(&format!("{services}/v1alpha1.samplecontroller.example.com")).await.code, 404);
}
