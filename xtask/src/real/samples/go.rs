//! The sample-controller that is written in Go, unchanged, and ours: one script, the same end.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Programs;
use super::foo::{CRD, EXAMPLE, install};
use super::stage::{LIMIT, Stage};

pub(crate) const NAME: &str = "sample-controller (Go) and ours: same end state, same events";

/// What is compared.
#[derive(Debug, PartialEq)]
struct End {
    /// Replicas that the Deployment wants, has available, and that the Foo says.
    numbers: Vec<(String, i64, i64, i64)>,
    containers: Vec<Value>,
    selectors: Vec<Value>,
    owners: Vec<(String, Value, Value)>,
    /// Type, reason and message of the events about Foos.
    events: BTreeSet<(String, String, String)>,
}

pub(crate) fn run(stage: &Stage, programs: &Programs, theirs: &Path) -> Result<()> {
    install(stage, CRD, "foos.samplecontroller.k8s.io")?;
    let mut go = Command::new(theirs);
    go.arg("-kubeconfig").arg(stage.kubeconfig());
    let in_go = play(stage, go, "go")?;
    let mut rust = programs.command("example-foo");
    rust.arg("--kubeconfig").arg(stage.kubeconfig());
    let in_rust = play(stage, rust, "rust")?;
    ensure!(in_go == in_rust, "they differ:\nGo   {in_go:?}\nRust {in_rust:?}");
    ensure!(in_go.events.len() == 2, "the script makes both events: {:?}", in_go.events);
    Ok(())
}

/// The script, in a namespace of its own.
fn play(stage: &Stage, controller: Command, name: &str) -> Result<End> {
    let namespace = format!("sample-{name}");
    let log = format!("{namespace}.log");
    stage.kubectl(&format!("create namespace {namespace}"))?;
    stage.kubectl(&format!("-n {namespace} create deployment foreign --image=nginx"))?;
    let controller = stage.start(controller, &log)?;
    let end = script(stage, &namespace).with_context(|| format!("{name} says:\n{}", stage.log(&log)))?;
    drop(controller);
    stage.kubectl(&format!("-n {namespace} delete foos --all"))?;
    Ok(end)
}

fn script(stage: &Stage, namespace: &str) -> Result<End> {
    let in_it = |line: &str| format!("-n {namespace} {line}");
    let list = |what: &str| stage.list(&format!("{what} -n {namespace}"));
    let apply = |text: &str| stage.kubectl_with(&in_it("apply -f -"), Some(text));
    let available = |replicas: i64| -> Result<bool> {
        let foos = list("foos")?;
        let found = foos.iter().find(|found| found["metadata"]["name"] == "example-foo");
        Ok(found.is_some_and(|found| found["status"]["availableReplicas"] == replicas))
    };
    apply(EXAMPLE)?;
    stage.until("one replica", LIMIT, || available(1))?;
    stage.kubectl(&in_it("patch foo example-foo --type=merge -p '{\"spec\":{\"replicas\":3}}'"))?;
    stage.until("three replicas", LIMIT, || available(3))?;
    stage.kubectl(&in_it("delete deployment example-foo"))?;
    stage.until("three replicas of a new deployment", LIMIT, || {
        Ok(available(3)? && list("deployments")?.len() == 2)
    })?;
    stage.kubectl(&in_it("scale deployment example-foo --replicas=5"))?;
    stage.until("the replicas are set back", LIMIT, || {
        let deployments = list("deployments")?;
        let ours = deployments.iter().find(|found| found["metadata"]["name"] == "example-foo");
        Ok(available(3)?
            && ours.is_some_and(|found| {
                found["spec"]["replicas"] == 3 && found["status"]["availableReplicas"] == 3
            }))
    })?;
    let renamed = |name: &str, deployment: &str| {
        EXAMPLE
            .replace("  name: example-foo", &format!("  name: {name}"))
            .replace("deploymentName: example-foo", &format!("deploymentName: \"{deployment}\""))
    };
    apply(&renamed("envious", "foreign"))?;
    apply(&renamed("nameless", ""))?;
    stage.until("both events", LIMIT, || Ok(events(stage, namespace)?.len() == 2))?;
    end(stage, namespace)
}

fn end(stage: &Stage, namespace: &str) -> Result<End> {
    let foos = stage.list(&format!("foos -n {namespace}"))?;
    let deployments = stage.list(&format!("deployments -n {namespace}"))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let says = |name: &Value| {
        let found = foos.iter().find(|found| found["spec"]["deploymentName"] == *name);
        found.and_then(|found| found["status"]["availableReplicas"].as_i64()).unwrap_or(0)
    };
    let mut end = End {
        numbers: Vec::new(),
        containers: Vec::new(),
        selectors: Vec::new(),
        owners: Vec::new(),
        events: events(stage, namespace)?,
    };
    for deployment in &deployments {
        let (name, spec) = (&deployment["metadata"]["name"], &deployment["spec"]);
        let number = |value: &Value| value.as_i64().unwrap_or(0);
        let available = number(&deployment["status"]["availableReplicas"]);
        end.numbers.push((text(name), number(&spec["replicas"]), available, says(name)));
        let container = &spec["template"]["spec"]["containers"][0];
        end.containers.push(serde_json::json!([container["name"], container["image"]]));
        end.selectors.push(spec["selector"].clone());
        let owner = &deployment["metadata"]["ownerReferences"][0];
        end.owners.push((
            text(&owner["name"]),
            owner["controller"].clone(),
            owner["blockOwnerDeletion"].clone(),
        ));
    }
    Ok(end)
}

/// The events about Foos, whoever wrote them and however often.
fn events(stage: &Stage, namespace: &str) -> Result<BTreeSet<(String, String, String)>> {
    let events = stage.list(&format!("events -n {namespace}"))?;
    let about_foos = events.iter().filter(|event| event["involvedObject"]["kind"] == "Foo");
    // What we say beyond sample-controller is not compared.
    let known = about_foos.filter(|event| event["reason"] != "DeploymentNameMissing");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(known.map(|event| (text(&event["type"]), text(&event["reason"]), text(&event["message"]))).collect())
}
