//! Group-versions that other servers answer.

#![allow(clippy::result_large_err, reason = "a request that nobody answers is handed back")]

mod attacks;
mod backend;
mod documents;
mod streams;

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};
use setpoint_apiserver::{ApiServer, User};
use setpoint_env::Env;

use crate::support::Api;
pub(crate) use backend::front_proxy;
use backend::{Backend, GROUP, Setup};
pub(crate) use streams::Upgrading;

pub(crate) const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
pub(crate) const FLUNDERS: &str = "/apis/wardle.example.com/v1/namespaces/default/flunders";

/// An APIService that leads to a backend.
pub(crate) fn api_service(bundle: &str) -> Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": format!("v1.{GROUP}")},
        "spec": {
            "group": GROUP, "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 10,
            "service": {"namespace": "wardle", "name": "api", "port": 443},
            "caBundle": STANDARD.encode(bundle),
        }
    })
}

/// The condition of the APIService: status, reason, message.
pub(crate) async fn condition(api: &Api) -> (String, String, String) {
    let object = api.get(&format!("{SERVICES}/v1.{GROUP}")).await.ok();
    let condition = &object["status"]["conditions"][0];
    let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}

/// Waits until the condition has this reason.
pub(crate) async fn becomes(api: &Api, reason: &str) -> String {
    for _ in 0..400 {
        let (_, found, message) = condition(api).await;
        if found == reason {
            return message;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("it is {:?}, not {reason}", condition(api).await);
}

/// A server, and a backend that it hands on to.
pub(crate) async fn with_backend(setup: Setup) -> (Api, Backend) {
    let (authority, identity) = front_proxy();
    let backend = Backend::start(&authority, setup).await;
    let server = ApiServer::builder()
        .env(Env::seeded(1))
        .proxy_client(identity)
        .service_address("wardle", "api", None, backend.address)
        .build();
    let api = Api::with(server);
    api.post(SERVICES, &api_service(&backend.bundle)).await.ok();
    becomes(&api, "Passed").await;
    (api, backend)
}

#[tokio::test]
async fn a_request_goes_on_with_the_name_of_its_user_and_nothing_that_the_client_claims() {
    let (api, backend) = with_backend(Setup::default()).await;
    let request = Request::post(format!("{FLUNDERS}?dryRun=All&fieldManager=a%20b"))
        .header("content-type", "application/json")
        .header("x-remote-user", "root")
        .header("x-remote-group", "system:masters")
        .header("x-remote-extra-all", "yes")
        .header("authorization", "Bearer secret")
        .header("user-agent", "test")
        .body(Full::from("{\"spec\":1}"))
        .unwrap();
    let answer = api.answer(request).await;
    assert_eq!(answer.code, 201);
    assert_eq!(answer.headers["x-of-backend"], "yes");
    assert!(!answer.headers.contains_key("keep-alive"));
    let seen = answer.body;
    assert_eq!(seen["method"], "POST");
    assert_eq!(seen["path"], FLUNDERS);
    assert_eq!(seen["query"], "dryRun=All&fieldManager=a+b");
    assert_eq!(seen["body"], "{\"spec\":1}");
    assert_eq!(seen["certificate"], "front-proxy-client", "that of the server");
    let headers = &seen["headers"];
    assert_eq!(headers["x-remote-user"], json!(["kubernetes-admin"]));
    assert_eq!(headers["x-remote-group"], json!(["system:masters", "system:authenticated"]));
    assert_eq!(headers["user-agent"], json!(["test"]));
    for gone in ["authorization", "x-remote-extra-all"] {
        assert!(headers.get(gone).is_none(), "{gone}");
    }
    let path = "/apis//wardle.example.com/v1///namespaces/default/flunders/%6fne/";
    assert_eq!(api.get(path).await.body["path"], format!("{FLUNDERS}/one/"), "as it was authorized");
    drop(backend);
}

#[tokio::test]
async fn who_may_not_do_it_does_not_reach_the_backend() {
    let (api, backend) = with_backend(Setup::default()).await;
    let bob = Api::as_user(api.server.clone(), User::new("bob", ["people"]));
    let asked = backend.count();
    let refused = bob.get(FLUNDERS).await;
    assert_eq!(refused.code, 403);
    assert_eq!(
        refused.message(),
        "flunders.wardle.example.com is forbidden: User \"bob\" cannot list resource \"flunders\" in API group \
         \"wardle.example.com\" in the namespace \"default\""
    );
    assert_eq!(backend.count(), asked);
    let role = json!({"metadata": {"name": "r"}, "rules": [
        {"apiGroups": [GROUP], "resources": ["flunders"], "verbs": ["list"]}]});
    api.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await.ok();
    let binding = json!({"metadata": {"name": "r"}, "subjects": [{"kind": "User", "name": "bob"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"}});
    api.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await.ok();
    let seen = bob.get(FLUNDERS).await.ok();
    assert_eq!(seen["headers"]["x-remote-user"], json!(["bob"]));
    assert_eq!(seen["headers"]["x-remote-group"], json!(["people", "system:authenticated"]));
    assert_eq!(bob.get(&format!("{FLUNDERS}?watch=true")).await.code, 403);
}

#[tokio::test]
async fn an_impersonated_user_is_the_user() {
    let (api, _backend) = with_backend(Setup::default()).await;
    let request = Request::get(FLUNDERS)
        .header("impersonate-user", "jane")
        .header("impersonate-group", "system:masters")
        .header("impersonate-extra-scope", "x")
        .body(Full::default())
        .unwrap();
    let seen = api.answer(request).await.ok();
    let headers = &seen["headers"];
    assert_eq!(headers["x-remote-user"], json!(["jane"]));
    assert_eq!(headers["x-remote-extra-scope"], json!(["x"]));
    assert!(headers.get("impersonate-user").is_none());
}

#[tokio::test]
async fn what_is_missing_is_said_in_the_condition_and_a_request_is_answered_with_503() {
    let api = Api::new();
    api.post(SERVICES, &api_service("")).await.ok();
    let message = becomes(&api, "ServiceNotFound").await;
    assert_eq!(message, "service/api in \"wardle\" is not present");
    let away = api.get(FLUNDERS).await;
    assert_eq!((away.code, away.body), (503, json!("service unavailable\n")));
    assert_eq!(away.headers["content-type"], "text/plain; charset=utf-8");
    assert_eq!(api.get("/apis/wardle.example.com/v1").await.code, 503);
    api.post("/api/v1/namespaces", &json!({"metadata": {"name": "wardle"}})).await.ok();
    let services = "/api/v1/namespaces/wardle/services";
    let service = json!({"metadata": {"name": "api"}, "spec": {"ports": [{"name": "https", "port": 8443}]}});
    api.post(services, &service).await.ok();
    let message = becomes(&api, "ServicePortError").await;
    assert_eq!(message, "service/api in \"wardle\" is not listening on port 443");
    let ports = json!({"spec": {"ports": [{"name": "https", "port": 443}]}});
    api.merge(&format!("{services}/api"), &ports).await.ok();
    let message = becomes(&api, "EndpointsNotFound").await;
    assert_eq!(message, "cannot find endpointslices for service/api in \"wardle\"");
    let slices = "/apis/discovery.k8s.io/v1/namespaces/wardle/endpointslices";
    let slice = json!({
        "metadata": {"name": "api-1", "labels": {"kubernetes.io/service-name": "api"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": false}}],
        "ports": [{"name": "https", "port": 443}]
    });
    api.post(slices, &slice).await.ok();
    let message = becomes(&api, "MissingEndpoints").await;
    assert_eq!(
        message,
        "endpointslices for service/api in \"wardle\" have no addresses with port name \"https\""
    );
    api.delete(&format!("{SERVICES}/v1.{GROUP}"), &Value::Null).await.ok();
    assert_eq!(api.get(FLUNDERS).await.code, 404);
}

#[tokio::test]
async fn a_service_may_be_elsewhere_under_an_external_name() {
    let (authority, identity) = front_proxy();
    let backend = Backend::start(&authority, Setup::default()).await;
    let api = Api::with(ApiServer::builder().env(Env::seeded(1)).proxy_client(identity).build());
    api.post("/api/v1/namespaces", &json!({"metadata": {"name": "wardle"}})).await.ok();
    let service =
        json!({"metadata": {"name": "api"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    api.post("/api/v1/namespaces/wardle/services", &service).await.ok();
    let mut object = api_service(&backend.bundle);
    object["spec"]["service"]["port"] = backend.address.port().into();
    api.post(SERVICES, &object).await.ok();
    becomes(&api, "Passed").await;
    assert_eq!(api.get(FLUNDERS).await.code, 200);
    let port = backend.address.port();
    backend.stop().await;
    let gone = api.get(FLUNDERS).await;
    let why =
        format!("error trying to reach service: dial tcp localhost:{port}: connect: connection refused\n");
    assert_eq!((gone.code, gone.body), (503, json!(why)));
    let message = becomes(&api, "FailedDiscoveryCheck").await;
    let url = format!("https://localhost:{port}/apis/wardle.example.com/v1");
    assert_eq!(
        message,
        format!(
            "failing or missing response from {url}: Get \"{url}\": dial tcp localhost:{port}: connect: connection refused"
        )
    );
    assert_eq!(api.get(FLUNDERS).await.body, json!("service unavailable\n"));
}

#[tokio::test]
async fn trust_is_what_the_spec_says() {
    let (authority, identity) = front_proxy();
    let backend = Backend::start(&authority, Setup::default()).await;
    let server = ApiServer::builder()
        .env(Env::seeded(1))
        .proxy_client(identity)
        .service_address("wardle", "api", None, backend.address)
        .build();
    let api = Api::with(server);
    api.post(SERVICES, &api_service("")).await.ok();
    let message = becomes(&api, "FailedDiscoveryCheck").await;
    let why = "tls: failed to verify certificate: x509: certificate signed by unknown authority";
    assert!(message.ends_with(why), "{message}");
    let path = format!("{SERVICES}/v1.{GROUP}");
    api.merge(&path, &json!({"spec": {"insecureSkipTLSVerify": true}})).await.ok();
    becomes(&api, "Passed").await;
    assert_eq!(api.get(FLUNDERS).await.code, 200);
    let leaf = json!({"spec": {"insecureSkipTLSVerify": null, "caBundle": STANDARD.encode(&backend.leaf)}});
    api.merge(&path, &leaf).await.ok();
    becomes(&api, "Passed").await;
    assert_eq!(api.get(FLUNDERS).await.code, 200);
}

#[tokio::test]
async fn a_local_group_version_is_marked_as_such() {
    let api = Api::new();
    let object = json!({"metadata": {"name": "v1.local.example.com"}, "spec": {
        "group": "local.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10}});
    api.post(SERVICES, &object).await.ok();
    let stored = api.get(&format!("{SERVICES}/v1.local.example.com")).await.ok();
    let condition = &stored["status"]["conditions"][0];
    assert_eq!((condition["status"].as_str(), condition["reason"].as_str()), (Some("True"), Some("Local")));
}
