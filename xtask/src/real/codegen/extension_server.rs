//! `setpoint new --extension-server` → `cargo test` → `setpoint up` and the program → `kubectl` on its kind.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::{SUITE, Tools};
use crate::real::report::Report;
use crate::real::samples::stage::{LIMIT, Stage};
use crate::real::servers::Server;
use crate::workspace;

pub(super) const NAME: &str = "a new extension server, from nothing to kubectl";

const PROJECT: &str = "tide-server";

pub(super) fn run(report: &mut Report, tools: &Tools<'_>) {
    if !report.filter().takes(SUITE, NAME) {
        return;
    }
    let begun = Instant::now();
    let outcome = check(report, tools);
    report.record(SUITE, NAME, begun.elapsed(), outcome);
}

fn check(report: &Report, tools: &Tools<'_>) -> Result<()> {
    let begun = Instant::now();
    let home = TempDir::new()?;
    let root = workspace::root()?.display().to_string();
    tools.setpoint(
        home.path(),
        &["new", PROJECT, "--extension-server", "--kind", "Tide", "--checkout", &root],
    )?;
    let project = home.path().join(PROJECT);
    let said = tools.cargo(&project, &["test", "--offline"])?;
    let passed = said.lines().filter(|line| line.starts_with("test ") && line.ends_with(" ok")).count();
    ensure!(passed >= 2, "only {passed} tests:\n{said}");
    tools.cargo(&project, &["build", "--offline"])?;
    tools.cargo(&project, &["fmt", "--check"])?;
    let built = begun.elapsed();
    serve(tools, &project)?;
    report.note(
        SUITE,
        &format!(
            "{PROJECT}: {passed} tests passed and built after {:.1} s; served after {:.1} s",
            built.as_secs_f64(),
            begun.elapsed().as_secs_f64()
        ),
    );
    Ok(())
}

/// Runs the program as its README says, and uses its kind.
fn serve(tools: &Tools<'_>, project: &Path) -> Result<()> {
    let server = Server::setpoint(tools.setpoint)?;
    let stage = Stage::new(tools.kubectl.clone(), server.kubeconfig(), tools.setpoint)?;
    let path = |path: &str| project.join(path).display().to_string();
    let rendered = stage.kubectl(&format!("kustomize {}", path("config/default")))?;
    for kind in ["APIService", "Deployment", "Service", "Certificate", "ClusterRoleBinding", "RoleBinding"] {
        ensure!(rendered.contains(&format!("kind: {kind}\n")), "no {kind}:\n{rendered}");
    }
    let mut program = Command::new(tools.target.join("debug").join(PROJECT));
    program.args(["--listen", "127.0.0.1:0", "--kubeconfig"]).arg(server.kubeconfig());
    let _program = stage.start(program, "program.log")?;
    let sample = path("config/samples/tide.yaml");
    let accepted = stage
        .until("the sample is accepted", LIMIT, || Ok(stage.kubectl(&format!("apply -f {sample}")).is_ok()));
    accepted.with_context(|| stage.log("program.log"))?;
    let table = stage.kubectl("get tides")?;
    ensure!(table.contains("MESSAGE") && table.contains("everybody"), "{table}");
    let explained = stage.kubectl("explain tides.spec.message")?;
    ensure!(explained.contains("What it has to say"), "{explained}");
    let described = stage.kubectl("describe tide sample")?;
    ensure!(described.contains("hello"), "{described}");
    stage.kubectl("patch tide sample --type=merge -p {\"spec\":{\"message\":\"bye\"}}")?;
    let blank = std::fs::read_to_string(&sample)?.replace("message: hello", "message: ' '");
    let refused = stage.kubectl_fails("apply -f -", Some(&blank))?;
    ensure!(refused.contains("nothing but space"), "{refused}");
    stage.kubectl("delete tide sample")?;
    Ok(())
}
