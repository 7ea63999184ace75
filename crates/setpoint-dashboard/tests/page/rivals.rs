//! Two writers of one field.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use setpoint::{Action, Context, Controller, Manager, ObjectKey, ReconcileError};
use setpoint_apiserver::ApiServer;
use setpoint_dashboard::{DashboardConfig, ManagerExt};
use setpoint_env::Env;

use crate::browser::Browser;

fn mode(mode: &str) -> Patch<serde_json::Value> {
    Patch::Merge(json!({"data": {"mode": mode}}))
}

fn manager(name: &str) -> PatchParams {
    PatchParams { field_manager: Some(name.into()), ..PatchParams::default() }
}

/// Wants its mode on.
async fn keep(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let map = cx.lister::<ConfigMap>()?.get(&key);
    let is_on = |map: &ConfigMap| map.data.as_ref().is_some_and(|data| data["mode"] == "on");
    if map.is_some_and(|map| !is_on(&map)) {
        let maps: Api<ConfigMap> = Api::default_namespaced(cx.client());
        maps.patch(key.name(), &manager("keeper"), &mode("on")).await?;
    }
    Ok(Action::done())
}

#[tokio::test]
async fn two_writers_that_undo_each_other_are_named_with_the_field_though_the_cache_knows_no_managers() {
    let server = ApiServer::builder().build();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let map = serde_json::from_value(json!({"metadata": {"name": "web"}, "data": {"mode": "on"}})).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let controllers = Manager::new(server.client())
        .controller(Controller::of::<ConfigMap>(.., "keeper", keep))
        .dashboard(DashboardConfig::default().listen(free));
    let shutdown = controllers.shutdown().clone();
    let running = Env::system().spawn(controllers.run());
    let browser = Browser::new(free);
    while tokio::net::TcpStream::connect(free).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut found = json!(null);
    for _ in 0..1000 {
        maps.patch("web", &manager("rival"), &mode("off")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        let findings = browser.get("/api/findings").await.json();
        let all = findings["findings"].as_array().unwrap();
        found = all.iter().find(|it| it["kind"] == "pingPong").cloned().unwrap_or_default();
        if found["others"].as_array().is_some_and(|others| !others.is_empty()) {
            break;
        }
    }
    assert_eq!((&found["fields"], &found["writer"]), (&json!(["data.mode"]), &json!("keeper")), "{found}");
    assert_eq!(found["others"], json!(["rival"]), "{found}");
    assert_eq!((&found["object"], &found["resource"]), (&json!("default/web"), &json!("configmaps")));
    assert!(found["times"].as_u64().unwrap() >= 3, "{found}");
    shutdown.cancel();
    running.await.unwrap().unwrap();
}
