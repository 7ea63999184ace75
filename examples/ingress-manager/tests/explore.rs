//! The ingress manager, with every fault at every point.

use example_ingress_manager::{ANNOTATION, Settings, controller};
use k8s_openapi::api::core::v1::Service;
use serde_json::json;
use setpoint::Manager;
use setpoint_sim::{Scenario, World, explore};

fn service(wants_ingress: bool, port: u16) -> Service {
    let metadata = json!({"name": "web", "namespace": "default", "annotations": {ANNOTATION: wants_ingress.to_string()}});
    let spec = json!({"selector": {"app": "web"}, "ports": [{"port": port}]});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a Service")
}

fn scenario(_: &World) -> Scenario {
    Scenario::new()
        .controller("ingress-manager", |seat| {
            Manager::with(seat.runtime()).controller(controller(Settings::default())).run()
        })
        .apply(&service(false, 80))
        .apply(&service(true, 80))
        .apply(&service(true, 81))
        .apply(&service(false, 81))
        .apply(&service(true, 80))
        .delete(&service(true, 80))
}

#[test]
fn no_fault_breaks_it() {
    explore(scenario);
}
