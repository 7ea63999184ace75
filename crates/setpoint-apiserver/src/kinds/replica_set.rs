//! Replica sets, and what deployments share with them.

use serde_json::Value;

use super::at::At;
use super::fill::{default as set, part_or_new};
use super::pod::template;
use super::workload;
use crate::strategy::Part;

pub(super) fn default(set_of_pods: &mut Value) {
    let Some(fields) = set_of_pods.as_object_mut() else { return };
    let spec = part_or_new(fields, "spec");
    set(spec, "replicas", 1);
    template::default_in(spec);
}

pub(super) fn validate(set_of_pods: &At, old: Option<&Value>, part: Part) {
    if part == Part::Status {
        return workload::validate_status(set_of_pods, old);
    }
    let spec = set_of_pods.field("spec");
    spec.field("replicas").non_negative();
    spec.field("minReadySeconds").non_negative();
    selector_and_template(&spec);
    if let Some(old) = old {
        spec.field("selector").immutable(&old["spec"]["selector"]);
    }
}

/// There is a selector, it says something, and it takes the pods that the template makes.
pub(super) fn selector_and_template(spec: &At) {
    let (selector, template) = (spec.field("selector"), spec.field("template"));
    if !selector.exists() {
        selector.required("");
    } else {
        selector.label_selector();
        if selector.selects_all() {
            selector.invalid("empty selector is invalid for deployment");
        }
    }
    match selector.selects(template::labels(&template)) {
        None => selector.invalid("invalid label selector"),
        Some(selects) => {
            let says_something = !selector.exists() || !selector.selects_all();
            if !selects && says_something {
                workload::does_not_match(&template);
            }
            template::validate(&template);
            template::keeps_running(&template, "ReplicaSet");
        }
    }
}
