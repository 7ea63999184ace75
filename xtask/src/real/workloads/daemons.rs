//! DaemonSets.

use anyhow::Result;

use super::order::{Called, Order};
use super::{Kubectl, NODES, Scenario, create, events, sorted, wait, wait_for_words};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "a daemon set: rollout, undo", run: roll },
    Scenario { name: "a daemon set with surge", run: surge },
    Scenario { name: "a daemon set: on delete", run: on_delete },
    Scenario { name: "a daemon set that chooses nodes", run: choose },
    Scenario { name: "a daemon set and taints", run: taints },
    Scenario { name: "a daemon set whose pods end", run: failing },
    Scenario { name: "a daemon set and a node that comes and goes", run: churn },
];

fn create_set(kubectl: &Kubectl, more: &str) -> Result<()> {
    create(
        kubectl,
        &format!(
            "apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: agent}}
spec:
  selector: {{matchLabels: {{app: agent}}}}
  template:
    metadata: {{labels: {{app: agent}}}}
    spec: {{terminationGracePeriodSeconds: 5, containers: [{{name: a, image: nginx}}]}}
{more}"
        ),
    )?;
    settle(kubectl, NODES)
}

/// Waits until as many nodes have an available pod of the template, and no more are wanted.
fn settle(kubectl: &Kubectl, nodes: usize) -> Result<()> {
    let generation = kubectl.field("daemonset agent", ".metadata.generation")?;
    let numbers = "{.status.observedGeneration} {.status.desiredNumberScheduled} {.status.numberAvailable} \
                   {.status.updatedNumberScheduled}";
    let expected = format!("{generation} {nodes} {nodes} {nodes}");
    wait(kubectl, &format!("get daemonset agent -o jsonpath='{numbers}'"), &expected)
}

fn state(kubectl: &Kubectl) -> Result<String> {
    let numbers = "{.status.observedGeneration} {.status.currentNumberScheduled} {.status.desiredNumberScheduled} \
                   {.status.numberAvailable} {.status.numberMisscheduled} {.status.numberReady} \
                   {.status.numberUnavailable} {.status.updatedNumberScheduled} {.status.collisionCount} \
                   {.metadata.annotations.deprecated\\.daemonset\\.template\\.generation}";
    let numbers = kubectl.ok(&format!("get daemonset agent -o jsonpath='{numbers}'"))?;
    let pods = "{range .items[*]}{.spec.nodeName}:{.metadata.labels.pod-template-generation}:{.metadata.generateName}:\
                {.metadata.ownerReferences[*].kind}:{.spec.tolerations}:{.spec.affinity}:\
                {.spec.containers[0].image} {end}";
    let pods = sorted(kubectl, "pods", pods)?;
    let revisions = "{range .items[*]}{.revision}:{.metadata.annotations}:{.metadata.ownerReferences[*].kind}:\
                     {.data.spec.template.spec.containers} {end}";
    let revisions = sorted(kubectl, "controllerrevisions", revisions)?;
    Ok(format!("{numbers} | {pods} | {revisions} | {}", events(kubectl, "DaemonSet")?))
}

fn roll(kubectl: &Kubectl) -> Result<String> {
    create_set(kubectl, "")?;
    let first = state(kubectl)?;
    let order = Order::watch(kubectl, Called::Node)?;
    kubectl.ok("set image daemonset/agent a=nginx:2")?;
    kubectl.ok("rollout status daemonset/agent --timeout=55s")?;
    let order = order.lives(kubectl)?;
    kubectl.says("rollout undo daemonset/agent", "daemonset.apps/agent rolled back")?;
    kubectl.ok("rollout status daemonset/agent --timeout=55s")?;
    settle(kubectl, NODES)?;
    wait_for_words(kubectl, "get pods -o name", NODES)?;
    let history = kubectl.ok("rollout history daemonset/agent")?;
    Ok(format!("{first} | {history} | {order} | {}", state(kubectl)?))
}

fn surge(kubectl: &Kubectl) -> Result<String> {
    create_set(
        kubectl,
        "  minReadySeconds: 1
  updateStrategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}",
    )?;
    let order = Order::watch(kubectl, Called::Node)?;
    kubectl.ok("set image daemonset/agent a=nginx:2")?;
    settle(kubectl, NODES)?;
    wait_for_words(kubectl, "get pods -o name", NODES)?;
    Ok(format!("{} | {}", order.decisions(kubectl)?, state(kubectl)?))
}

fn on_delete(kubectl: &Kubectl) -> Result<String> {
    create_set(kubectl, "  updateStrategy: {type: OnDelete}\n  revisionHistoryLimit: 1")?;
    for image in ["nginx:2", "nginx:3", "nginx:4"] {
        kubectl.ok(&format!("set image daemonset/agent a={image}"))?;
        let generation = kubectl.field("daemonset agent", ".metadata.generation")?;
        wait(kubectl, "get daemonset agent -o jsonpath='{.status.observedGeneration}'", &generation)?;
    }
    let before = state(kubectl)?;
    kubectl.ok("delete pods --all")?;
    settle(kubectl, NODES)?;
    wait_for_words(kubectl, "get pods -o name", NODES)?;
    wait_for_words(kubectl, "get controllerrevisions -o name", 2)?;
    Ok(format!("{before} | {}", state(kubectl)?))
}

fn choose(kubectl: &Kubectl) -> Result<String> {
    create_set(kubectl, "")?;
    kubectl.ok("label node node-1 stateful=yes")?;
    kubectl.ok("patch daemonset agent -p '{\"spec\":{\"template\":{\"spec\":{\"nodeSelector\":{\"stateful\":\"yes\"}}}}}'")?;
    settle(kubectl, 1)?;
    wait_for_words(kubectl, "get pods -o name", 1)?;
    let one = state(kubectl)?;
    kubectl.ok("label node node-2 stateful=yes")?;
    settle(kubectl, 2)?;
    let two = state(kubectl)?;
    kubectl.ok("label node node-1 node-2 stateful-")?;
    wait_for_words(kubectl, "get pods -o name", 0)?;
    wait(kubectl, "get daemonset agent -o jsonpath='{.status.desiredNumberScheduled}'", "0")?;
    Ok(format!("{one} | {two} | {}", state(kubectl)?))
}

fn taints(kubectl: &Kubectl) -> Result<String> {
    create_set(kubectl, "")?;
    kubectl.ok("taint node node-2 daemons=none:NoSchedule")?;
    // kube-controller-manager counts such a pod when it looks at the set for another reason.
    kubectl.ok("annotate daemonset agent looked=at")?;
    wait(kubectl, "get daemonset agent -o jsonpath='{.status.numberMisscheduled}'", "1")?;
    let misplaced = state(kubectl)?;
    kubectl.ok("taint node node-2 daemons=none:NoExecute")?;
    wait_for_words(kubectl, "get pods -o name", 1)?;
    wait(kubectl, "get daemonset agent -o jsonpath='{.status.numberMisscheduled}'", "0")?;
    let driven_out = state(kubectl)?;
    kubectl.ok("taint node node-2 daemons-")?;
    settle(kubectl, 2)?;
    kubectl.ok("cordon node-1")?;
    kubectl.ok("delete pods --all")?;
    settle(kubectl, 2)?;
    wait_for_words(kubectl, "get pods -o name", 2)?;
    kubectl.ok("uncordon node-1")?;
    Ok(format!("{misplaced} | {driven_out} | {}", state(kubectl)?))
}

/// Pods that fail are replaced, and an event says so.
fn failing(kubectl: &Kubectl) -> Result<String> {
    create_set(kubectl, "")?;
    let before = kubectl.ok("get pods -o jsonpath='{.items[*].metadata.uid}'")?;
    for pod in wait_for_words(kubectl, "get pods -o name", NODES)? {
        kubectl.ok(&format!(
            "patch {pod} --subresource=status -p '{{\"status\":{{\"phase\":\"Failed\",\"reason\":\"Evicted\"}}}}'"
        ))?;
    }
    let others = |now: &str| now.split_whitespace().filter(|uid| !before.contains(uid)).count();
    super::until(|| Ok(others(&kubectl.ok("get pods -o jsonpath='{.items[*].metadata.uid}'")?) == NODES))?;
    settle(kubectl, NODES)?;
    wait_for_words(kubectl, "get pods -o name", NODES)?;
    state(kubectl)
}

/// A node without a kubelet: its pod is placed and never starts; when the node goes, so does the pod.
fn churn(kubectl: &Kubectl) -> Result<String> {
    create_set(kubectl, "")?;
    create(
        kubectl,
        "apiVersion: v1
kind: Node
metadata: {name: visitor}
status:
  capacity: {cpu: '1', memory: 1Gi, pods: '10'}
  allocatable: {cpu: '1', memory: 1Gi, pods: '10'}
  conditions: [{type: Ready, status: 'True'}]",
    )?;
    wait(kubectl, "get daemonset agent -o jsonpath='{.status.currentNumberScheduled}'", "3")?;
    wait_for_words(kubectl, "get pods -o name", 3)?;
    let three = "{.status.desiredNumberScheduled} {.status.numberAvailable} {.status.numberUnavailable}";
    let three = kubectl.ok(&format!("get daemonset agent -o jsonpath='{three}'"))?;
    kubectl.ok("delete node visitor")?;
    wait_for_words(kubectl, "get pods -o name", 2)?;
    settle(kubectl, 2)?;
    Ok(format!("{three} | {}", state(kubectl)?))
}
