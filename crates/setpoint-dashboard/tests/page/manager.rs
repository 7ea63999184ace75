//! A manager that shows itself.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use setpoint::{Action, Context, Controller, Manager, ObjectKey, ReconcileError};
use setpoint_apiserver::ApiServer;
use setpoint_dashboard::{DashboardConfig, ManagerExt};
use setpoint_env::Env;

use crate::browser::Browser;

/// Writes into its object at each reconcile, which causes the next one.
async fn stamp(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    if cx.lister::<ConfigMap>()?.get(&key).is_some_and(|map| map.data.is_some()) {
        let maps: Api<ConfigMap> = Api::default_namespaced(cx.client());
        let last = json!({"data": {"last": cx.reconcile_id().to_string()}});
        let params = PatchParams { field_manager: Some("stamper".into()), ..PatchParams::default() };
        maps.patch(key.name(), &params, &Patch::Merge(last)).await?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(Action::done())
}

#[tokio::test]
async fn a_manager_shows_its_loop_names_what_is_wrong_and_stops_in_time() {
    let server = ApiServer::builder().build();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let map = serde_json::from_value(json!({"metadata": {"name": "web"}, "data": {"last": "0"}})).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    // The port of a manager's page cannot be asked for, so it is chosen here.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let manager = Manager::new(server.client())
        .controller(Controller::of::<ConfigMap>(.., "stamp", stamp).workers(3))
        .dashboard(DashboardConfig::default().listen(free));
    let shutdown = manager.shutdown().clone();
    let running = Env::system().spawn(manager.run());
    let browser = Browser::new(free);
    while tokio::net::TcpStream::connect(free).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut found = json!(null);
    for _ in 0..500 {
        let findings = browser.get("/api/findings").await.json();
        if let Some(finding) = findings["findings"].as_array().unwrap().iter().find(|it| it["kind"] == "loop")
        {
            found = finding.clone();
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!((&found["controller"], &found["key"]), (&json!("stamp"), &json!("default/web")), "{found}");
    assert_eq!((&found["fields"], &found["writer"]), (&json!(["data.last"]), &json!("stamper")), "{found}");
    assert_eq!(
        (&found["resource"], &found["object"]),
        (&json!("configmaps"), &json!("default/web")),
        "{found}"
    );
    let state = browser.get("/api/state").await.json();
    assert_eq!(state["controllers"], json!([{"controller": "stamp", "workers": 3}]));
    assert_eq!(state["caches"][0]["handlers"][0]["handler"], "stamp");
    let mut events = browser.events("/api/stream", "").await;
    events.of("state").await;
    shutdown.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(10), running).await;
    ended.expect("an open page does not hold it up").unwrap().unwrap();
}
