//! Foo with kubectl, from apply to clean-up.

use anyhow::{Context, Result, ensure};

use super::Programs;
use super::stage::{LIMIT, Stage, ready};
use crate::real::process::Running;

pub(crate) const NAME: &str = "foo: applied, scaled, healed, refused and cleaned up";

pub(crate) const CRD: &str = include_str!("../../../../examples/foo/manifests/crd.yaml");
pub(crate) const EXAMPLE: &str = include_str!("../../../../examples/foo/manifests/example-foo.yaml");

/// Installs the custom resource and waits until it is served.
pub(crate) fn install(stage: &Stage, crd: &str, name: &str) -> Result<()> {
    stage.kubectl_with("apply -f -", Some(crd))?;
    stage.kubectl(&format!("wait --for=condition=Established --timeout=60s crd/{name}")).map(drop)
}

fn start(stage: &Stage, programs: &Programs) -> Result<Running> {
    let mut command = programs.command("example-foo");
    command.arg("--kubeconfig").arg(stage.kubeconfig());
    stage.start(command, "foo.log")
}

pub(crate) fn run(stage: &Stage, programs: &Programs) -> Result<()> {
    install(stage, CRD, "foos.samplecontroller.k8s.io")?;
    let _controller = start(stage, programs)?;
    let outcome = scenario(stage);
    outcome.with_context(|| format!("the controller says:\n{}", stage.log("foo.log")))
}

fn scenario(stage: &Stage) -> Result<()> {
    stage.kubectl_with("apply -f -", Some(EXAMPLE))?;
    stage.until("one replica is available", LIMIT, || has(stage, 1))?;
    let table = stage.kubectl("get foos")?;
    ensure!(table.contains("AVAILABLE") && table.contains("example-foo"), "{table}");
    stage.until("the event Synced", LIMIT, || {
        Ok(stage.kubectl("describe foo example-foo")?.contains("Foo synced successfully"))
    })?;

    stage.kubectl("patch foo example-foo --type=merge -p '{\"spec\":{\"replicas\":3}}'")?;
    stage.until("three replicas are available", LIMIT, || has(stage, 3))?;

    let uid = |stage: &Stage| -> Result<String> {
        let found = stage.get("deployment example-foo")?;
        Ok(found.map(|found| found["metadata"]["uid"].to_string()).unwrap_or_default())
    };
    let first = uid(stage)?;
    stage.kubectl("delete deployment example-foo")?;
    stage.until("the deployment is back", LIMIT, || {
        let now = uid(stage)?;
        Ok(!now.is_empty() && now != first)
    })?;
    stage.until("three replicas again", LIMIT, || has(stage, 3))?;

    let refused = stage.kubectl_fails("apply -f -", Some(&EXAMPLE.replace("replicas: 1", "replicas: 11")))?;
    let words = "spec.replicas: Invalid value: 11: spec.replicas in body should be less than or equal to 10";
    ensure!(refused.contains(words), "{refused}");

    let nameless = EXAMPLE
        .replace("name: example-foo", "name: nameless")
        .replace("deploymentName: example-foo", "deploymentName: \"\"");
    stage.kubectl_with("apply -f -", Some(&nameless))?;
    stage.until("a condition says what is missing", LIMIT, || {
        Ok(stage.get("foo nameless")?.is_some_and(|found| ready(&found).1 == "DeploymentNameMissing"))
    })?;

    stage.kubectl("create deployment foreign --image=nginx")?;
    let wants_it = EXAMPLE
        .replace("name: example-foo", "name: envious")
        .replace("deploymentName: example-foo", "deploymentName: foreign");
    stage.kubectl_with("apply -f -", Some(&wants_it))?;
    stage.until("a condition says whose it is", LIMIT, || {
        Ok(stage.get("foo envious")?.is_some_and(|found| ready(&found).1 == "ErrResourceExists"))
    })?;
    stage.kubectl("delete foo nameless envious")?;
    stage.kubectl("delete deployment foreign")?;

    stage.kubectl("delete foo example-foo")?;
    stage.until("everything is cleaned up", LIMIT, || {
        Ok(stage.get("deployment example-foo")?.is_none()
            && stage.list("pods -l controller=example-foo")?.is_empty()
            && stage.list("replicasets -l controller=example-foo")?.is_empty())
    })
}

/// Whether Foo and Deployment agree on so many replicas.
fn has(stage: &Stage, replicas: i64) -> Result<bool> {
    let Some(found) = stage.get("foo example-foo")? else { return Ok(false) };
    let pods = stage.list("pods -l controller=example-foo --field-selector=status.phase=Running")?;
    Ok(found["status"]["availableReplicas"] == replicas
        && ready(&found).0 == "True"
        && pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).count() as i64
            == replicas)
}
