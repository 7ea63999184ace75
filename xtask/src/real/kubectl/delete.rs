//! kubectl delete.

use anyhow::Result;

use super::{Kubectl, Scenario};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "delete one and wait", run: one },
    Scenario { name: "delete -l and --all", run: many },
    Scenario { name: "delete -f", run: by_file },
    Scenario { name: "delete --wait=false leaves finalizers to others", run: finalizer },
    Scenario { name: "delete a pod at once", run: pod },
    Scenario { name: "delete a namespace: it terminates and takes nothing new", run: namespace },
];

fn one(k: &Kubectl) -> Result<()> {
    k.ok("create cm c")?;
    k.says("delete cm c", "configmap \"c\" deleted from {ns} namespace")?;
    k.fails("delete cm c", "Error from server (NotFound): configmaps \"c\" not found")?;
    k.says("delete cm c --ignore-not-found", "")?;
    k.ok("create deployment web --image=nginx")?;
    k.says("delete deployment/web --wait=false", "deployment.apps \"web\" deleted from {ns} namespace")?;
    k.says("get deploy -o name", "")?;
    k.ok("create clusterrole {ns} --verb=get --resource=pods")?;
    k.says("delete clusterrole {ns}", "clusterrole.rbac.authorization.k8s.io \"{ns}\" deleted")
}

fn many(k: &Kubectl) -> Result<()> {
    for name in ["a", "b", "c", "d"] {
        k.ok(&format!("create cm {name}"))?;
    }
    k.ok("label cm a b doomed=yes")?;
    k.says(
        "delete cm -l doomed=yes",
        "configmap \"a\" deleted from {ns} namespace\nconfigmap \"b\" deleted from {ns} namespace",
    )?;
    k.says("get cm -o name", "configmap/c\nconfigmap/d")?;
    k.says("delete cm --field-selector metadata.name=c", "configmap \"c\" deleted from {ns} namespace")?;
    k.says("delete cm --all", "configmap \"d\" deleted from {ns} namespace")?;
    k.says("delete cm --all", "No resources found")?;
    k.says("get cm -o name", "")
}

fn by_file(k: &Kubectl) -> Result<()> {
    k.file("c.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}\n")?;
    k.ok("create --validate=false -f c.yaml")?;
    k.says("delete -f c.yaml", "configmap \"c\" deleted from {ns} namespace")?;
    k.fails(
        "delete -f c.yaml",
        "Error from server (NotFound): error when deleting \"c.yaml\": configmaps \"c\" not found",
    )
}

fn finalizer(k: &Kubectl) -> Result<()> {
    k.ok("create cm held")?;
    k.ok(r#"patch cm held --type=merge -p '{"metadata":{"finalizers":["example.com/hold"]}}'"#)?;
    k.says("delete cm held --wait=false", "configmap \"held\" deleted from {ns} namespace")?;
    k.mentions(
        "get cm held -o jsonpath='{.metadata.deletionGracePeriodSeconds} {.metadata.deletionTimestamp}'",
        &["0 20"],
    )?;
    k.fails(
        r#"patch cm held --type=json -p '[{"op":"add","path":"/metadata/finalizers/-","value":"example.com/more"}]'"#,
        "The ConfigMap \"held\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the \
         object is being deleted, found new finalizers []string{\"example.com/more\"}",
    )?;
    k.ok(r#"patch cm held --type=merge -p '{"metadata":{"finalizers":null}}'"#)?;
    k.fails("get cm held", "Error from server (NotFound): configmaps \"held\" not found")
}

/// A pod that no node has taken is gone at once, whatever its grace period.
fn pod(k: &Kubectl) -> Result<()> {
    k.ok("run p --image=nginx")?;
    k.says("delete pod p", "pod \"p\" deleted from {ns} namespace")?;
    k.ok(r#"run q --image=nginx --overrides='{"spec":{"nodeName":"node-1"}}'"#)?;
    // On a node, its kubelet has the last word.
    k.says("delete pod q --wait=false", "pod \"q\" deleted from {ns} namespace")?;
    k.says("get pod q -o jsonpath='{.metadata.deletionGracePeriodSeconds}'", "30")?;
    k.says("delete pod q --now --wait=false", "pod \"q\" deleted from {ns} namespace")?;
    k.says("get pod q -o jsonpath='{.metadata.deletionGracePeriodSeconds}'", "1")?;
    k.mentions("delete pod q --grace-period=0 --force", &["pod \"q\" force deleted"])?;
    k.says("get pods -o name", "")
}

fn namespace(k: &Kubectl) -> Result<()> {
    k.ok("create cm before")?;
    k.says("delete namespace {ns} --wait=false", "namespace \"{ns}\" deleted")?;
    k.says("get ns {ns} -o jsonpath='{.status.phase}'", "Terminating")?;
    k.fails(
        "create cm after",
        "error: failed to create configmap: configmaps \"after\" is forbidden: unable to create new content in \
         namespace {ns} because it is being terminated",
    )
}
