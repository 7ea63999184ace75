//! Which pods go first when there are too many.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;

use crate::pod;

/// What a pod's deletion costs, by its owner's own estimate.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Sorts pods so that those come first whose loss is felt least: not assigned, not running, not ready, cheap,
/// on a node with many others of their kind, ready for a short time, often restarted, young.
pub(crate) fn sort(pods: &mut [Arc<Pod>], neighbours: &BTreeMap<String, usize>, now: Timestamp) {
    pods.sort_by_cached_key(|pod| rank(pod, neighbours, now));
}

fn rank(pod: &Pod, neighbours: &BTreeMap<String, usize>, now: Timestamp) -> impl Ord + use<> {
    let node = pod::node_name(pod);
    let phase = match pod::phase(pod) {
        "Pending" => 0,
        "Unknown" => 1,
        _ => 2,
    };
    let restarts = restarts(pod);
    let age = pod.metadata.creation_timestamp.as_ref().map(|time| magnitude(time.0, now));
    (
        (!node.is_empty(), phase, pod::is_ready(pod), deletion_cost(pod)),
        Reverse(neighbours.get(node).copied().unwrap_or(0)),
        (pod::ready_since(pod).map(|since| magnitude(since, now)), Reverse(restarts)),
        // The uid is random: among pods of about the same age, nobody is always the first to go.
        (age, pod.uid()),
    )
}

fn deletion_cost(pod: &Pod) -> i32 {
    pod.annotations().get(DELETION_COST).and_then(|cost| cost.parse().ok()).unwrap_or(0)
}

/// How long ago a moment was, as a power of two: ages of one magnitude count as equal.
fn magnitude(moment: Timestamp, now: Timestamp) -> i64 {
    let age = now.duration_since(moment).as_nanos();
    u128::try_from(age).ok().filter(|age| *age > 0).map_or(-1, |age| i64::from(age.ilog2()))
}

/// The most restarts of a container, and of a sidecar.
fn restarts(pod: &Pod) -> (i32, i32) {
    let most = |statuses: &mut dyn Iterator<Item = &ContainerStatus>| {
        statuses.map(|status| status.restart_count).max().unwrap_or(0)
    };
    let containers = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let is_sidecar = |status: &&ContainerStatus| {
        containers.clone().any(|container| {
            container.name == status.name && container.restart_policy.as_deref() == Some("Always")
        })
    };
    let status = pod.status.as_ref();
    let regular = most(&mut status.iter().flat_map(|status| status.container_statuses.iter().flatten()));
    let inits = status.iter().flat_map(|status| status.init_container_statuses.iter().flatten());
    (regular, most(&mut inits.filter(is_sidecar)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, ready: bool, more: Value) -> Arc<Pod> {
        let mut value = json!({
            "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": "n1", "containers": []},
            "status": {"phase": "Running", "conditions": [{
                "type": "Ready", "status": if ready { "True" } else { "False" },
                "lastTransitionTime": "2026-01-01T00:01:00Z",
            }]},
        });
        merge(&mut value, more);
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn merge(value: &mut Value, more: Value) {
        match more {
            Value::Object(fields) => fields.into_iter().for_each(|(key, more)| merge(&mut value[key], more)),
            more => *value = more,
        }
    }

    fn check(expected: &[&str], mut pods: Vec<Arc<Pod>>) {
        let neighbours = BTreeMap::from([("n1".to_owned(), 3), ("n2".to_owned(), 1)]);
        sort(&mut pods, &neighbours, "2026-01-01T02:00:00Z".parse().unwrap());
        let names: Vec<_> = pods.iter().map(|pod| pod.name_any()).collect();
        assert_eq!(names, expected);
    }

    #[test]
    fn pods_that_do_least_go_first() {
        let pods = vec![
            pod("ready", true, json!({})),
            pod("not-ready", false, json!({})),
            pod("pending", false, json!({"status": {"phase": "Pending"}})),
            pod("unassigned", false, json!({"spec": {"nodeName": null}, "status": {"phase": "Pending"}})),
        ];
        check(&["unassigned", "pending", "not-ready", "ready"], pods);
    }

    #[test]
    fn among_ready_pods_cost_then_crowding_then_time_decide() {
        let cost = |cost: &str| json!({"metadata": {"annotations": {DELETION_COST: cost}}});
        let since = |since: &str| {
            json!({"status": {"conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": since}]}})
        };
        let pods = vec![
            pod("dear", true, cost("10")),
            pod("cheap", true, cost("-10")),
            pod("alone", true, json!({"spec": {"nodeName": "n2"}})),
            pod("old", true, json!({})),
            pod("new", true, since("2026-01-01T01:59:00Z")),
        ];
        check(&["cheap", "new", "old", "alone", "dear"], pods);
    }

    #[test]
    fn restarts_decide_before_age() {
        let restarted = json!({"status": {"containerStatuses": [
            {"name": "a", "image": "i", "imageID": "", "ready": true, "restartCount": 4}]}});
        let pods = vec![pod("a", true, json!({})), pod("b", true, restarted)];
        check(&["b", "a"], pods);
    }
}
