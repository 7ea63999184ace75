//! Nodes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::at::{At, items, same};
use super::fill::part_or_new;
use super::pod::{resources, taint_effect};
use crate::metadata::names;
use crate::strategy::Part;

pub(super) fn default(node: &mut Value) {
    let Some(fields) = node.as_object_mut() else { return };
    let status = part_or_new(fields, "status");
    if !status.contains_key("allocatable")
        && let Some(capacity) = status.get("capacity").cloned()
    {
        status.insert("allocatable".to_owned(), capacity);
    }
    // The first range of addresses has two names.
    let spec = part_or_new(fields, "spec");
    match (spec.get("podCIDR").cloned(), spec.get("podCIDRs").and_then(|list| list.get(0)).cloned()) {
        (Some(single), first) if first.as_ref() != Some(&single) => {
            spec.insert("podCIDRs".to_owned(), json!([single]));
        }
        (None, Some(first)) => drop(spec.insert("podCIDR".to_owned(), first)),
        _ => {}
    }
}

/// The configuration of kubelets by the server is gone.
pub(super) fn prepare_create(node: &mut Value) {
    let Some(fields) = node.as_object_mut() else { return };
    part_or_new(fields, "spec").remove("configSource");
}

/// A node that still has it keeps it.
pub(super) fn prepare_update(node: &mut Value, old: &Value, part: Part) {
    if part == Part::Status
        && old["status"].get("config").is_none()
        && let Some(status) = node.get_mut("status").and_then(Value::as_object_mut)
    {
        status.remove("config");
    }
}

pub(super) fn validate(node: &At, old: Option<&Value>, part: Part) {
    let spec = node.field("spec");
    let metadata = node.field("metadata");
    if part != Part::Status {
        taints(&metadata.alias("taints").with(spec.field("taints").value()));
        amounts(node);
        pod_ranges(&spec.field("podCIDRs"));
    }
    if let Some(old) = old {
        validate_update(node, old);
    }
}

fn taints(taints: &At) {
    let mut seen = BTreeSet::new();
    for taint in taints.items() {
        taint.field("key").has_form(names::label_key);
        let problems = names::label_value(taint.field("value").text());
        if !problems.is_empty() {
            taint.field("value").invalid_text(problems.join(";"));
        }
        taint_effect(&taint.field("effect"));
        if !seen.insert((taint.field("key").text(), taint.field("effect").text())) {
            let shown = format!(
                "{{\"Key\":{:?},\"Value\":{:?},\"Effect\":{:?},\"TimeAdded\":null}}",
                taint.field("key").text(),
                taint.field("value").text(),
                taint.field("effect").text()
            );
            let shown = crate::field_error::Shown::Raw(shown);
            taint.duplicate_because(shown, "taints must be unique by key and effect pair");
        }
    }
}

fn amounts(node: &At) {
    let status = node.field("status");
    for list in ["capacity", "allocatable"] {
        for (name, amount) in status.field(list).entries() {
            let place = status.field(list);
            resources::amount(name, &place.alias(name).with(amount.value()));
        }
    }
}

fn pod_ranges(ranges: &At) {
    ranges.items().for_each(|range| range.cidr(&[]));
    let is_v6 = |range: &&Value| range.as_str().unwrap_or_default().contains(':');
    let list = items(ranges.value());
    if list.len() > 1 && (list.len() > 2 || list.iter().filter(is_v6).count() != 1) {
        ranges.invalid("may specify no more than one CIDR for each IP family");
    }
}

fn validate_update(node: &At, old: &Value) {
    let (spec, status) = (node.field("spec"), node.field("status"));
    amounts(node);
    let mut seen: Vec<&Value> = Vec::new();
    for address in status.field("addresses").items() {
        if seen.contains(&address.value()) {
            address.duplicate_as(address.in_go(&[("Type", "type", "\"\""), ("Address", "address", "\"\"")]));
        }
        seen.push(address.value());
    }
    let ranges = spec.field("podCIDRs");
    if !items(&old["spec"]["podCIDRs"]).is_empty() && !same(ranges.value(), &old["spec"]["podCIDRs"]) {
        ranges.forbidden("node updates may not change podCIDR except from \"\" to valid");
    }
    let provider = spec.field("providerID");
    let before = old["spec"]["providerID"].as_str().unwrap_or_default();
    if !before.is_empty() && provider.is_empty() {
        provider.invalid_as(Value::Null, "field cannot be cleared once set");
    } else if !before.is_empty() && provider.text() != before {
        provider.invalid_as(Value::Null, "field cannot be modified once set");
    }
    let metadata = node.field("metadata");
    taints(&metadata.alias("taints").with(spec.field("taints").value()));
}
