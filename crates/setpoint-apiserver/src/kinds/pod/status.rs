//! The status of a pod, which kubelets write.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};

use super::super::at::{At, items};
use super::super::fill::Fields;
use crate::metadata::names;

/// The first address of a pod has two names.
pub(super) fn default(pod: &mut Fields) {
    let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut) else { return };
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let single = status.get("podIP").and_then(text);
    let first = status.get("podIPs").and_then(|list| text(&list[0]["ip"]));
    match (single, first) {
        (Some(single), None) => drop(status.insert("podIPs".into(), json!([{"ip": single}]))),
        (None, Some(first)) => drop(status.insert("podIP".into(), first.into())),
        // The single one is what old clients write, so it is the one that counts.
        (Some(single), Some(first)) if single != first => {
            status.insert("podIPs".into(), json!([{"ip": single}]));
        }
        _ => {}
    }
}

/// What a new status leaves out stays as it was.
pub(super) fn keep(pod: &mut Value, old: &Value) {
    const KEPT: [&str; 5] = [
        "qosClass",
        "observedGeneration",
        "resourceClaimStatuses",
        "extendedResourceClaimStatus",
        "nodeAllocatableResourceClaimStatuses",
    ];
    let Some(status) = pod["status"].as_object_mut() else { return };
    let before = &old["status"];
    for field in KEPT {
        if !status.contains_key(field)
            && let Some(value) = before.get(field)
        {
            status.insert(field.to_owned(), value.clone());
        }
    }
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    keep_generations(conditions.map_or(&mut [], Vec::as_mut_slice), items(&before["conditions"]));
}

/// A condition that does not say which generation it is about is about the one that it was. There can be several of a
/// type: they are paired in their order.
fn keep_generations(conditions: &mut [Value], before: &[Value]) {
    let mut generations: BTreeMap<&str, VecDeque<&Value>> = BTreeMap::new();
    for old in before {
        let name = old["type"].as_str().unwrap_or_default();
        generations.entry(name).or_default().push_back(&old["observedGeneration"]);
    }
    for condition in conditions {
        let name = condition["type"].as_str().unwrap_or_default();
        let before = generations.get_mut(name).and_then(VecDeque::pop_front);
        if let Some(generation) = before.filter(|generation| !generation.is_null())
            && condition.get("observedGeneration").is_none_or(|number| *number == 0)
        {
            condition["observedGeneration"] = generation.clone();
        }
    }
}

pub(super) fn validate(pod: &At, old: &Value) {
    let status = pod.field("status");
    conditions(&status.field("conditions"));
    let (nominated, before) = (status.field("nominatedNodeName"), &old["status"]["nominatedNodeName"]);
    if nominated.value() != before && !nominated.is_empty() {
        nominated.has_form(names::dns1123_subdomain);
        if old["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty()) {
            nominated.forbidden("may not be set on pods that are already bound to a node");
        }
    }
    let generation = status.field("observedGeneration");
    if generation.number().is_some_and(|number| number < 0) {
        generation.invalid("must be a non-negative integer");
    }
    status.field("qosClass").immutable(&old["status"]["qosClass"]);
    addresses(&status, &old["status"]);
}

fn conditions(conditions: &At) {
    for condition in conditions.items() {
        let generation = condition.field("observedGeneration");
        if generation.number().is_some_and(|number| number < 0) {
            generation.invalid("must be a non-negative integer");
        }
        let name = condition.field("type").text();
        if ["PodScheduled", "Ready", "Initialized"].contains(&name) {
            continue;
        }
        for problem in names::label_key(name) {
            condition.alias("Type").invalid_as(name, problem);
        }
    }
}

fn addresses(status: &At, old: &Value) {
    for (list, single, alone) in [("podIPs", "podIP", true), ("hostIPs", "hostIP", false)] {
        let before: Vec<&str> = items(&old[list]).iter().filter_map(|ip| ip["ip"].as_str()).collect();
        let addresses = status.field(list);
        for address in addresses.items() {
            address.with(address.field("ip").value()).ip_address(&before);
        }
        if addresses.len() > 1 && !is_dual_stack(items(addresses.value())) {
            addresses.invalid("may specify no more than one IP for each IP family");
        }
        let first = addresses.index(0);
        let first = first.field("ip");
        if alone && status.field(single).is_empty() != addresses.is_empty() {
            addresses.invalid(format!("{single} and {list} must either both be set or both be unset"));
        } else if !addresses.is_empty() && status.field(single).text() != first.text() {
            first.invalid(format!("must be equal to `{single}`"));
        }
    }
}

fn is_dual_stack(addresses: &[Value]) -> bool {
    let is_v6 = |address: &&Value| address["ip"].as_str().unwrap_or_default().contains(':');
    addresses.len() == 2 && addresses.iter().filter(is_v6).count() == 1
}
