//! Custom resources through every verb.

use serde_json::{Value, json};

use super::{DEFINITIONS, FOOS, definition, foo, with_foos};
use crate::support::{Api, version};

#[tokio::test(start_paused = true)]
async fn a_custom_resource_is_created_read_listed_and_deleted() {
    let api = with_foos().await;
    let created = api.post(FOOS, &foo("a")).await;
    assert_eq!(created.code, 201);
    let created = created.ok();
    assert_eq!(created["metadata"]["generation"], 1);
    assert_eq!(created["metadata"]["namespace"], "default");
    assert_eq!(api.get(&format!("{FOOS}/a")).await.ok(), created);
    let list = api.get("/apis/samplecontroller.example.com/v1alpha1/foos").await.ok();
    assert_eq!((&list["kind"], &list["items"][0]), (&json!("FooList"), &created));
    let status = api.delete(&format!("{FOOS}/a"), &Value::Null).await.ok();
    assert_eq!((&status["kind"], &status["status"]), (&json!("Status"), &json!("Success")));
    api.get(&format!("{FOOS}/a")).await.refused(404, "foos.samplecontroller.example.com \"a\" not found");
}

#[tokio::test(start_paused = true)]
async fn generations_count_changes_of_the_spec_only() {
    let api = with_foos().await;
    let path = format!("{FOOS}/a");
    api.post(FOOS, &foo("a")).await.ok();
    let labelled = api.merge(&path, &json!({"metadata": {"labels": {"x": "y"}}})).await.ok();
    assert_eq!(labelled["metadata"]["generation"], 1);
    let scaled =
        api.merge(&path, &json!({"spec": {"replicas": 3}, "status": {"availableReplicas": 9}})).await.ok();
    assert_eq!((&scaled["metadata"]["generation"], scaled.get("status")), (&json!(2), None));
    let status = json!({"spec": {"replicas": 7}, "status": {"availableReplicas": 1}, "metadata": {"labels": {"x": "z"}}});
    let told = api.merge(&format!("{path}/status"), &status).await.ok();
    assert_eq!(told["metadata"]["generation"], 2);
    assert_eq!(told["metadata"]["labels"], json!({"x": "y"}));
    assert_eq!((&told["spec"]["replicas"], &told["status"]), (&json!(3), &json!({"availableReplicas": 1})));
}

#[tokio::test(start_paused = true)]
async fn a_put_must_name_the_version_that_it_replaces() {
    let api = with_foos().await;
    let path = format!("{FOOS}/a");
    let created = api.post(FOOS, &foo("a")).await.ok();
    api.put(&path, &foo("a")).await.refused(
        422,
        "foos.samplecontroller.example.com \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be \
         specified for an update",
    );
    let mut wanted = created.clone();
    wanted["spec"]["replicas"] = 5.into();
    let put = api.put(&path, &wanted).await.ok();
    assert!(version(&put) > version(&created));
    assert_eq!(api.put(&path, &wanted).await.code, 409);
}

#[tokio::test(start_paused = true)]
async fn patches_are_json_or_merge_but_not_strategic() {
    let api = with_foos().await;
    let path = format!("{FOOS}/a");
    api.post(FOOS, &foo("a")).await.ok();
    let operations = r#"[{"op": "replace", "path": "/spec/replicas", "value": 4}]"#;
    let patched = api.call("PATCH", &path, "application/json-patch+json", operations).await.ok();
    assert_eq!(patched["spec"]["replicas"], 4);
    let strategic = api.call("PATCH", &path, "application/strategic-merge-patch+json", "{}").await;
    assert_eq!((strategic.code, strategic.reason()), (415, "UnsupportedMediaType"));
    let protobuf = api.call("POST", FOOS, "application/vnd.kubernetes.protobuf", "k8s\0").await;
    assert_eq!(protobuf.code, 415);
}

#[tokio::test(start_paused = true)]
async fn replicas_are_where_the_definition_says() {
    let api = with_foos().await;
    api.post(FOOS, &foo("a")).await.ok();
    let path = format!("{FOOS}/a/scale");
    let scale = api.get(&path).await.ok();
    assert_eq!((&scale["kind"], &scale["spec"]), (&json!("Scale"), &json!({"replicas": 2})));
    let status = json!({"status": {"availableReplicas": 2, "selector": "app=a"}});
    api.merge(&format!("{FOOS}/a/status"), &status).await.ok();
    let scaled = api.merge(&path, &json!({"spec": {"replicas": 4}})).await.ok();
    assert_eq!(scaled["spec"], json!({"replicas": 4}));
    assert_eq!(scaled["status"], json!({"replicas": 2, "selector": "app=a"}));
    let found = api.get(&format!("{FOOS}/a")).await.ok();
    assert_eq!((&found["spec"]["replicas"], &found["metadata"]["generation"]), (&json!(4), &json!(2)));
}

#[tokio::test(start_paused = true)]
async fn a_body_of_another_kind_or_version_is_refused() {
    let api = with_foos().await;
    let mut other = foo("a");
    other["kind"] = "Bar".into();
    api.post(FOOS, &other).await.refused(
        422,
        "Foo.samplecontroller.example.com \"a\" is invalid: kind: Invalid value: \"Bar\": must be Foo",
    );
    other = foo("a");
    other["apiVersion"] = "samplecontroller.example.com/v2".into();
    api.post(FOOS, &other).await.refused(
        400,
        "the API version in the data (samplecontroller.example.com/v2) does not match the expected API version \
         (samplecontroller.example.com/v1alpha1)",
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_what_happens_to_custom_resources() {
    let api = with_foos().await;
    let mut watch = api.watch(&format!("{FOOS}?watch=true")).await;
    api.post(FOOS, &foo("a")).await.ok();
    let event = watch.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["kind"]), (&json!("ADDED"), &json!("Foo")));
    api.delete(FOOS, &Value::Null).await.ok();
    assert_eq!(watch.line().await, "DELETED a");
}

#[tokio::test(start_paused = true)]
async fn what_the_schema_does_not_know_is_dropped_and_what_it_defaults_is_filled_in() {
    let api = with_foos().await;
    let mut given = foo("a");
    given["spec"] = json!({"deploymentName": "a", "typo": 1});
    given["extra"] = json!({"x": 1});
    let created = api.post(FOOS, &given).await;
    let warnings: Vec<_> = created.headers.get_all("warning").iter().collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert_eq!(warnings[0], "299 - \"unknown field \\\"extra\\\"\"");
    let created = created.ok();
    assert_eq!(created["spec"], json!({"deploymentName": "a", "replicas": 1}));
    assert_eq!(created.get("extra"), None);
    given["metadata"] = json!({"name": "b", "nam": "c"});
    api.post(&format!("{FOOS}?fieldValidation=Strict"), &given).await.refused(
        400,
        "Foo in version \"v1alpha1\" cannot be handled as a Foo: strict decoding error: unknown field \
         \"metadata.nam\", unknown field \"extra\", unknown field \"spec.typo\"",
    );
    let twice = foo("b").to_string().replace("\"replicas\":2", "\"replicas\":2,\"replicas\":3");
    let strict = format!("{FOOS}?fieldValidation=Strict");
    api.call("POST", &strict, "application/json", twice).await.refused(
        400,
        "Foo in version \"v1alpha1\" cannot be handled as a Foo: strict decoding error: duplicate field \
         \"spec.replicas\"",
    );
}

/// `kubectl edit` shows the reasons of a 422 in the file, those of a 400 only once.
#[tokio::test(start_paused = true)]
async fn a_strict_patch_with_an_unknown_field_is_invalid() {
    let api = with_foos().await;
    api.post(FOOS, &foo("a")).await.ok();
    let path = format!("{FOOS}/a?fieldValidation=Strict");
    let refused = api.merge(&path, &json!({"spec": {"typo": 1}})).await;
    assert_eq!((refused.code, refused.reason()), (422, "Invalid"), "{}", refused.body);
    assert_eq!(refused.body["details"]["causes"][0]["field"], "patch");
    assert!(refused.message().ends_with("strict decoding error: unknown field \"spec.typo\""));
}

#[tokio::test(start_paused = true)]
async fn a_negative_scale_is_refused_under_the_path_of_the_definition() {
    let api = with_foos().await;
    api.post(FOOS, &foo("a")).await.ok();
    let refused = api.merge(&format!("{FOOS}/a/scale"), &json!({"spec": {"replicas": -1}})).await;
    assert_eq!(refused.code, 422, "{}", refused.body);
    assert_eq!(refused.body["details"]["kind"], "Foo");
    assert!(
        refused.message().contains(".spec.replicas: Invalid value: -1: should be a non-negative integer")
    );
}

#[tokio::test(start_paused = true)]
async fn replicas_that_are_no_count_are_named_as_go_names_them() {
    let api = with_foos().await;
    let mut given = foo("a");
    for (spec, why) in [
        (json!({"replicas": "2"}), "2 is of the type string, expected int64"),
        (json!({"replicas": 2.5}), "2.5 is of the type float64, expected int64"),
        (json!("text"), "text is of the type string, expected map[string]interface{}"),
    ] {
        given["spec"] = spec;
        let refused = api.post(FOOS, &given).await;
        let expected = format!(".spec.replicas: Invalid value: 0: .spec.replicas accessor error: {why}");
        assert!(refused.message().contains(&expected), "{}", refused.message());
    }
}

#[tokio::test(start_paused = true)]
async fn what_breaks_the_schema_is_refused_with_the_place() {
    let api = with_foos().await;
    let mut given = foo("a");
    given["spec"] = json!({"deploymentName": 3, "replicas": 11});
    let refused = api.post(FOOS, &given).await;
    assert_eq!(refused.code, 422);
    let causes = refused.body["details"]["causes"].as_array().unwrap();
    let fields: Vec<_> = causes.iter().map(|cause| cause["field"].as_str().unwrap()).collect();
    assert!(fields.contains(&"spec.replicas") && fields.contains(&"spec.deploymentName"), "{}", refused.body);
    assert_eq!(api.get(FOOS).await.names().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn tables_have_the_columns_of_the_definition() {
    let api = Api::new();
    let mut definition = definition();
    definition["spec"]["versions"][0]["additionalPrinterColumns"] = json!([
        {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
        {"name": "Deployment", "type": "string", "jsonPath": ".spec.deploymentName", "priority": 1},
        {"name": "Made", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "Ready", "type": "boolean", "jsonPath": ".status.ready"},
    ]);
    api.post(DEFINITIONS, &definition).await.ok();
    api.post(FOOS, &foo("a")).await.ok();
    let request = http::Request::get(FOOS)
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Default::default())
        .unwrap();
    let table = api.answer(request).await.ok();
    let columns = table["columnDefinitions"].as_array().unwrap();
    let shown: Vec<_> =
        columns.iter().map(|column| (column["name"].as_str().unwrap(), &column["priority"])).collect();
    let (zero, one) = (json!(0), json!(1));
    assert_eq!(
        shown,
        [("Name", &zero), ("Replicas", &zero), ("Deployment", &one), ("Made", &zero), ("Ready", &zero)]
    );
    assert_eq!(table["rows"][0]["cells"], json!(["a", 2, "a", "0s", null]));
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
}

#[tokio::test(start_paused = true)]
async fn objects_are_selected_by_the_fields_that_the_definition_names() {
    let api = Api::new();
    let mut definition = definition();
    definition["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.replicas"}]);
    api.post(DEFINITIONS, &definition).await.ok();
    let mut one = foo("one");
    one["spec"]["replicas"] = 1.into();
    api.post(FOOS, &one).await.ok();
    api.post(FOOS, &foo("two")).await.ok();
    assert_eq!(api.get(&format!("{FOOS}?fieldSelector=spec.replicas%3D2")).await.names(), ["two"]);
    api.get(&format!("{FOOS}?fieldSelector=spec.deploymentName%3Dtwo"))
        .await
        .refused(400, "field label not supported: spec.deploymentName");
    let mut watch = api.watch(&format!("{FOOS}?watch=true&fieldSelector=spec.replicas%3D2")).await;
    assert_eq!(watch.line().await, "ADDED two");
    api.merge(&format!("{FOOS}/one"), &json!({"spec": {"replicas": 2}})).await.ok();
    assert_eq!(watch.line().await, "ADDED one");
    api.merge(&format!("{FOOS}/two"), &json!({"spec": {"replicas": 3}})).await.ok();
    assert_eq!(watch.line().await, "DELETED two");
}

#[tokio::test(start_paused = true)]
async fn every_served_version_shows_the_same_objects() {
    let api = Api::new();
    let mut definition = definition();
    let mut other = definition["spec"]["versions"][0].clone();
    other["name"] = "v1".into();
    other["storage"] = false.into();
    other["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["replicas"]["default"] = 3.into();
    other["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["color"] =
        json!({"type": "string", "default": "red"});
    definition["spec"]["versions"].as_array_mut().unwrap().push(other);
    definition["spec"]["versions"][0]["deprecated"] = true.into();
    api.post(DEFINITIONS, &definition).await.ok();
    let created = api.post(FOOS, &foo("a")).await;
    assert_eq!(
        created.headers["warning"],
        "299 - \"samplecontroller.example.com/v1alpha1 Foo is deprecated; use samplecontroller.example.com/v1 Foo\""
    );
    let newer = FOOS.replace("v1alpha1", "v1");
    let found = api.get(&format!("{newer}/a")).await.ok();
    assert_eq!(found["apiVersion"], "samplecontroller.example.com/v1");
    assert_eq!(found["spec"], json!({"deploymentName": "a", "replicas": 2, "color": "red"}));
    let list = api.get(&newer).await.ok();
    assert_eq!(list["items"][0], found);
    let groups = api.get("/apis/samplecontroller.example.com").await.ok();
    assert_eq!(groups["preferredVersion"]["version"], "v1");

    definition["spec"]["versions"][0]["storage"] = false.into();
    definition["spec"]["versions"][1]["storage"] = true.into();
    let path = format!("{DEFINITIONS}/foos.samplecontroller.example.com");
    let changed = api.merge(&path, &json!({"spec": {"versions": definition["spec"]["versions"]}})).await.ok();
    assert_eq!(changed["status"]["storedVersions"], json!(["v1alpha1", "v1"]));
    assert_eq!(api.get(&newer).await.ok()["items"][0]["spec"]["color"], "red");
    let old = api.get(FOOS).await.ok();
    assert_eq!(old["items"][0]["apiVersion"], "samplecontroller.example.com/v1alpha1");
    assert_eq!(old["items"][0]["spec"].get("color"), None);
}
