//! The greeting controller, with every fault at every point.

use example_first_controller::{ANNOTATION, controller};
use k8s_openapi::api::core::v1::Namespace;
use serde_json::json;
use setpoint::Manager;
use setpoint_sim::{Scenario, World, explore};

fn namespace(greeting: &str) -> Namespace {
    let metadata = json!({"name": "team", "annotations": {ANNOTATION: greeting}});
    serde_json::from_value(json!({"metadata": metadata})).expect("a namespace")
}

fn scenario(_: &World) -> Scenario {
    Scenario::new()
        .controller("greeting", |seat| Manager::with(seat.runtime()).controller(controller()).run())
        .apply(&namespace("hello"))
        .apply(&namespace("good morning"))
}

#[test]
fn no_fault_breaks_it() {
    explore(scenario);
}
