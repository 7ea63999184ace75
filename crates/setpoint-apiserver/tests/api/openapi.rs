use serde_json::{Value, json};

use crate::support::Api;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn widgets(size: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        size: {"type": "integer", "description": "How large it is."}}}}});
    json!({"metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]
    }})
}

#[tokio::test]
async fn version_2_has_all_kinds_and_follows_definitions() {
    let api = Api::new();
    let before = api.get("/openapi/v2").await;
    let tag = before.headers["etag"].clone();
    let document = before.ok();
    assert_eq!((&document["swagger"], &document["info"]["title"]), (&json!("2.0"), &json!("Kubernetes")));
    let definitions = &document["definitions"];
    let pod = &definitions["io.k8s.api.core.v1.Pod"];
    assert_eq!(
        pod["x-kubernetes-group-version-kind"],
        json!([{"group": "", "version": "v1", "kind": "Pod"}])
    );
    assert_eq!(pod["properties"]["spec"]["$ref"], "#/definitions/io.k8s.api.core.v1.PodSpec");
    let patch = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(patch["parameters"][0]["in"], "body");
    assert!(patch["parameters"].as_array().unwrap().iter().any(|one| one["name"] == "fieldValidation"));
    assert_eq!(patch["responses"]["200"]["schema"]["$ref"], "#/definitions/io.k8s.api.apps.v1.Deployment");

    let asked = |tag: &http::HeaderValue, accept: &str| {
        let request = http::Request::builder().uri("/openapi/v2").header("accept", accept);
        request.header("if-none-match", tag).body(http_body_util::Full::default()).unwrap()
    };
    assert_eq!(api.answer(asked(&tag, "application/json")).await.code, 304);
    api.post(DEFINITIONS, &widgets("size")).await.ok();
    let after = api.answer(asked(&tag, "application/json")).await;
    assert_ne!(after.headers["etag"], tag);
    let size = |document: &Value, name: &str| {
        document["definitions"]["com.example.v1.Widget"]["properties"]["spec"]["properties"][name].clone()
    };
    let document = after.ok();
    assert_eq!(size(&document, "size")["type"], "integer");
    assert!(document["definitions"]["com.example.v1.WidgetList"].is_object());
    assert!(document["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets"]["post"].is_object());
    let changed = json!({"spec": {"versions": widgets("width")["spec"]["versions"]}});
    api.merge(&format!("{DEFINITIONS}/widgets.example.com"), &changed).await.ok();
    let document = api.get("/openapi/v2").await.ok();
    assert!(size(&document, "size").is_null() && size(&document, "width").is_object());

    let protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let answer = api.answer(asked(&tag, protobuf)).await;
    assert_eq!(answer.headers["content-type"], "application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
    assert!(answer.body.as_str().unwrap().contains("com.example.v1.Widget"));
    assert_eq!(api.answer(asked(&tag, "text/html")).await.code, 406);
}

#[tokio::test]
async fn each_group_version_has_a_document_that_clients_may_keep() {
    let api = Api::new();
    let index = api.get("/openapi/v3").await.ok();
    let address = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let found = api.get(&address).await;
    assert_eq!(found.headers["cache-control"], "public, immutable");
    let etag = found.headers["etag"].to_str().unwrap().trim_matches('"').to_owned();
    assert!(address.ends_with(&etag), "{address} {etag}");
    let old = api.get("/openapi/v3/apis/apps/v1?hash=OLD").await;
    assert_eq!((old.code, old.headers["location"].to_str().unwrap()), (301, address.as_str()));
    assert_eq!(api.get("/openapi/v3/apis/none/v1").await.code, 404);
}

async fn document(api: &Api, path: &str) -> Value {
    api.get(&format!("/openapi/v3/{path}")).await.ok()
}

#[tokio::test]
async fn every_path_has_its_verbs() {
    let api = Api::new();
    let apps = document(&api, "apis/apps/v1").await;
    let verbs = |path: &str| -> Vec<String> {
        let operations = apps["paths"][path].as_object().unwrap_or_else(|| panic!("{path} is missing"));
        operations.iter().filter(|(name, _)| *name != "parameters").map(|(name, _)| name.clone()).collect()
    };
    let object = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}";
    assert_eq!(verbs(object), ["delete", "get", "patch", "put"]);
    assert_eq!(verbs(&format!("{object}/scale")), ["get", "patch", "put"]);
    assert_eq!(verbs("/apis/apps/v1/namespaces/{namespace}/deployments"), ["delete", "get", "post"]);
    assert_eq!(verbs("/apis/apps/v1/deployments"), ["get"]);
    let post = &apps["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments"]["post"];
    assert_eq!(post["x-kubernetes-group-version-kind"]["kind"], "Deployment");
    assert_eq!(
        post["requestBody"]["content"]["*/*"]["schema"],
        json!({"$ref": "#/components/schemas/io.k8s.api.apps.v1.Deployment"})
    );
}

#[tokio::test]
async fn types_and_fields_say_what_they_are_for() {
    let api = Api::new();
    let core = document(&api, "api/v1").await;
    let schemas = &core["components"]["schemas"];
    for pointer in [
        "/io.k8s.api.core.v1.Pod/description",
        "/io.k8s.api.core.v1.PodSpec/properties/containers/description",
        "/io.k8s.api.core.v1.PodSpec/properties/affinity/description",
        "/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta/properties/labels/description",
        "/io.k8s.apimachinery.pkg.api.resource.Quantity/description",
    ] {
        let text = schemas.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        assert!(text.len() > 20, "{pointer}: {text}");
    }
}
