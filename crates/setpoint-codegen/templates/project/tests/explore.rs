//! Every fault at every point: crashes between two writes, lost answers, stale caches, and more. What is found comes with
//! both timelines and a test to paste.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use setpoint::Manager;
use setpoint_sim::{Scenario, World, explore};
use widget_operator::{api, controller};

/// What a user does. Add the steps that matter to you: `apply` with another spec is a change, `delete` a deletion. A change that
/// follows directly is also reverted, and made at once.
fn scenario(_: &World) -> Scenario {
    let crd = include_str!("../config/crd/widgets.acme.example.yaml");
    let crd: CustomResourceDefinition = serde_saphyr::from_str(crd).unwrap();
{% if cluster_scoped %}
    let object: api::Widget = serde_saphyr::from_str(include_str!("../config/samples/widget.yaml")).unwrap();
{% else %}
    let mut object: api::Widget = serde_saphyr::from_str(include_str!("../config/samples/widget.yaml")).unwrap();
    object.metadata.namespace = Some("default".to_owned());
{% endif %}
{% if plain %}
    let mut changed = object.clone();
    changed.spec.message = "something else".to_owned();
{% elif change %}
    let mut changed = serde_json::to_value(&object).unwrap();
    changed["spec"][{{ change.field }}] = serde_json::json!({{ change.value }});
    let changed: api::Widget = serde_json::from_value(changed).unwrap();
{% endif %}
    Scenario::new()
        .given(&crd)
        .controller("widget-operator", |seat| Manager::with(seat.runtime()).controller(controller()).run())
        .apply(&object)
{% if plain or change %}
        .apply(&changed)
{% endif %}
        .delete(&object)
        .apply(&object)
}

#[test]
fn no_fault_breaks_it() {
    explore(scenario);
}
