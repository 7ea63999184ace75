//! Near which nodes and pods a pod wants to run.

use serde_json::{Value, json};

use super::super::at::{At, items};
use super::super::fill::{Fields, each, part};
use crate::metadata::names;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(super) fn validate(affinity: &At) {
    let nodes = affinity.field("nodeAffinity");
    if nodes.field(REQUIRED).exists() {
        node_selector(&nodes.field(REQUIRED));
    }
    for term in nodes.field(PREFERRED).items() {
        weight(&term);
        node_selector_term(&term.field("preference"), true);
    }
    for pods in ["podAffinity", "podAntiAffinity"].map(|name| affinity.field(name)) {
        pods.field(REQUIRED).items().for_each(|term| pod_term(&term));
        for term in pods.field(PREFERRED).items() {
            weight(&term);
            pod_term(&term.field("podAffinityTerm"));
        }
    }
}

fn weight(term: &At) {
    if !(1..=100).contains(&term.field("weight").number().unwrap_or(0)) {
        term.field("weight").invalid_number("must be in the range 1-100");
    }
}

pub(in crate::kinds) fn node_selector(selector: &At) {
    let terms = selector.field("nodeSelectorTerms");
    if terms.is_empty() {
        return terms.required("must have at least one node selector term");
    }
    terms.items().for_each(|term| node_selector_term(&term, false));
}

/// Preferred terms may compare with what no label can be.
fn node_selector_term(term: &At, any_value: bool) {
    for requirement in term.field("matchExpressions").items() {
        let (operator, values) = (requirement.field("operator"), requirement.field("values"));
        match operator.text() {
            "In" | "NotIn" if values.is_empty() => {
                values.required("must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
            }
            "Gt" | "Lt" if values.len() != 1 => {
                values.required("must be specified single value when `operator` is 'Lt' or 'Gt'");
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            _ => operator.invalid_text("not a valid selector operator"),
        }
        requirement.field("key").has_form(names::label_key);
        if !any_value {
            values.items().for_each(|value| value.has_form(names::label_value));
        }
    }
    for requirement in term.field("matchFields").items() {
        let (operator, values) = (requirement.field("operator"), requirement.field("values"));
        if !["In", "NotIn"].contains(&operator.text()) {
            operator.invalid_text("not a valid selector operator");
        } else if values.len() != 1 {
            values.required(
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
            );
        }
        if requirement.field("key").text() == "metadata.name" {
            values.items().for_each(|value| value.has_form(names::dns1123_subdomain));
        } else {
            requirement.field("key").invalid_text("not a valid field selector key");
        }
    }
}

fn pod_term(term: &At) {
    term.field("labelSelector").label_selector();
    term.field("namespaceSelector").label_selector();
    for namespace in term.field("namespaces").texts() {
        for problem in names::dns1123_label(namespace) {
            term.alias("namespace").invalid_as(namespace, problem);
        }
    }
    label_keys(term, &term.field("mismatchLabelKeys"));
    let key = term.field("topologyKey");
    if key.is_empty() {
        key.required("can not be empty");
    }
    key.has_form(names::label_key);
}

/// Keys whose values are taken from the pod itself.
pub(super) fn label_keys(term: &At, mismatched: &At) {
    let (matched, selector) = (term.field("matchLabelKeys"), term.field("labelSelector"));
    for keys in [&matched, mismatched].into_iter().filter(|keys| !keys.is_empty()) {
        if selector.exists() {
            keys.items().for_each(|key| key.has_form(names::label_key));
        } else {
            keys.forbidden("must not be specified when labelSelector is not set");
        }
    }
    let position = |key: &str| matched.texts().position(|matched| matched == key);
    let mut seen: Vec<&str> = selector.field("matchLabels").entries().map(|(key, _)| key).collect();
    for requirement in selector.field("matchExpressions").items() {
        let key = requirement.field("key").text();
        if let Some(at) = position(key).filter(|_| seen.contains(&key)) {
            term.index(at).invalid_as(key, "exists in both matchLabelKeys and labelSelector");
        }
        seen.push(key);
    }
    for key in matched.items() {
        if mismatched.texts().any(|mismatched| mismatched == key.text()) {
            key.invalid("exists in both matchLabelKeys and mismatchLabelKeys");
        }
    }
}

/// Adds the labels that a new pod shares with its peers to the selectors of its terms.
pub(super) fn merge_label_keys(spec: &mut Fields, labels: &Value) {
    if let Some(affinity) = part(spec, "affinity") {
        for name in ["podAffinity", "podAntiAffinity"] {
            let Some(pods) = part(affinity, name) else { continue };
            for term in each(pods, PREFERRED) {
                if let Some(term) = part(term, "podAffinityTerm") {
                    merge(term, labels);
                }
            }
            each(pods, REQUIRED).for_each(|term| merge(term, labels));
        }
    }
    each(spec, "topologySpreadConstraints").for_each(|constraint| merge(constraint, labels));
}

fn merge(term: &mut Fields, labels: &Value) {
    let mut added = Vec::new();
    for (keys, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in term.get(keys).map(items).unwrap_or_default() {
            let value = &labels[key.as_str().unwrap_or_default()];
            if !value.is_null() {
                added.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    if let Some(selector) = part(term, "labelSelector").filter(|_| !added.is_empty()) {
        let expressions = selector.entry("matchExpressions").or_insert_with(|| json!([]));
        if let Value::Array(list) = expressions {
            list.extend(added);
        }
    }
}
