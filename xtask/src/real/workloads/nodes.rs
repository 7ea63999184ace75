//! Nodes that take no pods.

use anyhow::Result;

use super::{Kubectl, Scenario, wait, wait_for_words};

pub(super) const SCENARIOS: &[Scenario] =
    &[Scenario { name: "taint", run: taint }, Scenario { name: "cordon", run: cordon }];

/// A Deployment whose pods cannot be placed until `allow`.
fn wait_for_room(kubectl: &Kubectl, allow: &str) -> Result<String> {
    kubectl.ok("create deployment web --image=nginx --replicas=2")?;
    wait_for_words(kubectl, "get pods -o name", 2)?;
    wait(kubectl, "get pods -o jsonpath='{.items[*].status.phase}'", "Pending Pending")?;
    let reason = "{.items[*].status.conditions[?(@.type==\"PodScheduled\")].reason}";
    wait(kubectl, &format!("get pods -o jsonpath='{reason}'"), "Unschedulable Unschedulable")?;
    let available = "{.status.conditions[?(@.type==\"Available\")].reason}";
    wait(kubectl, &format!("get deployment web -o jsonpath='{available}'"), "MinimumReplicasUnavailable")?;
    kubectl.ok(allow)?;
    kubectl.ok("rollout status deployment/web --timeout=55s")?;
    kubectl.ok("get pods -o jsonpath='{.items[*].status.phase}'")
}

fn taint(kubectl: &Kubectl) -> Result<String> {
    wait_for_words(kubectl, "get nodes -o name", super::NODES)?;
    kubectl.ok("taint nodes --all dedicated=other:NoSchedule")?;
    wait_for_room(kubectl, "taint nodes --all dedicated-")
}

fn cordon(kubectl: &Kubectl) -> Result<String> {
    let nodes = wait_for_words(kubectl, "get nodes -o name", super::NODES)?.join(" ");
    kubectl.ok(&format!("cordon {nodes}"))?;
    wait_for_room(kubectl, &format!("uncordon {nodes}"))
}
