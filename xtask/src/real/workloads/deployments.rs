//! Deployments, from their creation to their rollback.

use anyhow::{Result, ensure};

use super::{Kubectl, Scenario, sorted, wait, wait_for_words};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "create a deployment", run: create },
    Scenario { name: "a deleted pod is replaced", run: replace },
    Scenario { name: "set image, history, undo", run: undo },
    Scenario { name: "pause and resume", run: pause },
    Scenario { name: "scale", run: scale },
    Scenario { name: "expose", run: expose },
    Scenario { name: "recreate", run: recreate },
];

fn roll_out(kubectl: &Kubectl) -> Result<()> {
    kubectl.ok("rollout status deployment/web --timeout=55s").map(drop)
}

fn start(kubectl: &Kubectl, replicas: usize) -> Result<()> {
    kubectl.ok(&format!("create deployment web --image=nginx --replicas={replicas}"))?;
    roll_out(kubectl)
}

/// What a Deployment, its sets and its pods say, without names and times.
fn state(kubectl: &Kubectl) -> Result<String> {
    // The last pods end after the rollout is over.
    wait(kubectl, "get deployment web -o jsonpath='{.status.terminatingReplicas}'", "0")?;
    let numbers = "{.status.observedGeneration} {.spec.replicas} {.status.replicas} {.status.updatedReplicas} \
                   {.status.readyReplicas} {.status.availableReplicas} {.status.unavailableReplicas}";
    let numbers = kubectl.ok(&format!("get deployment web -o jsonpath='{numbers}'"))?;
    let conditions = "{range .status.conditions[*]}{.type}={.status}:{.reason} {end}";
    let conditions = sorted(kubectl, "deployment web", conditions)?;
    let sets = "{range .items[*]}{.metadata.annotations.deployment\\.kubernetes\\.io/revision}:{.spec.replicas}:\
                {.status.replicas}:{.status.readyReplicas}:{.status.fullyLabeledReplicas}:\
                {.metadata.annotations.deployment\\.kubernetes\\.io/desired-replicas}:\
                {.metadata.annotations.deployment\\.kubernetes\\.io/max-replicas} {end}";
    let sets = sorted(kubectl, "replicasets", sets)?;
    let revision =
        kubectl.field("deployment web", ".metadata.annotations.deployment\\.kubernetes\\.io/revision")?;
    let pods = kubectl.ok("get pods -o jsonpath='{.items[*].status.phase}'")?;
    let reasons = "{range .items[?(@.involvedObject.kind==\"Deployment\")]}{.type}:{.reason} {end}";
    let reasons = sorted(kubectl, "events", reasons)?;
    Ok(format!("{numbers} | {conditions} | sets {sets} | revision {revision} | pods {pods} | {reasons}"))
}

fn create(kubectl: &Kubectl) -> Result<String> {
    start(kubectl, 8)?;
    kubectl.mentions("get deployment web", &["web", "8/8", "8", "8"])?;
    let set = kubectl.ok("get replicasets -o jsonpath='{.items[0].metadata.name}'")?;
    let described = kubectl.ok("describe deployment web")?;
    let scaled = format!("Scaled up replica set {set} from 0 to 8");
    ensure!(described.contains(&scaled), "describe lacks {scaled:?}: {described}");
    state(kubectl)
}

fn replace(kubectl: &Kubectl) -> Result<String> {
    start(kubectl, 3)?;
    let before = wait_for_words(kubectl, "get pods -o jsonpath='{.items[*].metadata.name}'", 3)?;
    kubectl.ok(&format!("delete pod {}", before[0]))?;
    wait(kubectl, "get deployment web -o jsonpath='{.status.readyReplicas}'", "3")?;
    let after = wait_for_words(kubectl, "get pods -o jsonpath='{.items[*].metadata.name}'", 3)?;
    ensure!(!after.contains(&before[0]), "{} is still there", before[0]);
    state(kubectl)
}

fn undo(kubectl: &Kubectl) -> Result<String> {
    start(kubectl, 4)?;
    kubectl.ok("set image deployment/web nginx=nginx:2")?;
    roll_out(kubectl)?;
    let first = kubectl.ok("rollout history deployment/web")?;
    kubectl.says("rollout undo deployment/web", "deployment.apps/web rolled back")?;
    roll_out(kubectl)?;
    let second = kubectl.ok("rollout history deployment/web")?;
    let image = kubectl.field("deployment web", ".spec.template.spec.containers[0].image")?;
    Ok(format!("{} | {first} | {second} | {image}", state(kubectl)?))
}

fn pause(kubectl: &Kubectl) -> Result<String> {
    start(kubectl, 3)?;
    kubectl.says("rollout pause deployment/web", "deployment.apps/web paused")?;
    kubectl.ok("set image deployment/web nginx=nginx:2")?;
    kubectl.ok("scale deployment/web --replicas=4")?;
    wait(kubectl, "get deployment web -o jsonpath='{.status.readyReplicas}'", "4")?;
    let reason = "{.status.conditions[?(@.type==\"Progressing\")].reason}";
    let reason = kubectl.ok(&format!("get deployment web -o jsonpath='{reason}'"))?;
    let paused = kubectl.ok("get replicasets -o jsonpath='{.items[*].spec.replicas}'")?;
    kubectl.says("rollout resume deployment/web", "deployment.apps/web resumed")?;
    roll_out(kubectl)?;
    Ok(format!("{reason} {paused} | {}", state(kubectl)?))
}

fn scale(kubectl: &Kubectl) -> Result<String> {
    start(kubectl, 2)?;
    for replicas in [6, 1] {
        kubectl.ok(&format!("scale deployment/web --replicas={replicas}"))?;
        roll_out(kubectl)?;
    }
    wait_for_words(kubectl, "get pods -o name", 1)?;
    state(kubectl)
}

fn expose(kubectl: &Kubectl) -> Result<String> {
    start(kubectl, 3)?;
    kubectl.says("expose deployment web --port=80", "service/web exposed")?;
    let slices = "get endpointslices -l kubernetes.io/service-name=web -o";
    wait_for_words(kubectl, &format!("{slices} jsonpath='{{.items[*].endpoints[*].addresses[0]}}'"), 3)?;
    let ready =
        "{range .items[*].endpoints[*]}{.conditions.ready}:{.conditions.serving}:{.targetRef.kind} {end}";
    let slices = kubectl.ok(&format!("{slices} jsonpath='{ready}{{.items[*].ports[*].port}}'"))?;
    let endpoints = "get endpoints web -o";
    wait_for_words(kubectl, &format!("{endpoints} jsonpath='{{.subsets[*].addresses[*].ip}}'"), 3)?;
    let subsets = "{range .subsets[*]}{range .addresses[*]}{.targetRef.kind} {end}{.ports}{end}";
    let endpoints = kubectl.ok(&format!("{endpoints} jsonpath='{{.metadata.labels}} {subsets}'"))?;
    Ok(format!("{slices} {endpoints}"))
}

fn recreate(kubectl: &Kubectl) -> Result<String> {
    start(kubectl, 3)?;
    let strategy = "{\"spec\":{\"strategy\":{\"type\":\"Recreate\",\"rollingUpdate\":null}}}";
    kubectl.ok(&format!("patch deployment web -p '{strategy}'"))?;
    kubectl.ok("set image deployment/web nginx=nginx:2")?;
    roll_out(kubectl)?;
    wait_for_words(kubectl, "get pods -o name", 3)?;
    state(kubectl)
}
