//! Controllers that do not come to rest, and those that do.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use setpoint::{Action, Context, Controller, Manager, ObjectKey, ReconcileError};
use setpoint_sim::{Exploration, Explorer, Oracle, Scenario, Seat, World};

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

fn unrest(exploration: &Exploration) -> &[String] {
    let finding = exploration.findings.first().expect("a finding");
    assert!(finding.faults.is_empty(), "{:?}", finding.faults);
    let violation = finding.violations.iter().find(|violation| violation.oracle == Oracle::Rest);
    &violation.unwrap_or_else(|| panic!("{}", finding.report)).why
}

#[test]
fn a_controller_that_triggers_itself_is_stopped_and_named() {
    let exploration = Explorer::new("stamp", stamps).run();
    let why = unrest(&exploration);
    let wanted = "stamp sends PATCH /api/v1/namespaces/default/configmaps/a ";
    assert!(why[0].starts_with(wanted) && why[0].contains("without waiting"), "{why:?}");
}
