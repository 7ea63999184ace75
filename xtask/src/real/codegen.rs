//! The suite `codegen`: new projects from nothing to a reconciled object, and the CRDs of well-known projects through
//! types and back.

mod crds;
mod extension_server;
mod kopium;
mod outcome;
mod project;
mod round_trip;
mod sources;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use self::project::VARIANTS;
use super::peers::{KUBECTL, Peers};
use super::process;
use super::report::Report;
use super::servers::Reference;
use crate::workspace;

pub(crate) const SUITE: &str = "codegen";

/// What cargo may take, also on a busy machine and with nothing built yet.
const BUILD_LIMIT: Duration = Duration::from_secs(1800);

pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    VARIANTS.iter().map(|variant| variant.name).chain([extension_server::NAME, round_trip::NAME])
}

/// What every check needs.
struct Tools<'a> {
    setpoint: &'a Path,
    kubectl: PathBuf,
    /// Of this workspace.
    root: &'a Path,
    /// Shared with the workspace, so that dependencies are compiled once.
    target: &'a Path,
    cache: &'a Path,
    may_build: bool,
}

/// Runs every check.
pub(crate) fn run(
    report: &mut Report,
    peers: &Peers,
    setpoint: &Path,
    root: &Path,
    target: &Path,
    skip_build: bool,
) {
    if !report.filter().takes_suite(SUITE) {
        return;
    }
    let kubectl = match peers.get(&KUBECTL) {
        Ok(kubectl) => kubectl,
        Err(error) => return report.skip(SUITE, &format!("{error:#}")),
    };
    let tools = Tools { setpoint, kubectl, root, target, cache: peers.cache(), may_build: !skip_build };
    for variant in VARIANTS {
        project::run(report, &tools, variant);
    }
    extension_server::run(report, &tools);
    if report.filter().takes(SUITE, round_trip::NAME) {
        let reference = Reference::get(peers);
        round_trip::run(report, &tools, reference.as_ref().map_err(|error| format!("{error:#}")));
    }
}

impl Tools<'_> {
    fn cargo(&self, folder: &Path, arguments: &[&str]) -> Result<String> {
        let mut cargo = workspace::cargo(folder);
        cargo.args(arguments).env("CARGO_TARGET_DIR", self.target);
        succeed(cargo, BUILD_LIMIT)
    }

    /// `setpoint gen`, which compiles the project.
    fn generate(&self, folder: &Path, arguments: &[&str]) -> Result<String> {
        let mut setpoint = Command::new(self.setpoint);
        setpoint.args(arguments).current_dir(folder).env("CARGO_TARGET_DIR", self.target);
        workspace::forget_package(&mut setpoint);
        succeed(setpoint, BUILD_LIMIT)
    }

    fn setpoint(&self, folder: &Path, arguments: &[&str]) -> Result<String> {
        let mut setpoint = Command::new(self.setpoint);
        setpoint.args(arguments).current_dir(folder);
        succeed(setpoint, Duration::from_secs(120))
    }
}

/// Runs a command that must succeed, and returns what it says.
fn succeed(command: Command, limit: Duration) -> Result<String> {
    let name = format!("{command:?}");
    let done = process::run(command, None, limit).with_context(|| name.clone())?;
    let errors: Vec<&str> = done.stderr.lines().collect();
    let last = errors[errors.len().saturating_sub(40)..].join("\n");
    let output: Vec<&str> = done.stdout.lines().collect();
    let said = output[output.len().saturating_sub(30)..].join("\n");
    ensure!(done.status.success(), "{name} failed:\n{said}\n{last}");
    Ok(done.stdout)
}
