//! What may change in the spec of a pod.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::at::{At, items, same};
use super::super::difference;

const CHANGEABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
                          `spec.tolerations` (only additions to existing tolerations),\
                          `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(super) fn validate(spec: &At, old: &Value) {
    for list in ["containers", "initContainers"] {
        let containers = spec.field(list);
        if containers.len() != items(&old[list]).len() {
            return containers.forbidden("pod updates may not add or remove containers");
        }
        for container in containers.items() {
            container.field("image").has_text();
            super::container::padded_image(&container);
        }
    }
    if !deadline(&spec.field("activeDeadlineSeconds"), &old["activeDeadlineSeconds"]) {
        return;
    }
    tolerations(&spec.field("tolerations"), items(&old["tolerations"]));
    gates(&spec.field("schedulingGates"), items(&old["schedulingGates"]));
    if same(spec.value(), old) {
        return;
    }
    let mut rest = spec.value().clone();
    let gated = !items(&old["schedulingGates"]).is_empty();
    if gated {
        node_choice(spec, old, &mut rest);
    }
    take_over(&mut rest, old);
    if !same(&rest, old) {
        let difference = difference::of(old, &rest);
        spec.forbidden(format!("pod updates may not change fields other than {CHANGEABLE}\n{difference}"));
    }
}

/// A deadline can come closer, but does not go. Whether it is fine so far.
fn deadline(deadline: &At, old: &Value) -> bool {
    match (deadline.number(), old.as_i64()) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            deadline.invalid("must be between 0 and 2147483647, inclusive");
            false
        }
        (Some(new), Some(old)) if old < new => {
            deadline.invalid("must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            deadline.invalid("must not update from a positive integer to nil value");
            true
        }
        _ => true,
    }
}

/// Tolerations are only added; their seconds may change.
fn tolerations(new: &At, old: &[Value]) {
    let without_seconds = |toleration: &Value| {
        let mut rest = toleration.clone();
        if let Some(fields) = rest.as_object_mut() {
            fields.remove("tolerationSeconds");
        }
        rest.to_string()
    };
    // A pod can have very many of them.
    let kept: BTreeSet<String> = items(new.value()).iter().map(without_seconds).collect();
    if old.iter().all(|old| kept.contains(&without_seconds(old))) {
        super::scheduling::tolerations(new);
    } else {
        new.forbidden("existing toleration can not be modified except its tolerationSeconds");
    }
}

fn gates(new: &At, old: &[Value]) {
    let names: BTreeSet<&str> = old.iter().filter_map(|old| old["name"].as_str()).collect();
    for gate in new.items() {
        let name = gate.field("name");
        if !names.contains(name.text()) {
            name.forbidden(format!(
                "only deletion is allowed, but found new scheduling gate '{}'",
                name.text()
            ));
        }
    }
}

/// A pod that waits at a gate can still be told more exactly where to run.
fn node_choice(spec: &At, old: &Value, rest: &mut Value) {
    let selector = spec.field("nodeSelector");
    let before = old["nodeSelector"].as_object();
    if before.into_iter().flatten().any(|(key, value)| selector.value()[key] != *value) {
        selector.invalid("only additions to spec.nodeSelector are allowed (no mutations or deletions)");
    }
    restore(rest, old, "nodeSelector");
    let affinity = spec.field("affinity");
    let nodes = affinity.field("nodeAffinity");
    if same(nodes.value(), &old["affinity"]["nodeAffinity"]) {
        return;
    }
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let required = nodes.field(REQUIRED);
    let terms = required.field("nodeSelectorTerms");
    let before = items(&old["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]);
    if !before.is_empty() && before.len() != terms.len() {
        terms.invalid("no additions/deletions to non-empty NodeSelectorTerms list are allowed");
    } else {
        for (term, before) in terms.items().zip(before) {
            if !only_adds(term.value(), before) {
                term.invalid("only additions are allowed (no mutations or deletions)");
            }
        }
    }
    match (old["affinity"].is_object(), rest["affinity"].as_object_mut()) {
        (false, Some(affinity)) => {
            affinity.remove("nodeAffinity");
            if affinity.is_empty() {
                restore(rest, old, "affinity");
            }
        }
        (true, _) => rest["affinity"]["nodeAffinity"] = old["affinity"]["nodeAffinity"].clone(),
        (false, None) => {}
    }
}

fn only_adds(new: &Value, old: &Value) -> bool {
    let lists = ["matchExpressions", "matchFields"];
    let empty = |term: &Value| lists.iter().all(|list| items(&term[*list]).is_empty());
    if empty(old) {
        return empty(new);
    }
    lists.iter().all(|list| items(&new[*list]).starts_with(items(&old[*list])))
}

/// Puts the old values where a change is fine, so that only what is not fine is left.
fn take_over(rest: &mut Value, old: &Value) {
    for list in ["containers", "initContainers"] {
        let Some(containers) = rest.get_mut(list).and_then(Value::as_array_mut) else { continue };
        for (container, old) in containers.iter_mut().zip(items(&old[list])) {
            container["image"] = old["image"].clone();
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        restore(rest, old, field);
    }
}

fn restore(rest: &mut Value, old: &Value, field: &str) {
    match old.get(field) {
        Some(value) => rest[field] = value.clone(),
        None => drop(rest.as_object_mut().and_then(|rest| rest.remove(field))),
    }
}

/// Containers to debug with can only be added.
pub(super) fn validate_ephemeral_containers(spec: &At, old: &Value) {
    let containers = spec.field("ephemeralContainers");
    let name_of = |container: &Value| container["name"].as_str().unwrap_or_default().to_owned();
    let new: BTreeMap<String, &Value> =
        items(containers.value()).iter().map(|container| (name_of(container), container)).collect();
    for old in items(&old["ephemeralContainers"]) {
        let name = name_of(old);
        match new.get(&name).copied() {
            None => {
                containers.forbidden(format!("existing ephemeral containers {name:?} may not be removed\n"))
            }
            Some(new) if !same(new, old) => {
                let difference = difference::of(old, new);
                let detail =
                    format!("existing ephemeral containers {name:?} may not be changed\n{difference}");
                containers.forbidden(detail);
            }
            Some(_) => {}
        }
    }
}
