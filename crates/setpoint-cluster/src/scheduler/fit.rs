//! Whether a node will do for a pod, apart from how much is free on it.

use std::collections::BTreeMap;

use setpoint::k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Taint, Toleration,
};

const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// What keeps a pod from a node that its selector or affinity does not name.
pub(super) const UNMATCHED: &str = "node(s) didn't match Pod's node affinity/selector";

/// Which taint keeps a pod with these tolerations from a node, in kube-scheduler's words; `None` if none does.
pub(super) fn intolerance(tolerations: &[Toleration], node: &Node) -> Option<&'static str> {
    let spec = node.spec.as_ref()?;
    if spec.unschedulable == Some(true) {
        let cordon = Taint { key: UNSCHEDULABLE.into(), effect: "NoSchedule".into(), ..Taint::default() };
        if !is_tolerated(&cordon, tolerations) {
            return Some("node(s) were unschedulable");
        }
    }
    let mut hard = spec.taints.iter().flatten().filter(|taint| taint.effect != "PreferNoSchedule");
    hard.any(|taint| !is_tolerated(taint, tolerations)).then_some("node(s) had untolerated taint(s)")
}

/// How many taints of a node a pod with these tolerations would rather not have.
pub(super) fn disliked_taints(tolerations: &[Toleration], node: &Node) -> usize {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.filter(|taint| taint.effect == "PreferNoSchedule" && !is_tolerated(taint, tolerations)).count()
}

/// Whether a pod with these tolerations may be on a node with this taint.
pub(crate) fn is_tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|toleration| {
        let (effect, key) = (set(&toleration.effect), set(&toleration.key));
        effect.is_none_or(|effect| effect == taint.effect)
            && key.is_none_or(|key| key == taint.key)
            && match toleration.operator.as_deref() {
                Some("Exists") => true,
                Some("Lt") => compare(taint, toleration).is_some_and(|(taint, limit)| taint < limit),
                Some("Gt") => compare(taint, toleration).is_some_and(|(taint, limit)| taint > limit),
                _ => set(&toleration.value) == set(&taint.value),
            }
    })
}

/// What is said; nothing is said by an empty text.
fn set(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

fn compare(taint: &Taint, toleration: &Toleration) -> Option<(i64, i64)> {
    Some((taint.value.as_ref()?.parse().ok()?, toleration.value.as_ref()?.parse().ok()?))
}

/// Whether a node is one that the pod's selector and required affinity name.
pub(crate) fn matches_selector(pod: &Pod, node: &Node) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let none = BTreeMap::new();
    matches(spec.node_selector.as_ref().unwrap_or(&none), required_affinity(spec), node)
}

/// The nodes that a pod must be on one of.
pub(super) fn required_affinity(spec: &PodSpec) -> Option<&NodeSelector> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    affinity.required_during_scheduling_ignored_during_execution.as_ref()
}

/// Whether a node has these labels, and is one of those that the affinity names.
pub(super) fn matches(
    wanted: &BTreeMap<String, String>,
    affinity: Option<&NodeSelector>,
    node: &Node,
) -> bool {
    let label = |key: &str| node.metadata.labels.as_ref()?.get(key);
    wanted.iter().all(|(key, value)| label(key) == Some(value))
        && affinity
            .is_none_or(|selector| selector.node_selector_terms.iter().any(|term| matches_term(term, node)))
}

/// All of a term must match; one that says nothing matches nothing.
fn matches_term(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let name = node.metadata.name.as_deref();
    let labels = node.metadata.labels.as_ref();
    let of_label =
        |e: &NodeSelectorRequirement| labels.and_then(|labels| labels.get(&e.key)).map(String::as_str);
    let of_field = |field: &NodeSelectorRequirement| name.filter(|_| field.key == "metadata.name");
    (!expressions.is_empty() || !fields.is_empty())
        && expressions.iter().all(|e| matches_requirement(e, of_label(e)))
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
        let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": pod_spec})).unwrap();
        let labels = json!({"disk": "ssd", "cores": "8"});
        let node = json!({"metadata": {"name": "node-1", "labels": labels}, "spec": node_spec});
        let node = serde_json::from_value(node).unwrap();
        let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
        let refusal = intolerance(tolerations, &node)
            .or_else(|| (!matches_selector(&pod, &node)).then_some(super::UNMATCHED));
        assert_eq!(refusal, expect, "{pod_spec}");
    }

    const TAINTED: Option<&str> = Some("node(s) had untolerated taint(s)");
    const UNMATCHED: Option<&str> = Some(super::UNMATCHED);

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
