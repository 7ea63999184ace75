//! The order of the fields in answers: kube-apiserver's, since clients and their tests look at the first bytes.

use http::{Request, header};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::definitions::{FOOS, foo, with_foos};
use crate::support::{Api, DEPLOYMENTS, MAPS, PODS, deployment, map, pod};

async fn text(api: &Api, method: &str, path: &str, accept: &str, body: &Value) -> String {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::ACCEPT, accept)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::from(body))
        .unwrap();
    let body = api.send(request).await.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";

#[track_caller]
fn starts(text: &str, start: &str) {
    assert!(text.starts_with(start), "{text}");
}

#[tokio::test]
async fn built_in_kinds_begin_with_their_kind() {
    let api = Api::new();
    let created = text(&api, "POST", MAPS, JSON, &map("a", "x")).await;
    let map_start = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"#;
    starts(&created, map_start);
    let dry = text(&api, "POST", &format!("{MAPS}?dryRun=All"), JSON, &map("b", "x")).await;
    starts(&dry, map_start);
    starts(&text(&api, "GET", &format!("{MAPS}/a"), JSON, &Value::Null).await, map_start);
    starts(
        &text(&api, "GET", MAPS, JSON, &Value::Null).await,
        r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"#,
    );
    let pretty = text(&api, "GET", &format!("{MAPS}/a?pretty=true"), JSON, &Value::Null).await;
    starts(&pretty, "{\n  \"kind\": \"ConfigMap\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {\n");
    let compact: Value = serde_json::from_str(&created).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&pretty).unwrap(), compact);
    // What is stored in another version is converted.
    text(&api, "POST", DEPLOYMENTS, JSON, &deployment("web")).await;
    let scaler = json!({
        "metadata": {"name": "web"},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}}
    });
    let scalers = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    starts(
        &text(&api, "POST", scalers, JSON, &scaler).await,
        r#"{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1","metadata":{"#,
    );
    starts(
        &text(&api, "GET", &format!("{DEPLOYMENTS}/web/scale"), JSON, &Value::Null).await,
        r#"{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"#,
    );
}

#[tokio::test]
async fn answers_that_are_no_stored_objects_begin_with_their_kind_too() {
    let api = Api::new();
    starts(
        &text(&api, "GET", &format!("{MAPS}/none"), JSON, &Value::Null).await,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"configmaps \"none\" not found","reason":"NotFound","details":{"name":"none","kind":"configmaps"},"code":404}"#,
    );
    text(&api, "POST", MAPS, JSON, &map("a", "x")).await;
    let question = json!({"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}});
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    starts(
        &text(&api, "POST", reviews, JSON, &question).await,
        r#"{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{"#,
    );
    starts(
        &text(&api, "GET", &format!("{MAPS}/a"), PARTIAL, &Value::Null).await,
        r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"#,
    );
    let table = text(&api, "GET", &format!("{MAPS}?includeObject=Object"), TABLE, &Value::Null).await;
    starts(&table, r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"#);
    assert!(table.contains(r#""object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"#), "{table}");
    starts(
        &text(&api, "DELETE", &format!("{MAPS}/a"), JSON, &Value::Null).await,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"details":{"#,
    );
    for (path, start) in [
        ("/api", r#"{"kind":"APIVersions","#),
        ("/apis", r#"{"kind":"APIGroupList","apiVersion":"v1","groups":["#),
        ("/apis/apps", r#"{"kind":"APIGroup","apiVersion":"v1","name":"apps","#),
        ("/apis/apps/v1", r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","#),
        ("/api/v1", r#"{"kind":"APIResourceList","groupVersion":"v1","#),
    ] {
        starts(&text(&api, "GET", path, JSON, &Value::Null).await, start);
    }
}

#[tokio::test(start_paused = true)]
async fn the_events_of_a_watch_begin_with_their_type() {
    let api = Api::new();
    text(&api, "POST", PODS, JSON, &pod("web")).await;
    let path = format!(
        "{PODS}?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1"
    );
    let events = text(&api, "GET", &path, JSON, &Value::Null).await;
    let mut lines = events.lines();
    starts(lines.next().unwrap(), r#"{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"#);
    starts(
        lines.next().unwrap(),
        r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"#,
    );
}

#[tokio::test]
async fn custom_resources_have_their_fields_in_alphabetical_order() {
    let api = with_foos().await;
    let start = r#"{"apiVersion":"samplecontroller.example.com/v1alpha1","kind":"Foo","metadata":{"#;
    starts(&text(&api, "POST", FOOS, JSON, &foo("a")).await, start);
    starts(&text(&api, "GET", &format!("{FOOS}/a"), JSON, &Value::Null).await, start);
    let list = text(&api, "GET", FOOS, JSON, &Value::Null).await;
    starts(&list, &format!(r#"{{"apiVersion":"samplecontroller.example.com/v1alpha1","items":[{start}"#));
    let read: Value = serde_json::from_str(&list).unwrap();
    assert!(list.contains(r#"],"kind":"FooList","metadata":{"#), "{list}");
    assert_eq!((&read["kind"], &read["items"][0]["metadata"]["name"]), (&json!("FooList"), &json!("a")));
    let partial = text(&api, "GET", &format!("{FOOS}/a"), PARTIAL, &Value::Null).await;
    starts(&partial, r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"#);
}
