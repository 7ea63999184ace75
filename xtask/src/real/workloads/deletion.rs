//! What is deleted with its owner, and what is not.

use anyhow::Result;

use super::{Kubectl, Scenario, wait, wait_for_words};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "delete a deployment in the foreground", run: foreground },
    Scenario { name: "delete a deployment and orphan its sets", run: orphan },
    Scenario { name: "delete a namespace", run: namespace },
];

const OURS: &str = "get deployments,replicasets,pods -o name";

fn start(kubectl: &Kubectl) -> Result<()> {
    kubectl.ok("create deployment web --image=nginx --replicas=3")?;
    kubectl.ok("rollout status deployment/web --timeout=55s").map(drop)
}

fn foreground(kubectl: &Kubectl) -> Result<String> {
    start(kubectl)?;
    kubectl.ok("delete deployment web --cascade=foreground --timeout=55s")?;
    // It was there until all that it owned was gone.
    kubectl.ok(OURS)
}

fn orphan(kubectl: &Kubectl) -> Result<String> {
    start(kubectl)?;
    kubectl.ok("delete deployment web --cascade=orphan --timeout=55s")?;
    let owners = "{.items[*].metadata.ownerReferences}{.items[*].metadata.finalizers}";
    wait(kubectl, &format!("get replicasets -o jsonpath='{owners}'"), "")?;
    wait_for_words(kubectl, OURS, 4)?;
    kubectl.ok("get pods -o jsonpath='{.items[*].metadata.ownerReferences[0].kind}'")
}

fn namespace(kubectl: &Kubectl) -> Result<String> {
    start(kubectl)?;
    kubectl.ok("create configmap settings --from-literal=a=b")?;
    kubectl.ok("delete namespace {ns} --timeout=55s")?;
    kubectl.ok("get namespace {ns} --ignore-not-found")
}
