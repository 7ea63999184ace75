//! Disruption budgets, priority classes, leases and storage classes: kinds with few rules.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::at::{At, same};
use super::fill::default as set;
use crate::field_error::Shown;
use crate::metadata::names;
use crate::strategy::Part;

pub(super) fn validate_disruption_budget(budget: &At, part: Part) {
    if part == Part::Status {
        let status = budget.field("status");
        for count in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
            status.field(count).non_negative();
        }
        return;
    }
    let spec = budget.field("spec");
    let bounds = ["minAvailable", "maxUnavailable"].map(|name| spec.field(name));
    if bounds.iter().all(At::exists) {
        spec.invalid_as(budget_in_go(&spec), "minAvailable and maxUnavailable cannot be both set");
    }
    for bound in bounds.iter().filter(|bound| bound.exists()) {
        bound.number_or_percent();
        bound.at_most_100_percent();
    }
    spec.field("selector").label_selector();
    spec.field("unhealthyPodEvictionPolicy").one_of_if_set(&["AlwaysAllow", "IfHealthyBudget"]);
}

fn budget_in_go(spec: &At) -> Shown {
    let field = |name: &str| spec.field(name).value().to_string();
    Shown::Raw(format!(
        "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
        field("minAvailable"),
        field("selector"),
        field("maxUnavailable"),
        field("unhealthyPodEvictionPolicy")
    ))
}

const HIGHEST_OF_USERS: i64 = 1_000_000_000;
/// Classes that the server makes itself, and their values.
pub(crate) const SYSTEM_CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
];

pub(super) fn default_priority_class(class: &mut Value) {
    if let Some(fields) = class.as_object_mut() {
        set(fields, "preemptionPolicy", "PreemptLowerPriority");
    }
}

pub(super) fn validate_priority_class(class: &At, old: Option<&Value>) {
    let (value, policy) = (class.field("value"), class.field("preemptionPolicy"));
    if let Some(old) = old {
        if value.number() != old["value"].as_i64() {
            value.forbidden("may not be changed in an update.");
        }
        return policy.immutable(&old["preemptionPolicy"]);
    }
    let metadata = class.field("metadata");
    let name = metadata.field("name");
    if name.text().starts_with("system-") {
        if let Some(error) = unknown_system_class(class, name.text()) {
            name.forbidden(format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {error}"
            ));
        }
    } else if value.number().unwrap_or(0) > HIGHEST_OF_USERS {
        value.forbidden(format!("maximum allowed value of a user defined priority is {HIGHEST_OF_USERS}"));
    }
    if policy.exists() {
        policy.one_of(&["PreemptLowerPriority", "Never"]);
    }
}

fn unknown_system_class(class: &At, name: &str) -> Option<String> {
    let Some((_, value, _)) = SYSTEM_CLASSES.iter().find(|(known, ..)| *known == name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if class.field("value").number() != Some(*value) {
        return Some(format!("value of {name} PriorityClass must be {value}"));
    }
    class
        .field("globalDefault")
        .is_true()
        .then(|| format!("globalDefault of {name} PriorityClass must be false"))
}

pub(super) fn validate_lease(lease: &At) {
    let spec = lease.field("spec");
    let duration = spec.field("leaseDurationSeconds");
    if duration.number().is_some_and(|seconds| seconds <= 0) {
        duration.invalid("must be greater than 0");
    }
    spec.field("leaseTransitions").non_negative();
}

/// Coordinated leader election is not on by default: its fields are dropped.
pub(super) fn prepare_lease(lease: &mut Value) {
    if let Some(spec) = lease.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("strategy");
        spec.remove("preferredHolder");
    }
}

pub(super) fn default_storage_class(class: &mut Value) {
    if let Some(fields) = class.as_object_mut() {
        set(fields, "reclaimPolicy", "Delete");
        set(fields, "volumeBindingMode", "Immediate");
    }
}

pub(super) fn validate_storage_class(class: &At, old: Option<&Value>) {
    if let Some(old) = old {
        for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            class.field(field).immutable_hidden(&old[field]);
        }
        return;
    }
    let provisioner = class.field("provisioner");
    if provisioner.has_text() {
        let name = provisioner.text().to_lowercase();
        for problem in names::label_key(&name) {
            provisioner.invalid_as(name.as_str(), problem);
        }
    }
    let parameters = class.field("parameters");
    if parameters.len() > 512 {
        parameters.too_long(512);
    } else {
        let entries = parameters.value().as_object().into_iter().flat_map(Map::iter);
        let size: usize = entries.map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
        if parameters.field("").exists() {
            parameters.invalid_as("", "field can not be empty.");
        }
        if size > 256 * 1024 {
            parameters.too_long(256 * 1024);
        }
    }
    if !class.field("reclaimPolicy").is_empty() {
        class.field("reclaimPolicy").one_of_if_set(&["Delete", "Retain"]);
    }
    class.field("volumeBindingMode").one_of_if_set(&["Immediate", "WaitForFirstConsumer"]);
    let mut seen: Vec<&Value> = vec![&Value::Null];
    for term in class.field("allowedTopologies").items() {
        let expressions = term.field("matchLabelExpressions");
        topology(&expressions);
        if seen.iter().any(|before| same(before, expressions.value())) {
            expressions.duplicate_as("");
        }
        seen.push(expressions.value());
    }
}

fn topology(expressions: &At) {
    let mut keys = BTreeSet::new();
    for expression in expressions.items() {
        let values = expression.field("values");
        if values.is_empty() {
            values.required("");
        }
        let mut seen = BTreeSet::new();
        values.items().filter(|value| !seen.insert(value.text())).for_each(|value| value.duplicate());
        expression.field("key").has_form(names::label_key);
        if !keys.insert(expression.field("key").text()) {
            expression.field("key").duplicate();
        }
    }
}
