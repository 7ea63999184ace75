//! Replication controllers: the ancestors of replica sets, with a plain map for a selector.

use serde_json::Value;

use super::at::At;
use super::fill::{default as set, part, part_or_new};
use super::pod::template;
use super::workload;
use crate::strategy::Part;

pub(super) fn default(controller: &mut Value) {
    let labels = controller["spec"]["template"]["metadata"].get("labels").cloned();
    let Some(fields) = controller.as_object_mut() else { return };
    if let Some(labels) = labels {
        if fields["spec"].get("selector").and_then(Value::as_object).is_none_or(|map| map.is_empty()) {
            fields["spec"]["selector"] = labels.clone();
        }
        if part(fields, "metadata").is_some_and(|metadata| !metadata.contains_key("labels")) {
            fields["metadata"]["labels"] = labels;
        }
    }
    let spec = part_or_new(fields, "spec");
    set(spec, "replicas", 1);
    template::default_in(spec);
}

pub(super) fn validate(controller: &At, old: Option<&Value>, part: Part) {
    if part == Part::Status {
        return workload::validate_status(controller, old);
    }
    let spec = controller.field("spec");
    let (selector, template) = (spec.field("selector"), spec.field("template"));
    if selector.is_empty() {
        selector.required("");
    }
    if template.exists() {
        let labels = template::labels(&template);
        if selector.entries().any(|(key, value)| labels[key] != *value.value()) {
            workload::does_not_match(&template);
        }
        template::validate(&template);
        template::keeps_running(&template, "ReplicationController");
    } else {
        template.required("");
    }
    // These rules are younger than the others, and come last.
    spec.field("replicas").non_negative();
    spec.field("minReadySeconds").non_negative();
}
