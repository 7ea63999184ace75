//! Controllers that do not come to rest, and statuses that are about an old generation in the end.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use setpoint::{Action, Context, Controller, Manager, ObjectKey, ReconcileError};
use setpoint_sim::{Exploration, Explorer, Oracle, Scenario, Seat, World, replay};
use tokio::time::sleep;

use crate::explore::map;

/// The controller of docs/why-was-it-reconciled.md: each of its writes is a reason to reconcile again.
async fn stamp(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    if cx.lister::<ConfigMap>()?.get(&key).is_some() {
        let maps: Api<ConfigMap> = Api::default_namespaced(cx.client());
        let last = json!({"data": {"lastReconcile": cx.reconcile_id().to_string()}});
        let params = PatchParams { field_manager: Some("stamp".into()), ..PatchParams::default() };
        maps.patch(key.name(), &params, &Patch::Merge(last)).await?;
    }
    Ok(Action::done())
}

fn stamps(_: &World) -> Scenario {
    Scenario::new()
        .controller("stamp", |seat: Seat| {
            let stamp = |key: ObjectKey, cx: Context| async move {
                if key.name() == "a" { stamp(key, cx).await } else { Ok(Action::done()) }
            };
            Manager::with(seat.runtime()).controller(Controller::of::<ConfigMap>(.., "stamp", stamp)).run()
        })
        .requests_at_once(300)
        .apply(&map("a"))
}

/// Why an oracle is not satisfied without any fault.
fn why(exploration: &Exploration, oracle: Oracle) -> &[String] {
    let finding = exploration.findings.first().expect("a finding");
    assert!(finding.faults.is_empty(), "{:?}", finding.faults);
    let violation = finding.violations.iter().find(|violation| violation.oracle == oracle);
    &violation.unwrap_or_else(|| panic!("{}", finding.report)).why
}

#[test]
fn a_controller_that_triggers_itself_is_stopped_and_named() {
    let exploration = Explorer::new("stamp", stamps).run();
    let why = why(&exploration, Oracle::Rest);
    let wanted = "stamp sends PATCH /api/v1/namespaces/default/configmaps/a ";
    assert!(why[0].starts_with(wanted) && why[0].contains("without waiting"), "{why:?}");
}

/// Writes the time every four seconds, and nothing else: two runs of it are equal when they are compared.
async fn tick(seat: Seat) -> kube::Result<()> {
    let maps: Api<ConfigMap> = Api::default_namespaced(seat.client());
    loop {
        if maps.get_opt("a").await?.is_some() {
            let now = json!({"data": {"at": seat.env().now().to_string()}});
            maps.patch("a", &PatchParams::default(), &Patch::Merge(now)).await?;
        }
        sleep(Duration::from_secs(4)).await;
    }
}

#[test]
fn who_writes_only_times_does_not_rest_unless_it_runs_beside() {
    let ticks = |_: &World| Scenario::new().controller("tick", tick).apply(&map("a"));
    let exploration = Explorer::new("tick", ticks).run();
    assert_eq!(why(&exploration, Oracle::Rest), ["tick Updated configmaps/default/a, 30 times"]);
    replay(|_| Scenario::new().beside("tick", tick).apply(&map("a")), []);
}

fn deployment(replicas: u32) -> Deployment {
    let labels = json!({"app": "a"});
    let template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a"}]}});
    let spec = json!({"replicas": replicas, "selector": {"matchLabels": labels}, "template": template});
    let object = json!({"metadata": {"name": "a", "namespace": "default"}, "spec": spec});
    serde_json::from_value(object).expect("a Deployment")
}

/// Says once which generation it has seen, and never again.
async fn observe_once(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(deployment) = cx.lister::<Deployment>()?.get(&key) else { return Ok(Action::done()) };
    if deployment.status.as_ref().is_none_or(|status| status.observed_generation.is_none()) {
        let status = json!({"status": {"observedGeneration": deployment.metadata.generation}});
        let deployments: Api<Deployment> = Api::default_namespaced(cx.client());
        deployments.patch_status(key.name(), &PatchParams::default(), &Patch::Merge(status)).await?;
    }
    Ok(Action::done())
}

#[test]
fn a_status_about_an_old_generation_is_found_though_it_is_the_same_in_every_run() {
    let scenario = |_: &World| {
        Scenario::new()
            .controller("observe", |seat| {
                let controller = Controller::of::<Deployment>(.., "observe", observe_once);
                Manager::with(seat.runtime()).controller(controller).run()
            })
            .apply(&deployment(1))
            .apply(&deployment(2))
    };
    let exploration = Explorer::new("observe", scenario).run();
    let wanted = ["deployments.apps/default/a: observed 1 in the end, it is at 2"];
    assert_eq!(why(&exploration, Oracle::Generations), wanted);
}
