//! What keeps a pod from nodes, and how pods spread over them.

use std::collections::BTreeSet;

use super::super::at::{At, items};
use super::affinity;
use crate::metadata::names;

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(in crate::kinds) fn taint_effect(effect: &At) {
    effect.one_of(&EFFECTS);
}

pub(super) fn gates(gates: &At) {
    let mut seen = BTreeSet::new();
    for gate in gates.items() {
        let name = gate.field("name").text();
        for problem in names::label_key(name) {
            gate.invalid_as(name, problem);
        }
        if !seen.insert(name) {
            gate.duplicate_as(name);
        }
    }
}

pub(super) fn tolerations(tolerations: &At) {
    for toleration in tolerations.items() {
        let [key, operator, value, effect] =
            ["key", "operator", "value", "effect"].map(|name| toleration.field(name));
        key.has_form_if_set(names::label_key);
        if key.is_empty() && operator.text() != "Exists" {
            operator.invalid_text(
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            );
        }
        if toleration.field("tolerationSeconds").exists() && effect.text() != "NoExecute" {
            effect.invalid_text("effect must be 'NoExecute' when `tolerationSeconds` is set");
        }
        match operator.text() {
            "Equal" | "" => {
                let problems = names::label_value(value.text());
                if !problems.is_empty() {
                    operator.invalid_as(value.text(), problems.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                operator.invalid_as(value.text(), "value must be empty when `operator` is 'Exists'");
            }
            "Exists" => {}
            "Lt" | "Gt" => operator.not_supported(&["Equal", "Exists", "Lt", "Gt"]),
            _ => operator.not_supported(&["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            effect.one_of_if_set(&EFFECTS);
        }
    }
}

pub(super) fn spread_constraints(constraints: &At) {
    const ACTIONS: [&str; 2] = ["DoNotSchedule", "ScheduleAnyway"];
    let pair = |constraint: &serde_json::Value| {
        (constraint["topologyKey"].clone(), constraint["whenUnsatisfiable"].clone())
    };
    for (index, constraint) in constraints.items().enumerate() {
        constraint.field("maxSkew").positive();
        let (key, action) = (constraint.field("topologyKey"), constraint.field("whenUnsatisfiable"));
        if key.is_empty() {
            key.required("can not be empty");
        }
        if !ACTIONS.contains(&action.text()) {
            action.not_supported(&ACTIONS);
        }
        let rest = &items(constraints.value())[index + 1..];
        if rest.iter().any(|other| pair(other) == pair(constraint.value())) {
            let shown = format!("{{{}, {}}}", key.text(), action.text());
            constraint.alias("{topologyKey, whenUnsatisfiable}").duplicate_as(shown);
        }
        let domains = constraint.field("minDomains");
        if domains.exists() {
            domains.positive();
            if action.text() != "DoNotSchedule" {
                let detail = format!(
                    "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}",
                    action.text()
                );
                domains.invalid(detail);
            }
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            constraint.field(policy).one_of_if_set(&["Honor", "Ignore"]);
        }
        affinity::label_keys(&constraint, &constraint.field("mismatchLabelKeys"));
        constraint.field("labelSelector").label_selector();
    }
}
