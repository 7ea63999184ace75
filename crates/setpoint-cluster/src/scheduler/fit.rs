//! Whether a node will do for a pod, apart from how much is free on it.

use std::collections::BTreeMap;

use setpoint::k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, Taint, Toleration,
};

const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Why the node will not do, in kube-scheduler's words; `None` if it will.
pub(super) fn refusal(pod: &Pod, node: &Node) -> Option<&'static str> {
    let spec = pod.spec.as_ref()?;
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let is_cordoned = node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
    let cordon = Taint { key: UNSCHEDULABLE.into(), effect: "NoSchedule".into(), ..Taint::default() };
    if is_cordoned && !is_tolerated(&cordon, tolerations) {
        return Some("node(s) were unschedulable");
    }
    let mut hard = taints.filter(|taint| taint.effect != "PreferNoSchedule");
    if hard.any(|taint| !is_tolerated(taint, tolerations)) {
        return Some("node(s) had untolerated taint(s)");
    }
    if !matches_selector(pod, node) {
        return Some("node(s) didn't match Pod's node affinity/selector");
    }
    None
}

/// How many taints the pod would rather not have.
pub(super) fn disliked_taints(pod: &Pod, node: &Node) -> usize {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.filter(|taint| taint.effect == "PreferNoSchedule" && !is_tolerated(taint, tolerations)).count()
}

/// Whether a pod with these tolerations may be on a node with this taint.
pub(crate) fn is_tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|toleration| {
        let set = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let (effect, key) = (set(&toleration.effect), set(&toleration.key));
        effect.is_none_or(|effect| effect == taint.effect)
            && key.is_none_or(|key| key == taint.key)
            && match toleration.operator.as_deref() {
                Some("Exists") => true,
                Some("Lt") => compare(taint, toleration).is_some_and(|(taint, limit)| taint < limit),
                Some("Gt") => compare(taint, toleration).is_some_and(|(taint, limit)| taint > limit),
                _ => toleration.value.clone().unwrap_or_default() == taint.value.clone().unwrap_or_default(),
            }
    })
}

fn compare(taint: &Taint, toleration: &Toleration) -> Option<(i64, i64)> {
    Some((taint.value.as_ref()?.parse().ok()?, toleration.value.as_ref()?.parse().ok()?))
}

/// Whether a node is one that the pod's selector and required affinity name.
pub(crate) fn matches_selector(pod: &Pod, node: &Node) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let mut wanted = spec.node_selector.iter().flatten();
    if !wanted.all(|(key, value)| labels.get(key) == Some(value)) {
        return false;
    }
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required =
        affinity.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
    required.is_none_or(|selector: &NodeSelector| {
        selector.node_selector_terms.iter().any(|term| matches_term(term, &labels, node))
    })
}

/// All of a term must match; one that says nothing matches nothing.
fn matches_term(term: &NodeSelectorTerm, labels: &BTreeMap<String, String>, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let name = node.metadata.name.as_deref();
    let of_field = |field: &NodeSelectorRequirement| name.filter(|_| field.key == "metadata.name");
    (!expressions.is_empty() || !fields.is_empty())
        && expressions.iter().all(|e| matches_requirement(e, labels.get(&e.key).map(String::as_str)))
        && fields.iter().all(|field| matches_requirement(field, of_field(field)))
}

fn matches_requirement(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_listed = value.is_some_and(|value| values.iter().any(|listed| listed == value));
    let numbers = || Some((value?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match requirement.operator.as_str() {
        "In" => is_listed,
        "NotIn" => !is_listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(value, limit)| value > limit),
        "Lt" => numbers().is_some_and(|(value, limit)| value < limit),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(pod_spec: Value, node_spec: Value, expect: Option<&str>) {
        let mut pod_spec = pod_spec;
        pod_spec["containers"] = json!([]);
        let pod = serde_json::from_value(json!({"metadata": {}, "spec": pod_spec})).unwrap();
        let labels = json!({"disk": "ssd", "cores": "8"});
        let node = json!({"metadata": {"name": "node-1", "labels": labels}, "spec": node_spec});
        let node = serde_json::from_value(node).unwrap();
        assert_eq!(refusal(&pod, &node), expect, "{pod_spec}");
    }

    const TAINTED: Option<&str> = Some("node(s) had untolerated taint(s)");
    const UNMATCHED: Option<&str> = Some("node(s) didn't match Pod's node affinity/selector");

    #[test]
    fn a_cordoned_node_takes_only_who_tolerates_it() {
        check(json!({}), json!({"unschedulable": true}), Some("node(s) were unschedulable"));
        let all = json!({"tolerations": [{"operator": "Exists"}]});
        check(all, json!({"unschedulable": true}), None);
    }

    #[test]
    fn taints_keep_away_who_does_not_tolerate_them() {
        let taints = json!({"taints": [{"key": "gpu", "value": "a", "effect": "NoSchedule"}]});
        check(json!({}), taints.clone(), TAINTED);
        let tolerate = |toleration: Value| json!({"tolerations": [toleration]});
        check(tolerate(json!({"key": "gpu", "value": "a", "effect": "NoSchedule"})), taints.clone(), None);
        check(tolerate(json!({"key": "gpu", "value": "b"})), taints.clone(), TAINTED);
        check(tolerate(json!({"key": "gpu", "operator": "Exists"})), taints.clone(), None);
        check(tolerate(json!({"key": "gpu", "operator": "Exists", "effect": "NoExecute"})), taints, TAINTED);
        check(json!({}), json!({"taints": [{"key": "gpu", "effect": "PreferNoSchedule"}]}), None);
    }

    #[test]
    fn selectors_and_required_affinity_must_match() {
        check(json!({"nodeSelector": {"disk": "ssd"}}), json!({}), None);
        check(json!({"nodeSelector": {"disk": "hdd"}}), json!({}), UNMATCHED);
        let affinity = |terms: Value| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": terms}}}})
        };
        let expression = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        check(affinity(json!([expression("cores", "Gt", json!(["4"]))])), json!({}), None);
        check(affinity(json!([expression("cores", "Lt", json!(["4"]))])), json!({}), UNMATCHED);
        check(affinity(json!([expression("x", "NotIn", json!(["y"]))])), json!({}), None);
        let either = json!([expression("x", "Exists", json!([])), expression("disk", "In", json!(["ssd"]))]);
        check(affinity(either), json!({}), None);
        check(affinity(json!([{}])), json!({}), UNMATCHED);
        let by_name =
            json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-2"]}]}]);
        check(affinity(by_name), json!({}), UNMATCHED);
    }
}
