//! Every fault at every point: crashes between two writes, lost answers, stale caches, and more. What is found comes with
//! both timelines and a test to paste.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use new_operator::{api, controller};
use setpoint::Manager;
use setpoint_sim::{Scenario, World, explore};

/// What a user does. Add the steps that matter to you: `apply` with another spec is a change, `delete` a deletion. A change that
/// follows directly is also reverted, and made at once.
fn scenario(_: &World) -> Scenario {
    let crd = include_str!("../config/crd/shops.shop.example.org.yaml");
    let crd: CustomResourceDefinition = serde_saphyr::from_str(crd).unwrap();
    let mut object: api::Shop =
        serde_saphyr::from_str(include_str!("../config/samples/shop.yaml")).unwrap();
    object.metadata.namespace = Some("default".to_owned());
    let mut changed = object.clone();
    changed.spec.message = "something else".to_owned();
    Scenario::new()
        .given(&crd)
        .controller("new-operator", |seat| {
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
