//! The suite `sim-proxy`: controllers in Rust and in Go behind `setpoint sim proxy`, which kills them and cuts them off at
//! exact points. They come to the right end all the same.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::peers::{KUBECTL, Peers, SAMPLE_CONTROLLER};
use super::report::Report;
use super::samples::foo::{CRD, EXAMPLE, install};
use super::samples::stage::{LIMIT, Stage};
use super::servers::Server;
use crate::workspace::Program;

pub(crate) const SUITE: &str = "sim-proxy";

const RUST: &str = "foo (Rust): killed after a commit, answers lost, watches cut and expired";
const GO: &str = "sample-controller (Go): the same";
const SEEDED: &str = "foo (Rust): faults that a seed chooses";

pub(crate) const NAMES: [&str; 3] = [RUST, GO, SEEDED];

/// All of them have to take place.
const FAULTS: &str = "\
on 1st create deployments.apps: crash after commit
on 1st write foos.samplecontroller.k8s.io/*: lose answer
on 2nd write foos.samplecontroller.k8s.io/*: crash before
on 4th write foos.samplecontroller.k8s.io/*: refuse 500
on watch foos.samplecontroller.k8s.io: cut after 1 event
on watch deployments.apps: expire after 2 events
";

pub(crate) fn run(report: &mut Report, peers: &Peers, setpoint: &Path, skip_build: bool) {
    if !report.filter().takes_suite(SUITE) {
        return;
    }
    let prepared = peers.get(&KUBECTL).and_then(|kubectl| {
        let ours = Program { package: "example-foo", name: "example-foo", profile: "dev", arguments: &[] };
        let server = Server::setpoint(setpoint)?;
        let stage = Stage::new(kubectl, server.kubeconfig(), setpoint)?;
        let cluster = stage.cluster()?;
        install(&stage, CRD, "foos.samplecontroller.k8s.io")?;
        Ok((ours.get(skip_build)?, server, stage, cluster))
    });
    let (ours, _server, stage, _cluster) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return report.skip(SUITE, &format!("{error:#}")),
    };
    let faults = stage.folder().join("faults");
    if let Err(error) = std::fs::write(&faults, FAULTS) {
        return report.skip(SUITE, &error.to_string());
    }
    let script = ["--faults".into(), faults];
    report.check(SUITE, RUST, || {
        check(&stage, setpoint, "rust", &script, &ours, &["--kubeconfig", "{kubeconfig}"])
    });
    match peers.get(&SAMPLE_CONTROLLER) {
        Ok(theirs) => report.check(SUITE, GO, || {
            check(&stage, setpoint, "go", &script, &theirs, &["-kubeconfig", "{kubeconfig}"])
        }),
        Err(error) => report.skip(GO, &format!("{error:#}")),
    }
    let seed = ["--seed", "5", "--chance", "0.05", "--heal-after", "20s"].map(PathBuf::from);
    report.check(SUITE, SEEDED, || {
        check(&stage, setpoint, "seeded", &seed, &ours, &["--kubeconfig", "{kubeconfig}"])
    });
}

/// A Foo is applied, scaled and deleted, with the controller behind the proxy, in a namespace of its own.
fn check(
    stage: &Stage,
    setpoint: &Path,
    name: &str,
    faults: &[PathBuf],
    controller: &Path,
    arguments: &[&str],
) -> Result<()> {
    let namespace = format!("behind-{name}");
    stage.kubectl(&format!("create namespace {namespace}"))?;
    let (log, said) = (stage.folder().join(format!("{name}.requests")), format!("{name}.log"));
    let mut command = Command::new(setpoint);
    command.args(["sim", "proxy", "--kubeconfig"]).arg(stage.kubeconfig()).arg("--log").arg(&log);
    command.args(faults).arg("--").arg(controller).args(arguments);
    let proxy = stage.start(command, &said)?;
    let told = || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let last: Vec<&str> = text.lines().rev().take(40).collect();
        format!("the proxy says:\n{}\nits log ends (last line first):\n{}", stage.log(&said), last.join("\n"))
    };
    script(stage, &namespace).with_context(told)?;
    let status = proxy.terminate(Duration::from_secs(20)).with_context(told)?;
    ensure!(status.success(), "{status}\n{}", told());
    Ok(())
}

fn script(stage: &Stage, namespace: &str) -> Result<()> {
    let in_it = |line: &str| format!("-n {namespace} {line}");
    let available = |replicas: i64| {
        let found = stage.get(&in_it("foo example-foo"))?;
        Ok(found.is_some_and(|found| found["status"]["availableReplicas"] == replicas))
    };
    stage.kubectl_with(&in_it("apply -f -"), Some(EXAMPLE))?;
    stage.until("one replica", LIMIT, || available(1))?;
    stage.kubectl(&in_it("patch foo example-foo --type=merge -p '{\"spec\":{\"replicas\":3}}'"))?;
    stage.until("three replicas", LIMIT, || available(3))?;
    let deployments = stage.list(&in_it("deployments"))?;
    ensure!(deployments.len() == 1, "there are {} Deployments", deployments.len());
    stage.kubectl(&in_it("delete foo example-foo"))?;
    stage.until("the Deployment is gone", LIMIT, || Ok(stage.list(&in_it("deployments"))?.is_empty()))
}
