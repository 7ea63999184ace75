use serde_json::{Value, json};

use crate::support::Api;

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
