//! Every fault at every point: crashes between two writes, lost answers, stale caches, and more. What is found comes with
//! both timelines and a test to paste.

use gizmo_operator::{api, controller};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use setpoint::Manager;
use setpoint_sim::{Scenario, World, explore};

/// What a user does. Add the steps that matter to you: `apply` with another spec is a change, `delete` a deletion. A change that
/// follows directly is also reverted, and made at once.
fn scenario(_: &World) -> Scenario {
    let crd = include_str!("../config/crd/gizmos.acme.org.yaml");
    let crd: CustomResourceDefinition = serde_saphyr::from_str(crd).unwrap();
    let object: api::Gizmo =
        serde_saphyr::from_str(include_str!("../config/samples/gizmo.yaml")).unwrap();
    let mut changed = serde_json::to_value(&object).unwrap();
    changed["spec"]["color"] = serde_json::json!("ab");
    let changed: api::Gizmo = serde_json::from_value(changed).unwrap();
    Scenario::new()
        .given(&crd)
        .controller("gizmo-operator", |seat| {
            Manager::with(seat.runtime()).controller(controller()).run()
        })
        .apply(&object)
        .apply(&changed)
        .delete(&object)
        .apply(&object)
}

#[test]
fn no_fault_breaks_it() {
    explore(scenario);
}
