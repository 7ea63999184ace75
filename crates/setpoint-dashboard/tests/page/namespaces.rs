//! A process that may read one namespace, and viewers who may.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::Client;
use kube::api::{Api, PostParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use setpoint::webhook::Certificates;
use setpoint::{Facts, SharedInformerFactory};
use setpoint_apiserver::{ApiServer, Authorization, User};
use setpoint_dashboard::{Dashboard, DashboardConfig};
use setpoint_env::{Env, Task};
use tokio_util::sync::CancellationToken;

use crate::browser::Browser;
use crate::strangers::token;

fn new<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

/// Lets the service account `default/name` do this, in one namespace or everywhere.
async fn allow(client: &Client, name: &str, namespace: Option<&str>, rules: Value) {
    let params = PostParams::default();
    let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
    let role = json!({"metadata": {"name": name}, "rules": rules});
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
    });
    match namespace {
        Some(namespace) => {
            let roles: Api<Role> = Api::namespaced(client.clone(), namespace);
            roles.create(&params, &new(role)).await.unwrap();
            let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), namespace);
            bindings.create(&params, &new(binding)).await.unwrap();
        }
        None => {
            let roles: Api<ClusterRole> = Api::all(client.clone());
            roles.create(&params, &new(role)).await.unwrap();
            let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
            bindings.create(&params, &new(binding)).await.unwrap();
        }
    }
}

/// A process that may read ConfigMaps of the namespace `team` alone, and caches them; with its page.
struct Team {
    server: ApiServer,
    browser: Browser,
    _factory: SharedInformerFactory,
    _serving: Task<()>,
}

async fn team(is_local: bool) -> Team {
    let (env, server) = (Env::system(), ApiServer::builder().authorization(Authorization::Rbac).build());
    let admin = server.client();
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    for namespace in ["team", "others"] {
        let object = new(json!({"metadata": {"name": namespace}}));
        namespaces.create(&PostParams::default(), &object).await.unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), namespace);
        let map = new(json!({"metadata": {"name": format!("of-{namespace}")}}));
        maps.create(&PostParams::default(), &map).await.unwrap();
    }
    let read = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}]);
    allow(&admin, "controller", Some("team"), read).await;
    allow(&admin, "controller", None, json!([
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
    ]))
    .await;
    let client = server.client_as(User::service_account("default", "controller"));
    let facts = Facts::new(env.clone());
    let factory = SharedInformerFactory::new(client.clone()).with_facts(&facts).namespace("team");
    factory.informer::<ConfigMap>();
    factory.start();
    factory.wait_for_cache_sync(Duration::from_secs(60)).await.unwrap();
    let (certificates, authority) = Certificates::self_signed(["127.0.0.1"]).unwrap();
    let config = match is_local {
        true => DashboardConfig::default().listen("127.0.0.1:0".parse().unwrap()),
        false => DashboardConfig::default().listen("0.0.0.0:0".parse().unwrap()).certificates(certificates),
    };
    let listening = Dashboard::new(&facts, client, env.clone(), config).listen().await.unwrap();
    let browser = match is_local {
        true => Browser::new(listening.address()),
        false => Browser::with_tls(listening.address(), &authority),
    };
    let serving = env.spawn(async move { listening.serve(CancellationToken::new()).await.unwrap() });
    Team { server, browser, _factory: factory, _serving: serving }
}

fn keys(window: &Value) -> Vec<&str> {
    window["rows"].as_array().unwrap().iter().map(|row| row["key"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn objects_are_those_of_the_namespaces_that_the_process_caches_and_may_read() {
    let team = team(true).await;
    let kinds = team.browser.get("/api/kinds").await.json();
    let maps = &kinds["kinds"][0];
    assert_eq!(
        (&maps["resource"], &maps["hasSynced"], &maps["trouble"]),
        (&json!("configmaps"), &json!(true), &Value::Null)
    );
    assert_eq!((&maps["namespaces"], &maps["objects"]), (&json!(["team"]), &json!(1)), "{kinds}");
    let window = team.browser.get("/api/objects?resource=configmaps").await.json();
    assert_eq!((keys(&window), &window["total"]), (vec!["team/of-team"], &json!(1)));
    let others = team.browser.get("/api/objects?resource=configmaps&namespace=others").await.json();
    assert_eq!(keys(&others), [""; 0]);
    let tree = team.browser.get("/api/tree?resource=configmaps&key=team%2Fof-team").await.json();
    assert_eq!(tree["nodes"][0]["key"], "team/of-team");
}

#[tokio::test]
async fn viewers_see_the_objects_of_the_namespaces_that_they_may_list() {
    let team = team(false).await;
    let admin = team.server.client();
    let page = json!([{"nonResourceURLs": ["/dashboard"], "verbs": ["get"]}]);
    let read = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
    let check = async |name: &str, may_read_in: Option<&str>, expected: [u16; 3]| {
        let token = token(&admin, name).await;
        allow(&admin, name, None, page.clone()).await;
        if let Some(namespace) = may_read_in {
            allow(&admin, name, Some(namespace), read.clone()).await;
        }
        let bearer = format!("Authorization: Bearer {token}\r\n");
        for (namespace, code) in ["", "team", "others"].into_iter().zip(expected) {
            let path = format!("/api/objects?resource=configmaps&namespace={namespace}");
            let answer = team.browser.ask("GET", &path, &bearer, "").await;
            assert_eq!(answer.code, code, "{name} asks for {namespace:?}: {}", answer.body);
        }
    };
    check("of-team", Some("team"), [200, 200, 403]).await;
    check("of-others", Some("others"), [403, 403, 200]).await;
    check("of-none", None, [403, 403, 403]).await;
}
