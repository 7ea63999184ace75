//! Disruption budgets and evictions, drained nodes, taints that drive pods out, pods of nodes that are gone.

use anyhow::{Result, ensure};

use super::{Kubectl, Scenario, create, events, sorted, until, wait, wait_for_words};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "a disruption budget", run: budget },
    Scenario { name: "a budget by percentage, unhealthy pods", run: unhealthy },
    Scenario { name: "a budget of a stateful set", run: stateful },
    Scenario { name: "a budget of pods that nobody controls", run: loose },
    Scenario { name: "drain a node", run: drain },
    Scenario { name: "taints that drive pods out", run: taints },
    Scenario { name: "pods of a node that is gone", run: lost },
    Scenario { name: "a replication controller", run: controller },
];

const BUDGET: &str = "get poddisruptionbudget web -o jsonpath='{.status.expectedPods} {.status.desiredHealthy} \
    {.status.currentHealthy} {.status.disruptionsAllowed} {.status.observedGeneration} \
    {range .status.conditions[*]}{.type}={.status}:{.reason}:{.message}:{.observedGeneration}{end}'";

/// Waits until the budget lets as many go.
fn allows(kubectl: &Kubectl, number: usize) -> Result<()> {
    let generation = kubectl.field("poddisruptionbudget web", ".metadata.generation")?;
    let numbers = "{.status.observedGeneration} {.status.disruptionsAllowed}";
    wait(
        kubectl,
        &format!("get poddisruptionbudget web -o jsonpath='{numbers}'"),
        &format!("{generation} {number}"),
    )
}

fn budget_state(kubectl: &Kubectl) -> Result<String> {
    Ok(format!("{} | {}", kubectl.ok(BUDGET)?, events(kubectl, "PodDisruptionBudget")?))
}

fn web(kubectl: &Kubectl, replicas: usize) -> Result<()> {
    kubectl.ok(&format!("create deployment web --image=nginx --replicas={replicas}"))?;
    kubectl.ok("rollout status deployment/web --timeout=55s").map(drop)
}

/// Asks for the eviction of a pod; returns what was answered, without names.
fn evict(kubectl: &Kubectl, pod: &str) -> Result<String> {
    let pod = pod.trim_start_matches("pod/");
    kubectl.file(
        "eviction.json",
        format!("{{\"apiVersion\":\"policy/v1\",\"kind\":\"Eviction\",\"metadata\":{{\"name\":\"{pod}\"}}}}"),
    )?;
    let path = format!("/api/v1/namespaces/{{ns}}/pods/{pod}/eviction");
    let done = kubectl.run(&format!("create --raw {path} -f eviction.json"), None)?;
    if !done.status.success() {
        return Ok(done.stderr.replace(pod, "POD").trim().to_owned());
    }
    // The order of fields is no part of it.
    let answer: serde_json::Value = serde_json::from_str(&done.stdout)?;
    Ok(format!("{} {}", answer["status"], answer["code"]))
}

fn budget(kubectl: &Kubectl) -> Result<String> {
    web(kubectl, 4)?;
    kubectl.ok("create poddisruptionbudget web --selector=app=web --max-unavailable=1")?;
    allows(kubectl, 1)?;
    let first = budget_state(kubectl)?;
    // One goes, the next one does not as long as nobody has taken its place.
    let pods = wait_for_words(kubectl, "get pods -o name", 4)?;
    let evicted = evict(kubectl, &pods[0])?;
    let refused = evict(kubectl, &pods[1])?;
    allows(kubectl, 1)?;
    wait_for_words(kubectl, "get pods -o name", 4)?;
    let again = budget_state(kubectl)?;
    kubectl.ok("patch poddisruptionbudget web --type=merge -p '{\"spec\":{\"maxUnavailable\":null,\"minAvailable\":\"100%\"}}'")?;
    allows(kubectl, 0)?;
    let last = budget_state(kubectl)?;
    Ok(format!("{first} | {evicted} | {refused} | {again} | {last}"))
}

/// Pods that are not ready may always go, if the budget says so.
fn unhealthy(kubectl: &Kubectl) -> Result<String> {
    create(
        kubectl,
        "apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {sim.setpoint.dev/ready-after: 600s}}
    spec: {terminationGracePeriodSeconds: 5, containers: [{name: a, image: nginx}]}",
    )?;
    wait(kubectl, "get pods -o jsonpath='{.items[*].status.phase}'", "Running Running Running")?;
    kubectl.ok("create poddisruptionbudget web --selector=app=web --min-available=50%")?;
    allows(kubectl, 0)?;
    let first = budget_state(kubectl)?;
    let pods = wait_for_words(kubectl, "get pods -o name", 3)?;
    let refused = evict(kubectl, &pods[0])?;
    kubectl.ok("patch poddisruptionbudget web --type=merge -p '{\"spec\":{\"unhealthyPodEvictionPolicy\":\"AlwaysAllow\"}}'")?;
    allows(kubectl, 0)?;
    let evicted = evict(kubectl, &pods[0])?;
    Ok(format!("{first} | {refused} | {evicted} | {}", budget_state(kubectl)?))
}

fn stateful(kubectl: &Kubectl) -> Result<String> {
    create(
        kubectl,
        "apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec:
  replicas: 3
  serviceName: web
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {terminationGracePeriodSeconds: 5, containers: [{name: a, image: nginx}]}",
    )?;
    wait(kubectl, "get statefulset web -o jsonpath='{.status.availableReplicas}'", "3")?;
    // Only now, so that it has pods from the beginning.
    kubectl.ok("create poddisruptionbudget web --selector=app=web --max-unavailable=34%")?;
    allows(kubectl, 2)?;
    let first = budget_state(kubectl)?;
    kubectl.ok("scale statefulset/web --replicas=1")?;
    wait_for_words(kubectl, "get pods -o name", 1)?;
    wait(kubectl, "get poddisruptionbudget web -o jsonpath='{.status.expectedPods}'", "1")?;
    allows(kubectl, 1)?;
    Ok(format!("{first} | {}", budget_state(kubectl)?))
}

/// A number of pods that nobody controls can be kept; a share of them cannot be known.
fn loose(kubectl: &Kubectl) -> Result<String> {
    for name in ["a", "b"] {
        kubectl.ok(&format!("run {name} --image=nginx --labels=app=web"))?;
        kubectl.ok(&format!("wait --for=condition=ready --timeout=55s pod/{name}"))?;
    }
    kubectl.ok("create poddisruptionbudget web --selector=app=web --min-available=1")?;
    allows(kubectl, 1)?;
    let number = budget_state(kubectl)?;
    let evicted = evict(kubectl, "a")?;
    wait_for_words(kubectl, "get pods -o name", 1)?;
    allows(kubectl, 0)?;
    let refused = evict(kubectl, "b")?;
    kubectl.ok("patch poddisruptionbudget web --type=merge -p '{\"spec\":{\"maxUnavailable\":\"50%\",\"minAvailable\":null}}'")?;
    allows(kubectl, 0)?;
    let share = budget_state(kubectl)?;
    kubectl.ok("delete pod b")?;
    Ok(format!("{number} | {evicted} | {refused} | {share}"))
}

fn drain(kubectl: &Kubectl) -> Result<String> {
    // Pods of other scenarios are on the node, and their budgets hold them.
    kubectl.ok("create deployment drained --image=nginx --replicas=4")?;
    kubectl.ok("rollout status deployment/drained --timeout=55s")?;
    kubectl.ok("create poddisruptionbudget web --selector=app=drained --max-unavailable=1")?;
    allows(kubectl, 1)?;
    kubectl.ok("drain node-2 --pod-selector=app=drained --timeout=55s")?;
    let on_node =
        "get pods -o jsonpath='{range .items[?(@.spec.nodeName==\"node-2\")]}{.metadata.name} {end}'";
    wait_for_words(kubectl, on_node, 0)?;
    kubectl.ok("rollout status deployment/drained --timeout=55s")?;
    allows(kubectl, 1)?;
    let node = kubectl.ok("get node node-2 -o jsonpath='{.spec.unschedulable} {.spec.taints[*].key}'")?;
    kubectl.ok("uncordon node-2")?;
    let nodes = "get pods -o jsonpath='{.items[*].spec.nodeName} {.items[*].status.phase}'";
    let nodes = kubectl.ok(nodes)?;
    Ok(format!("{node} | {nodes} | {}", budget_state(kubectl)?))
}

/// A pod on node-2, with these tolerations.
fn tolerant(kubectl: &Kubectl, name: &str, tolerations: &str) -> Result<()> {
    create(
        kubectl,
        &format!(
            "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  nodeName: node-2
  terminationGracePeriodSeconds: 5
  tolerations: {tolerations}
  containers: [{{name: a, image: nginx}}]"
        ),
    )?;
    kubectl.ok(&format!("wait --for=condition=ready --timeout=55s pod/{name}")).map(drop)
}

fn taints(kubectl: &Kubectl) -> Result<String> {
    tolerant(kubectl, "never", "[]")?;
    tolerant(kubectl, "always", "[{key: broken, operator: Exists, effect: NoExecute}]")?;
    tolerant(
        kubectl,
        "awhile",
        "[{key: broken, operator: Exists, effect: NoExecute, tolerationSeconds: 4}]",
    )?;
    tolerant(
        kubectl,
        "long",
        "[{key: broken, operator: Exists, effect: NoExecute, tolerationSeconds: 600}]",
    )?;
    kubectl.ok("taint node node-2 broken=yes:NoExecute")?;
    wait(kubectl, "get pods -o jsonpath='{.items[*].metadata.name}'", "always awhile long")?;
    wait(kubectl, "get pods -o jsonpath='{.items[*].metadata.name}'", "always long")?;
    kubectl.ok("taint node node-2 broken-")?;
    // Whoever was to go later stays.
    until(|| Ok(events(kubectl, "Pod")?.contains("Cancelling deletion")))?;
    let left = "{range .items[*]}{.metadata.name}:{.status.phase}:{.status.conditions[*].type}{end}";
    let left = kubectl.ok(&format!("get pods -o jsonpath='{left}'"))?;
    let told = events(kubectl, "Pod")?;
    let told: Vec<&str> = told.split(" ; ").filter(|event| event.contains("TaintManager")).collect();
    Ok(format!("{left} | {}", told.join(" ; ")))
}

/// Pods of a node that is deleted go after a while; one that finalizers hold says why.
fn lost(kubectl: &Kubectl) -> Result<String> {
    create(
        kubectl,
        "apiVersion: v1
kind: Node
metadata: {name: passing}
status:
  capacity: {cpu: '1', memory: 1Gi, pods: '10'}
  allocatable: {cpu: '1', memory: 1Gi, pods: '10'}",
    )?;
    create(
        kubectl,
        "apiVersion: v1
kind: Pod
metadata: {name: held, finalizers: [example.com/hold]}
spec: {nodeName: passing, containers: [{name: a, image: nginx}]}
---
apiVersion: v1
kind: Pod
metadata: {name: free}
spec: {nodeName: passing, containers: [{name: a, image: nginx}]}
---
apiVersion: v1
kind: Pod
metadata: {name: waiting}
spec: {schedulingGates: [{name: example.com/a}], containers: [{name: a, image: nginx}]}",
    )?;
    kubectl.ok("delete pod waiting --wait=false")?;
    kubectl.ok("delete node passing")?;
    wait(kubectl, "get pods -o jsonpath='{.items[*].metadata.name}'", "held")?;
    let pod = "{.status.phase} {.metadata.deletionGracePeriodSeconds} \
               {range .status.conditions[?(@.type==\"DisruptionTarget\")]}{.type}={.status}:{.reason}:{.message}{end}";
    let held = kubectl.ok(&format!("get pod held -o jsonpath='{pod}'"))?;
    kubectl.ok("patch pod held --type=merge -p '{\"metadata\":{\"finalizers\":null}}'")?;
    wait_for_words(kubectl, "get pods -o name", 0)?;
    ensure!(!held.is_empty(), "the pod went though a finalizer holds it");
    Ok(held)
}

fn controller(kubectl: &Kubectl) -> Result<String> {
    create(
        kubectl,
        "apiVersion: v1
kind: ReplicationController
metadata: {name: old}
spec:
  replicas: 3
  template:
    metadata: {labels: {app: old}}
    spec: {terminationGracePeriodSeconds: 5, containers: [{name: a, image: b}]}",
    )?;
    wait(kubectl, "get replicationcontroller old -o jsonpath='{.status.availableReplicas}'", "3")?;
    // One that leaves is replaced, and let go of.
    let pods = wait_for_words(kubectl, "get pods -o name", 3)?;
    kubectl.ok(&format!("label {} app=other --overwrite", pods[0]))?;
    wait_for_words(kubectl, "get pods -o name", 4)?;
    wait(kubectl, &format!("get {} -o jsonpath='{{.metadata.ownerReferences}}'", pods[0]), "")?;
    wait(kubectl, "get replicationcontroller old -o jsonpath='{.status.availableReplicas}'", "3")?;
    kubectl.ok("scale replicationcontroller old --replicas=1")?;
    wait_for_words(kubectl, "get pods -o name", 2)?;
    wait(kubectl, "get replicationcontroller old -o jsonpath='{.status.replicas}'", "1")?;
    let status = kubectl.ok("get replicationcontroller old -o jsonpath='{.status}'")?;
    let owners = sorted(kubectl, "pods", "{.items[*].metadata.ownerReferences[*].kind}")?;
    Ok(format!("{status} | {owners} | {}", events(kubectl, "ReplicationController")?))
}
