//! Which nodes a DaemonSet has pods on.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec,
    Toleration,
};
use kube::ResourceExt;
use setpoint::owner::is_controlled_by;
use setpoint::{Lister, ObjectKey};

use crate::scheduler::fit;
use crate::{caches, pod};

/// The taints that every pod of a DaemonSet tolerates: key and effect.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
/// Pods that use the host's network do not need another one.
const NO_NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");
const NAME_FIELD: &str = "metadata.name";

/// Adds the tolerations that every pod of a DaemonSet has.
pub(super) fn add_tolerations(spec: &mut PodSpec) {
    let network = (spec.host_network == Some(true)).then_some(NO_NETWORK);
    let tolerations = spec.tolerations.get_or_insert_default();
    for (key, effect) in TOLERATED.into_iter().chain(network) {
        let wanted = Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        let is_same = |known: &Toleration| {
            known.key == wanted.key
                && known.effect == wanted.effect
                && known.operator == wanted.operator
                && known.value.as_deref().unwrap_or_default().is_empty()
        };
        match tolerations.iter_mut().find(|known| is_same(known)) {
            Some(known) => *known = wanted,
            None => tolerations.push(wanted),
        }
    }
}

/// Lets a pod be scheduled to one node only.
pub(super) fn pin(spec: &mut PodSpec, node: &str) {
    let field = NodeSelectorRequirement {
        key: NAME_FIELD.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![field]), match_expressions: None };
    let affinity: &mut Affinity = spec.affinity.get_or_insert_default();
    let of_node: &mut NodeAffinity = affinity.node_affinity.get_or_insert_default();
    of_node.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: vec![term] });
}

/// The node that a pod is on, or that it is made for.
pub(super) fn target(pod: &Pod) -> Option<&str> {
    let bound = pod::node_name(pod);
    if !bound.is_empty() {
        return Some(bound);
    }
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let fields = required.node_selector_terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let by_name = fields.into_iter().find(|field| field.key == NAME_FIELD && field.operator == "In")?;
    match by_name.values.as_deref() {
        Some([node]) => Some(node),
        _ => None,
    }
}

/// What a set's pods demand of a node.
pub(super) struct Demands(Pod);

/// What a node is to a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fit {
    /// A pod is started there.
    pub(super) should_run: bool,
    /// A pod that is there may stay.
    pub(super) may_stay: bool,
}

impl Demands {
    pub(super) fn of(set: &DaemonSet) -> Demands {
        let mut spec = set.spec.template.spec.clone().unwrap_or_default();
        add_tolerations(&mut spec);
        Demands(Pod { spec: Some(spec), ..Pod::default() })
    }

    pub(super) fn fit(&self, node: &Node) -> Fit {
        let bound = pod::node_name(&self.0);
        if (!bound.is_empty() && bound != node.name_any()) || !fit::matches_selector(&self.0, node) {
            return Fit { should_run: false, may_stay: false };
        }
        let tolerations =
            self.0.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
        let taints = || node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        let is_kept_away = |effect: &str| {
            taints().any(|taint| taint.effect == effect && !fit::is_tolerated(taint, tolerations))
        };
        let is_driven_away = is_kept_away("NoExecute");
        Fit { should_run: !is_driven_away && !is_kept_away("NoSchedule"), may_stay: !is_driven_away }
    }
}

/// The sets that have something to do when a node changes.
pub(super) fn concerned(
    sets: &Lister<DaemonSet>,
    nodes: &Lister<Node>,
    pods: &Lister<Pod>,
    node: &Node,
) -> Vec<ObjectKey> {
    let name = node.name_any();
    let is_gone = nodes.get(&ObjectKey::cluster(&name)).is_none();
    let on_node = pods.by_index(caches::BY_NODE, &name).unwrap_or_default();
    let is_concerned = |set: &&Arc<DaemonSet>| {
        let Fit { should_run, may_stay } = Demands::of(set).fit(node);
        let has_pod = on_node.iter().any(|pod| is_controlled_by(&**pod, &***set));
        let is_misplaced = set.status.as_ref().is_some_and(|status| status.number_misscheduled > 0);
        is_gone
            || (should_run && !has_pod)
            || (!should_run && has_pod)
            || (!may_stay && has_pod)
            || (has_pod && is_misplaced)
    };
    let sets = sets.list();
    let concerned = sets.iter().filter(is_concerned);
    concerned
        .map(|set| ObjectKey::namespaced(&set.namespace().unwrap_or_default(), &set.name_any()))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(template: Value, node: Value, should_run: bool, may_stay: bool) {
        let spec = json!({"selector": {}, "template": {"spec": template}});
        let set = serde_json::from_value(json!({"metadata": {"name": "d"}, "spec": spec})).unwrap();
        let node = json!({"metadata": {"name": "n", "labels": {"disk": "ssd"}}, "spec": node});
        let node = serde_json::from_value(node).unwrap();
        assert_eq!(Demands::of(&set).fit(&node), Fit { should_run, may_stay }, "{template}");
    }

    #[test]
    fn taints_keep_pods_away_or_drive_them_out() {
        let taint = |key: &str, effect: &str| json!({"taints": [{"key": key, "effect": effect}]});
        let plain = || json!({"containers": []});
        check(plain(), json!({}), true, true);
        check(plain(), taint("a", "NoSchedule"), false, true);
        check(plain(), taint("a", "NoExecute"), false, false);
        check(plain(), taint("node.kubernetes.io/unreachable", "NoExecute"), true, true);
        check(plain(), taint("node.kubernetes.io/unschedulable", "NoSchedule"), true, true);
        check(plain(), taint(NO_NETWORK.0, NO_NETWORK.1), false, true);
        check(json!({"containers": [], "hostNetwork": true}), taint(NO_NETWORK.0, NO_NETWORK.1), true, true);
        check(json!({"containers": [], "nodeSelector": {"disk": "hdd"}}), json!({}), false, false);
        check(json!({"containers": [], "nodeName": "other"}), json!({}), false, false);
    }

    #[test]
    fn a_pod_is_made_for_one_node() {
        let mut spec = PodSpec::default();
        pin(&mut spec, "n1");
        let pod = Pod { spec: Some(spec), ..Pod::default() };
        assert_eq!(target(&pod), Some("n1"));
        assert_eq!(target(&Pod::default()), None);
    }
}
