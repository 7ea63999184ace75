//! On an address that others can reach: TLS, and a token of somebody who may see the page.

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::json;
use setpoint::Facts;
use setpoint::webhook::Certificates;
use setpoint_apiserver::{ApiServer, Authorization};
use setpoint_dashboard::{Dashboard, DashboardConfig, DashboardError};
use setpoint_env::{Env, Task};
use tokio_util::sync::CancellationToken;

use crate::browser::Browser;

async fn serve(server: &ApiServer) -> (Browser, Task<()>) {
    let env = Env::system();
    let (certificates, authority) = Certificates::self_signed(["127.0.0.1"]).unwrap();
    let config = DashboardConfig::default().listen("0.0.0.0:0".parse().unwrap()).certificates(certificates);
    let dashboard = Dashboard::new(&Facts::new(env.clone()), server.client(), env.clone(), config);
    let listening = dashboard.listen().await.unwrap();
    let browser = Browser::with_tls(listening.address(), &authority);
    let serving = env.spawn(async move { listening.serve(CancellationToken::new()).await.unwrap() });
    (browser, serving)
}

pub(crate) async fn token(client: &Client, name: &str) -> String {
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    let account = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let request = TokenRequest { spec: Some(TokenRequestSpec::default()), ..TokenRequest::default() };
    let request = accounts.create_token_request(name, &PostParams::default(), &request).await.unwrap();
    request.status.unwrap().token.unwrap()
}

async fn allow(client: &Client, name: &str, rules: serde_json::Value) {
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let role = serde_json::from_value(json!({"metadata": {"name": name}, "rules": rules})).unwrap();
    roles.create(&PostParams::default(), &role).await.unwrap();
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let binding = serde_json::from_value(json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
    }));
    bindings.create(&PostParams::default(), &binding.unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_stranger_is_refused_and_who_may_see_it_is_not() {
    let server = ApiServer::builder().authorization(Authorization::Rbac).build();
    let client = server.client();
    let (viewer, other) = (token(&client, "viewer").await, token(&client, "other").await);
    allow(&client, "viewer", json!([{"nonResourceURLs": ["/dashboard"], "verbs": ["get"]}])).await;
    let (browser, _serving) = serve(&server).await;
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let check = async |headers: &str, code: u16| {
        for path in ["/api/state", "/api/findings", "/app.js", "/"] {
            let answer = browser.ask("GET", path, headers, "").await;
            assert_eq!(answer.code, code, "{path}: {}", answer.body);
            assert!(code == 200 || !answer.body.contains("queues"), "{path} tells a stranger something");
        }
    };
    check("", 401).await;
    check(&bearer("not-a-token"), 401).await;
    check(&bearer(&other), 403).await;
    check(&bearer(&viewer), 200).await;
    assert!(browser.get("/").await.body.contains("Bearer token"), "a browser is asked for a token");
    assert_eq!(browser.get("/style.css").await.code, 200, "which that page needs");
    // The page may be seen, but pods may not be read.
    let pods = browser.ask("GET", "/api/objects?resource=pods", &bearer(&viewer), "").await;
    assert_eq!(pods.code, 403, "{}", pods.body);
}

#[tokio::test]
async fn a_token_in_the_form_becomes_a_cookie_that_scripts_cannot_read() {
    let server = ApiServer::builder().authorization(Authorization::Rbac).build();
    let client = server.client();
    let viewer = token(&client, "viewer").await;
    allow(&client, "viewer", json!([{"nonResourceURLs": ["/dashboard"], "verbs": ["get"]}])).await;
    let (browser, _serving) = serve(&server).await;
    let own =
        format!("Origin: https://{}\r\nContent-Type: application/x-www-form-urlencoded\r\n", browser.host());
    let foreign = own.replace("https://", "https://evil.example/?");
    assert_eq!(browser.ask("POST", "/login", &foreign, &format!("token={viewer}")).await.code, 403);
    assert_eq!(browser.ask("POST", "/login", &own, "token=wrong").await.code, 401);
    let answer = browser.ask("POST", "/login", &own, &format!("token={viewer}")).await;
    assert_eq!((answer.code, answer.header("location")), (303, Some("/")));
    let cookie = answer.header("set-cookie").unwrap();
    for part in ["__Host-", "Secure", "HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains(&viewer), "the token itself does not travel");
    let session = cookie.split(';').next().unwrap();
    assert_eq!(browser.ask("GET", "/api/state", &format!("Cookie: a=b; {session}\r\n"), "").await.code, 200);
    assert_eq!(browser.ask("GET", "/api/state", "Cookie: __Host-setpoint=guess\r\n", "").await.code, 401);
}

#[tokio::test]
async fn without_a_certificate_nobody_listens_where_others_can_reach_it() {
    let (env, server) = (Env::system(), ApiServer::builder().build());
    let config = DashboardConfig::default().listen("0.0.0.0:0".parse().unwrap());
    let dashboard = Dashboard::new(&Facts::new(env.clone()), server.client(), env, config);
    let refused = dashboard.listen().await.unwrap_err();
    assert!(matches!(refused, DashboardError::NoCertificate(_)), "{refused}");
}
