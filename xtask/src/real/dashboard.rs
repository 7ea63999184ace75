//! The suite `dashboard`: the page in Chromium, as users see it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use super::peers::Peers;
use super::process;
use super::report::Report;
use crate::workspace::{Program, root, target};

pub(crate) const SUITE: &str = "dashboard";

/// What the suite says last.
const DONE: &str = "done";
/// With a debug build on a busy machine; it takes about three minutes otherwise.
const LIMIT: Duration = Duration::from_secs(1800);
const INSTALL_LIMIT: Duration = Duration::from_secs(600);
/// What is had from the npm registry, for this suite alone.
const PACKAGES: [&str; 2] = ["axe-core@4.11.0", "typescript@5.9.3"];
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

pub(crate) const NAMES: [&str; 2] =
    ["the types of its scripts", "in a browser: see xtask/dashboard/suite.mjs"];

pub(crate) fn run(
    report: &mut Report,
    peers: &Peers,
    setpoint: &Path,
    profile: &str,
    (skip_build, takes_pictures): (bool, bool),
) {
    if !report.filter().takes_suite(SUITE) {
        return;
    }
    let packages = match install(peers) {
        Ok(packages) => packages,
        Err(error) => return report.skip(SUITE, &format!("{error:#}")),
    };
    report.check(SUITE, NAMES[0], || check_types(&packages));
    let Some(chromium) = BROWSERS.into_iter().find(|name| is_there(name)) else {
        return report.skip(SUITE, "there is no Chromium; install the package chromium");
    };
    let outcome = crowd(profile, skip_build)
        .and_then(|crowd| browse(setpoint, &crowd, chromium, &packages, takes_pictures));
    match outcome {
        Ok((said, is_well)) => {
            said.lines().filter(|line| *line != DONE).for_each(|line| tell(report, line));
            if let Err(error) = has_ended(&said, is_well) {
                report.record(SUITE, NAMES[1], Duration::ZERO, Err(error));
            }
        }
        Err(error) => report.record(SUITE, NAMES[1], Duration::ZERO, Err(error)),
    }
}

/// Whether the suite came to its end: what it says of the checks until then is no more than that.
fn has_ended(said: &str, is_well: bool) -> Result<()> {
    ensure!(said.lines().any(|line| line == DONE), "the suite ended before all of its checks were run");
    let has_failed = said.lines().any(|line| line.starts_with("FAIL "));
    let has_run = has_failed || said.lines().any(|line| line.starts_with("ok "));
    ensure!(has_run, "the suite ran no check");
    ensure!(is_well || has_failed, "the suite failed, and does not say why");
    Ok(())
}

/// One line of the suite.
fn tell(report: &mut Report, line: &str) {
    let (verdict, rest) = line.split_once(' ').unwrap_or((line, ""));
    let (name, took) = rest.split_once(" (").unwrap_or((rest, ""));
    let millis = took.split(' ').next().and_then(|millis| millis.parse().ok()).unwrap_or(0);
    let took_time = Duration::from_millis(millis);
    match verdict {
        "ok" => report.record(SUITE, name, took_time, Ok(())),
        "FAIL" => {
            let why = took.split_once("): ").map_or(took, |(_, why)| why).to_owned();
            report.record(SUITE, name, took_time, Err(anyhow!(why)));
        }
        _ => report.note(SUITE, rest),
    }
}

/// Whether a program can be run.
fn is_there(name: &str) -> bool {
    let mut command = Command::new(name);
    command.arg("--version");
    process::run(command, None, Duration::from_secs(30)).is_ok_and(|ended| ended.status.success())
}

/// Where the packages are.
fn install(peers: &Peers) -> Result<PathBuf> {
    ensure!(is_there("node") && is_there("npm"), "there is no Node.js; install the packages nodejs and npm");
    let folder = peers.cache().join("npm");
    let modules = folder.join("node_modules");
    if modules.join("axe-core/axe.min.js").exists() && modules.join("typescript/lib/tsc.js").exists() {
        return Ok(modules);
    }
    std::fs::create_dir_all(&folder).context("cannot make a folder for npm")?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(&folder).args(PACKAGES);
    let finished = process::run(npm, None, INSTALL_LIMIT)?;
    ensure!(finished.status.success(), "npm does not install: {}", finished.stderr);
    Ok(modules)
}

fn web() -> Result<PathBuf> {
    Ok(root()?.join("crates/setpoint-dashboard/web"))
}

fn check_types(packages: &Path) -> Result<()> {
    let mut tsc = Command::new("node");
    tsc.arg(packages.join("typescript/lib/tsc.js")).arg("-p").arg(web()?.join("tsconfig.json"));
    let finished = process::run(tsc, None, INSTALL_LIMIT)?;
    ensure!(finished.status.success(), "{}", finished.stdout);
    Ok(())
}

/// The example that has very much to show.
fn crowd(profile: &str, skip_build: bool) -> Result<PathBuf> {
    // Together with the command: alone, it would have other features, and everything below it would be built a second time.
    let arguments = ["--example", "crowd", "-p", "setpoint-cli", "--bin", "setpoint"];
    Program { package: "setpoint-dashboard", name: "examples/crowd", profile, arguments: &arguments }
        .get(skip_build)
}

/// What the suite says, and whether it ended well.
fn browse(
    setpoint: &Path,
    crowd: &Path,
    chromium: &str,
    packages: &Path,
    takes_pictures: bool,
) -> Result<(String, bool)> {
    let root = root()?;
    let shots = target(root).join("dashboard");
    let mut node = Command::new("node");
    node.arg(root.join("xtask/dashboard/suite.mjs"))
        .arg("--setpoint")
        .arg(setpoint)
        .arg("--crowd")
        .arg(crowd)
        .args(["--chromium", chromium])
        .arg("--axe")
        .arg(packages.join("axe-core/axe.min.js"))
        .arg("--shots")
        .arg(&shots);
    if takes_pictures {
        node.arg("--pictures").arg(root.join("docs/img"));
    }
    let finished = process::run(node, None, LIMIT)?;
    let said = finished.stdout;
    ensure!(!said.trim().is_empty(), "the suite said nothing: {}", finished.stderr);
    Ok((format!("{said}note pictures of each view are in {}\n", shots.display()), finished.status.success()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_that_dies_after_some_checks_has_not_passed() {
        has_ended("ok one (1 ms)\nok two (2 ms)\ndone\n", true).unwrap();
        assert!(has_ended("ok one (1 ms)\n", false).is_err(), "killed in the middle");
        assert!(has_ended("ok one (1 ms)\n", true).is_err(), "ended in the middle");
        assert!(has_ended("ok one (1 ms)\ndone\n", false).is_err(), "failed, and no check did");
        has_ended("FAIL one (1 ms): no\ndone\n", false).unwrap();
        assert!(has_ended("note nothing to do\ndone\n", true).is_err(), "no check was run");
    }
}
