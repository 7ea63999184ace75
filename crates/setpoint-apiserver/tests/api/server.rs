use http::{Request, header};
use http_body_util::Full;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service};
use kube::api::{Api as KubeApi, ListParams, PostParams};
use serde_json::json;
use setpoint_apiserver::{ApiServer, User};
use tower::ServiceExt;

use crate::support::{Api, MAPS, map};

#[tokio::test]
async fn the_usual_namespaces_and_the_kubernetes_service_are_there() {
    let api = Api::new();
    let names = api.get("/api/v1/namespaces").await;
    assert_eq!(names.names(), ["default", "kube-node-lease", "kube-public", "kube-system"]);
    let service = api.get("/api/v1/namespaces/default/services/kubernetes").await.ok();
    assert_eq!(service["spec"]["clusterIP"], "10.96.0.1");
}

#[tokio::test]
async fn the_in_process_client_is_a_kube_client() {
    let server = ApiServer::builder().build();
    let maps: KubeApi<ConfigMap> = KubeApi::default_namespaced(server.client());
    let mut object = ConfigMap::default();
    object.metadata.name = Some("a".into());
    let created = maps.create(&PostParams::default(), &object).await.unwrap();
    assert!(created.metadata.uid.is_some());
    assert_eq!(maps.list(&ListParams::default()).await.unwrap().items.len(), 1);
    let namespaces: KubeApi<Namespace> = KubeApi::all(server.client());
    assert_eq!(namespaces.get("default").await.unwrap().status.unwrap().phase.as_deref(), Some("Active"));
    let services: KubeApi<Service> = KubeApi::default_namespaced(server.client());
    assert!(services.get("kubernetes").await.is_ok());
}

#[tokio::test]
async fn nobody_is_unauthorized_and_somebody_without_rights_is_forbidden() {
    let server = ApiServer::builder().build();
    let request = || Request::builder().uri(MAPS).body(Full::<bytes::Bytes>::default()).unwrap();
    let anonymous = server.clone().oneshot(request()).await.unwrap();
    assert_eq!(anonymous.status(), 401);
    let jane = server.as_user(User::new("jane", ["developers"])).oneshot(request()).await.unwrap();
    assert_eq!(jane.status(), 403);
}

#[tokio::test]
async fn servers_share_nothing() {
    let (one, other) = (Api::new(), Api::new());
    one.post(MAPS, &map("a", "x")).await.ok();
    assert_eq!(other.get(&format!("{MAPS}/a")).await.code, 404);
}

#[tokio::test]
async fn discovery_falls_back_to_a_request_a_group_version() {
    let server = setpoint_apiserver::ApiServer::builder().env(setpoint_env::Env::seeded(1));
    let api = Api::with(server.aggregated_discovery(false).build());
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    for (path, kind) in [("/api", "APIVersions"), ("/apis", "APIGroupList")] {
        let request = http::Request::builder().uri(path).header("accept", accept);
        let answer = api.answer(request.body(http_body_util::Full::default()).unwrap()).await;
        assert_eq!(answer.headers["content-type"], "application/json");
        assert_eq!(answer.ok()["kind"], kind);
    }
}

#[tokio::test]
async fn discovery_names_what_is_served() {
    let api = Api::new();
    assert_eq!(api.get("/api").await.ok()["versions"], json!(["v1"]));
    let core = api.get("/api/v1").await.ok();
    let pods = core["resources"].as_array().unwrap().iter().find(|r| r["name"] == "pods").unwrap();
    assert_eq!((&pods["kind"], &pods["shortNames"]), (&json!("Pod"), &json!(["po"])));
    let groups = api.get("/apis").await.ok();
    assert!(groups["groups"].as_array().unwrap().iter().any(|g| g["name"] == "apps"));
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let request =
        Request::builder().uri("/apis").header(header::ACCEPT, aggregated).body(Full::default()).unwrap();
    assert_eq!(api.answer(request).await.ok()["kind"], "APIGroupDiscoveryList");
    assert!(api.get("/version").await.ok()["gitVersion"].as_str().unwrap().starts_with("v1.37."));
}

#[tokio::test]
async fn health_and_metrics_are_there() {
    let api = Api::new();
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(api.get(path).await.ok(), json!("ok"), "{path}");
        let verbose = api.get(&format!("{path}?verbose")).await.ok();
        assert!(verbose.as_str().unwrap().contains("[+]ping ok"), "{verbose}");
    }
    api.post(MAPS, &map("a", "x")).await.ok();
    let metrics = api.get("/metrics").await.ok();
    let metrics = metrics.as_str().unwrap();
    let line = metrics.lines().find(|line| {
        line.starts_with("apiserver_request_total{") && line.contains("resource=\"configmaps\"")
    });
    assert!(line.is_some_and(|line| line.ends_with(" 1") && line.contains("code=\"201\"")), "{line:?}");
}

#[tokio::test]
async fn a_server_without_its_store_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let api = Api::with(ApiServer::builder().open(folder.path()).await.unwrap());
    let verbose = api.get("/readyz?verbose").await.ok();
    assert!(verbose.as_str().unwrap().contains("[+]storage ok\n[+]shutdown ok\n"), "{verbose}");
    api.server.close().await;
    let dead = api.get("/readyz").await;
    assert_eq!(dead.code, 500);
    assert!(dead.body.as_str().unwrap().contains("[-]storage failed"), "{}", dead.body);
    let why = api.get("/readyz/storage").await;
    assert_eq!(why.body, json!("internal server error: the store is closed\n"));
}
