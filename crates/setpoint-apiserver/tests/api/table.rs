use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::Full;
use serde_json::{Value, json};

use crate::support::{Answer, Api, DEPLOYMENTS, MAPS, PODS, Watch, deployment, map, pod, version};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

fn ask(path: &str, accept: &str) -> Request<Full<Bytes>> {
    Request::builder().uri(path).header(header::ACCEPT, accept).body(Full::default()).unwrap()
}

async fn table(api: &Api, path: &str) -> Answer {
    api.answer(ask(path, TABLE)).await
}

fn columns(table: &Value) -> Vec<&str> {
    let columns = table["columnDefinitions"].as_array().expect("columns");
    columns.iter().map(|column| column["name"].as_str().unwrap()).collect()
}

fn cells(table: &Value) -> Vec<Value> {
    table["rows"].as_array().expect("rows").iter().map(|row| row["cells"].clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_list_is_a_table_of_what_people_want_to_know() {
    let api = Api::new();
    api.post(DEPLOYMENTS, &deployment("web")).await.ok();
    let status = json!({"status": {"readyReplicas": 2, "updatedReplicas": 3, "replicas": 3}});
    api.merge(&format!("{DEPLOYMENTS}/web/status"), &status).await.ok();
    tokio::time::advance(Duration::from_secs(123)).await;
    let found = table(&api, DEPLOYMENTS).await.ok();
    assert_eq!((&found["kind"], &found["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    assert_eq!(
        columns(&found),
        ["Name", "Ready", "Up-to-date", "Available", "Age", "Containers", "Images", "Selector"]
    );
    assert_eq!(cells(&found), [json!(["web", "2/3", 3, 0, "2m3s", "web", "nginx", "app=web"])]);
    let object = &found["rows"][0]["object"];
    assert_eq!(object["kind"], "PartialObjectMetadata");
    assert_eq!(object["metadata"]["name"], "web");
    assert_eq!(object.get("spec"), None);
    let first = &found["columnDefinitions"][0];
    assert_eq!(
        (&first["type"], &first["format"], &first["priority"]),
        (&json!("string"), &json!("name"), &json!(0))
    );
    assert_eq!(found["columnDefinitions"][5]["priority"], 1);
}

#[tokio::test]
async fn a_table_has_the_version_and_the_pages_of_a_list() {
    let api = Api::new();
    for name in ["a", "b", "c"] {
        api.post(MAPS, &map(name, "x")).await.ok();
    }
    let list = api.get(&format!("{MAPS}?limit=2")).await.ok();
    let first = table(&api, &format!("{MAPS}?limit=2")).await.ok();
    assert_eq!(first["metadata"]["resourceVersion"], list["metadata"]["resourceVersion"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    let next = first["metadata"]["continue"].as_str().unwrap();
    let last = table(&api, &format!("{MAPS}?limit=2&continue={next}")).await.ok();
    assert_eq!(cells(&last)[0][0], "c");
    let none = table(&api, "/api/v1/namespaces/none/configmaps").await.ok();
    assert_eq!(none["rows"], json!([]));
}

#[tokio::test]
async fn rows_have_of_their_objects_what_is_asked_for() {
    let api = Api::new();
    let created = api.post(MAPS, &map("a", "x")).await.ok();
    let row = async |query: &str| {
        table(&api, &format!("{MAPS}?includeObject={query}")).await.ok()["rows"][0]["object"].clone()
    };
    assert_eq!(row("None").await, Value::Null);
    assert_eq!(row("Object").await, created);
    assert_eq!(row("Metadata").await["metadata"], created["metadata"]);
    let wrong = table(&api, &format!("{MAPS}?includeObject=All")).await;
    wrong.refused(
        400,
        "Unable to convert to Table as requested: includeObject: Invalid value: \"All\": must be 'Metadata', \
         'Object', 'None', or empty",
    );
}

#[tokio::test]
async fn one_object_is_a_table_of_one_row() {
    let api = Api::new();
    let created = api.post(PODS, &pod("a")).await.ok();
    let found = table(&api, &format!("{PODS}/a")).await.ok();
    assert_eq!(found["metadata"], json!({"resourceVersion": version(&created).to_string()}));
    assert_eq!(
        cells(&found),
        [json!(["a", "0/1", "Pending", "0", "0s", "<none>", "<none>", "<none>", "<none>"])]
    );
    let beta = api.answer(ask(PODS, "application/json;as=Table;v=v1beta1;g=meta.k8s.io")).await.ok();
    assert_eq!(beta["apiVersion"], "meta.k8s.io/v1beta1");
    assert_eq!(beta["rows"][0]["object"]["apiVersion"], "meta.k8s.io/v1beta1");
}

#[tokio::test]
async fn errors_stay_what_they_are() {
    let api = Api::new();
    let missing = table(&api, &format!("{MAPS}/none")).await;
    assert_eq!((missing.code, &missing.body["kind"]), (404, &json!("Status")));
}

#[tokio::test]
async fn a_scale_is_a_table_of_its_own() {
    let api = Api::new();
    api.post(DEPLOYMENTS, &deployment("web")).await.ok();
    let scale = table(&api, &format!("{DEPLOYMENTS}/web/scale")).await.ok();
    assert_eq!(columns(&scale), ["Name", "Desired", "Available", "Age"]);
    assert_eq!(cells(&scale), [json!(["web", 3, 0, "0s"])]);
}

async fn watch(api: &Api, path: &str) -> Watch {
    api.watch_as(path, TABLE).await
}

#[tokio::test(start_paused = true)]
async fn events_of_a_watch_are_tables_and_only_the_first_has_columns() {
    let api = Api::new();
    api.post(MAPS, &map("a", "x")).await.ok();
    let mut watch = watch(&api, &format!("{MAPS}?watch=true&allowWatchBookmarks=true")).await;
    let first = watch.next().await.unwrap();
    assert_eq!(first["type"], "ADDED");
    assert_eq!(columns(&first["object"]), ["Name", "Data", "Age"]);
    tokio::time::advance(Duration::from_secs(5)).await;
    let changed = api.merge(&format!("{MAPS}/a"), &json!({"data": {"other": "y"}})).await.ok();
    let second = watch.next().await.unwrap();
    assert_eq!((&second["type"], &second["object"]["columnDefinitions"]), (&json!("MODIFIED"), &Value::Null));
    assert_eq!(cells(&second["object"]), [json!(["a", 2, "5s"])]);
    assert_eq!(second["object"]["metadata"]["resourceVersion"], version(&changed).to_string());
    let bookmark = watch.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["kind"], "Table");
    assert_eq!(bookmark["object"]["metadata"]["resourceVersion"], version(&changed).to_string());
}

#[tokio::test]
async fn a_streaming_list_of_rows_says_where_it_ends() {
    let api = Api::new();
    api.post(MAPS, &map("a", "x")).await.ok();
    let query =
        "watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    let mut watch = watch(&api, &format!("{MAPS}?{query}&includeObject=None")).await;
    assert_eq!(watch.next().await.unwrap()["object"]["rows"][0]["object"], Value::Null);
    let end = watch.next().await.unwrap();
    let annotations = &end["object"]["rows"][0]["object"]["metadata"]["annotations"];
    assert_eq!(annotations["k8s.io/initial-events-end"], "true");
}

#[tokio::test]
async fn kinds_without_columns_of_their_own_show_when_they_were_made() {
    let api = Api::new();
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    let role = json!({"metadata": {"name": "reader"}, "rules": []});
    let created = api.post(path, &role).await.ok();
    let found = table(&api, path).await.ok();
    assert_eq!(columns(&found), ["Name", "Created At"]);
    assert_eq!(cells(&found), [json!(["reader", created["metadata"]["creationTimestamp"]])]);
}

#[tokio::test]
async fn what_has_no_columns_is_no_table() {
    let api = Api::new();
    api.post(PODS, &pod("web")).await.ok();
    api.post(DEPLOYMENTS, &deployment("web")).await.ok();
    let account = json!({"metadata": {"name": "robot"}});
    api.post("/api/v1/namespaces/default/serviceaccounts", &account).await.ok();
    let send = async |method: &str, path: &str, accept: &str, body: &Value| {
        let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::ACCEPT, accept)
            .header(header::CONTENT_TYPE, media)
            .body(Full::from(body.to_string()))
            .unwrap();
        api.answer(request).await
    };
    let about = json!({"spec": {"user": "ann", "nonResourceAttributes": {"path": "/", "verb": "get"}}});
    let authorization = "/apis/authorization.k8s.io/v1";
    let authentication = "/apis/authentication.k8s.io/v1";
    let robot = "/api/v1/namespaces/default/serviceaccounts/robot";
    for (method, path, body) in [
        ("POST", format!("{authorization}/selfsubjectaccessreviews"), about.clone()),
        ("POST", format!("{authorization}/subjectaccessreviews"), about.clone()),
        (
            "POST",
            format!("{authorization}/selfsubjectrulesreviews"),
            json!({"spec": {"namespace": "default"}}),
        ),
        ("POST", format!("{authentication}/tokenreviews"), json!({"spec": {"token": "x"}})),
        ("POST", format!("{authentication}/selfsubjectreviews"), json!({})),
        ("POST", format!("{robot}/token"), json!({"spec": {"audiences": []}})),
        ("POST", format!("{PODS}/web/binding"), json!({"target": {"name": "node-1"}})),
        ("POST", format!("{PODS}/web/eviction"), json!({"metadata": {"name": "web"}})),
        ("GET", format!("{PODS}/web/ephemeralcontainers"), Value::Null),
        ("PATCH", format!("{PODS}/web/resize"), json!({})),
    ] {
        let refused = send(method, &path, TABLE, &body).await;
        assert_eq!((refused.code, refused.reason()), (406, "NotAcceptable"), "{path}: {}", refused.body);
        let plain = format!("{TABLE}, application/json");
        if !path.ends_with("ephemeralcontainers") && !path.ends_with("resize") {
            let answer = send(method, &format!("{path}?dryRun=All"), &plain, &body).await;
            assert_ne!(answer.code, 406, "{path}: {}", answer.body);
            assert_ne!(answer.body["kind"], "Table", "{path}");
        }
    }
    assert_eq!(api.get(&format!("{PODS}/web")).await.ok()["spec"].get("nodeName"), None, "nothing was done");
    // These have columns.
    for path in [format!("{DEPLOYMENTS}/web/scale"), format!("{DEPLOYMENTS}/web/status")] {
        assert_eq!(send("GET", &path, TABLE, &Value::Null).await.ok()["kind"], "Table", "{path}");
    }
}

#[tokio::test]
async fn the_metadata_of_what_is_not_stored_can_be_asked_for() {
    let api = Api::new();
    api.post(DEPLOYMENTS, &deployment("web")).await.ok();
    let partial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let scale = api.answer(ask(&format!("{DEPLOYMENTS}/web/scale"), partial)).await.ok();
    assert_eq!(
        (&scale["kind"], &scale["metadata"]["name"]),
        (&json!("PartialObjectMetadata"), &json!("web"))
    );
    assert_eq!(scale.get("spec"), None);
    let question = json!({"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}});
    let request = Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
        .header(header::ACCEPT, partial)
        .body(Full::from(question.to_string()))
        .unwrap();
    let review = api.answer(request).await;
    assert_eq!(
        (review.code, &review.body["kind"]),
        (201, &json!("PartialObjectMetadata")),
        "{}",
        review.body
    );
}
