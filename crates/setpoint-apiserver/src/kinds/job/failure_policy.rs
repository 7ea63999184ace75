//! What a job does when a pod of it fails.

use std::collections::BTreeSet;

use super::super::at::{At, items};
use crate::metadata::names;

const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];

pub(super) fn validate(spec: &At) {
    let policy = spec.field("podFailurePolicy");
    if !policy.exists() {
        return;
    }
    let rules = policy.field("rules");
    if rules.len() > 20 {
        rules.too_many(20);
    }
    let pod = &spec.value()["template"]["spec"];
    let containers = items(&pod["containers"]).iter().chain(items(&pod["initContainers"]));
    let names: BTreeSet<&str> = containers.filter_map(|container| container["name"].as_str()).collect();
    for rule in rules.items() {
        action(&rule.field("action"), spec.field("backoffLimitPerIndex").exists());
        let (codes, conditions) = (rule.field("onExitCodes"), rule.field("onPodConditions"));
        if codes.exists() {
            exit_codes(&codes, &names);
        }
        pod_conditions(&conditions);
        match (codes.exists(), !conditions.is_empty()) {
            (true, true) => {
                rule.invalid_hidden("specifying both OnExitCodes and OnPodConditions is not supported");
            }
            (false, false) => {
                rule.invalid_hidden("specifying one of OnExitCodes and OnPodConditions is required");
            }
            _ => {}
        }
    }
}

fn action(action: &At, per_index: bool) {
    match action.text() {
        "" => action.required("valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]"),
        "FailIndex" if !per_index => action.invalid("requires the backoffLimitPerIndex to be set"),
        _ => action.one_of_if_set(&ACTIONS),
    }
}

fn pod_conditions(conditions: &At) {
    if conditions.len() > 20 {
        conditions.too_many(20);
    }
    for pattern in conditions.items() {
        pattern.field("type").has_form(names::label_key);
        let status = pattern.field("status");
        if status.is_empty() {
            status.required("valid values: [\"False\" \"True\" \"Unknown\"]");
        } else {
            status.one_of_if_set(&["False", "True", "Unknown"]);
        }
    }
}

fn exit_codes(codes: &At, names: &BTreeSet<&str>) {
    let operator = codes.field("operator");
    if operator.is_empty() {
        operator.required("valid values: [\"In\" \"NotIn\"]");
    } else {
        operator.one_of_if_set(&["In", "NotIn"]);
    }
    let container = codes.field("containerName");
    if container.exists() && !names.contains(container.text()) {
        container.invalid("must be one of the container or initContainer names in the pod template");
    }
    let values = codes.field("values");
    if values.is_empty() {
        values.invalid("at least one value is required");
    } else if values.len() > 255 {
        values.too_many(255);
    }
    let mut seen = BTreeSet::new();
    let mut before = None;
    let mut ordered = true;
    for value in values.items() {
        if operator.text() == "In" && value.number() == Some(0) {
            value.invalid("must not be 0 for the In operator");
        }
        if !seen.insert(value.number()) {
            value.duplicate();
        }
        ordered &= before <= value.number();
        before = value.number();
    }
    if !ordered {
        values.invalid("must be ordered");
    }
}
