//! The suite `envtest`: the test environments of Go operators, started from our folder or from the real binaries.
//!
//! controller-runtime's own tests, as its module has them, and a project of ours in the layout of kubebuilder
//! (`xtask/peers/kubebuilder`). Their programs are built once, and run as often as you like.

mod programs;
mod usage;

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use self::programs::{CROWD, PROGRAMS, Program, Programs};
use self::usage::{Usage, Watcher};
use super::peers::{ETCD, KUBE_APISERVER, KUBECTL, Peers};
use super::process::{self, Running};
use super::report::Report;

pub(crate) const SUITE: &str = "envtest";

/// The longest one takes a minute and a half.
const LIMIT: Duration = Duration::from_secs(900);
/// How many environments are started at once.
const CROWD_SIZE: &str = "50";

/// The names of the checks, for `--list`.
pub(crate) fn names() -> impl Iterator<Item = String> {
    PROGRAMS.iter().map(Program::title).chain([CROWD.title()])
}

/// Runs it with our binary in the place of kube-apiserver and etcd.
pub(crate) fn ours(report: &mut Report, peers: &Peers, binary: &Path) {
    run(report, peers, "setpoint", |folder| {
        let mut command = Command::new(binary);
        command.args(["envtest", "--folder"]).arg(folder);
        let made = process::run(command, None, Duration::from_secs(60))?;
        ensure!(made.status.success(), "setpoint envtest: {}", made.stderr.trim());
        with_kubectl(peers, folder)
    });
}

/// Runs it with the real ones.
pub(crate) fn theirs(report: &mut Report, peers: &Peers) {
    run(report, peers, "kube-apiserver and etcd", |folder| {
        for (name, peer) in [("kube-apiserver", &KUBE_APISERVER), ("etcd", &ETCD)] {
            symlink(peers.get(peer)?, folder.join(name))?;
        }
        with_kubectl(peers, folder)
    });
}

fn with_kubectl(peers: &Peers, folder: &Path) -> Result<()> {
    let link = folder.join("kubectl");
    if fs::symlink_metadata(&link).is_ok() {
        fs::remove_file(&link)?;
    }
    Ok(symlink(peers.get(&KUBECTL)?, link)?)
}

fn run(report: &mut Report, peers: &Peers, title: &str, fill: impl FnOnce(&Path) -> Result<()>) {
    if !report.filter().takes_suite(SUITE) {
        return;
    }
    let prepared = (|| {
        let folder = TempDir::new()?;
        fill(folder.path())?;
        Ok::<_, anyhow::Error>((folder, Programs::get(peers)?))
    })();
    let (folder, programs) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return report.skip(SUITE, &format!("{error:#}")),
    };
    let mut total = Usage::default();
    for program in PROGRAMS.iter().chain([&CROWD]) {
        let name = program.title();
        if !report.filter().takes(SUITE, &name) {
            continue;
        }
        let begun = Instant::now();
        let outcome = one(&programs, program, folder.path());
        let took = begun.elapsed();
        let outcome = outcome.map(|(usage, notes)| {
            report.note(SUITE, &format!("{name}: {:.1} s, the servers: {usage}", took.as_secs_f64()));
            for line in notes {
                report.note(SUITE, &line);
            }
            total.add(took, &usage);
        });
        report.record(SUITE, &name, took, outcome);
    }
    report.note(SUITE, &format!("{title}: {:.1} s in all, the servers: {total}", total.wall().as_secs_f64()));
}

/// Runs one program to its end. Gives what its servers have used, and what it says about itself.
fn one(programs: &Programs, program: &Program, assets: &Path) -> Result<(Usage, Vec<String>)> {
    let folder = TempDir::new()?;
    let path = folder.path().join("log");
    let log = File::create(&path)?;
    let mut command = Command::new(programs.binary(program)?);
    command
        .args(["-test.v", "-test.timeout=15m"])
        .args(program.skip().map(|pattern| format!("-test.skip={pattern}")))
        .env("KUBEBUILDER_ASSETS", assets)
        .env("ENVIRONMENTS", CROWD_SIZE)
        .env_remove("SETPOINT_CONTROLLERS")
        .current_dir(programs.folder(program))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    let mut running = Running::start(&mut command)?;
    let watcher = Watcher::start(running.id());
    let status = running.wait(LIMIT);
    let usage = watcher.finish()?;
    let text = String::from_utf8_lossy(&fs::read(&path).context("its log")?).into_owned();
    if !status.as_ref().is_ok_and(std::process::ExitStatus::success) {
        let failed: Vec<&str> = text.lines().filter(|line| is_failure(line)).collect();
        let ended = status.map_or_else(|error| format!("{error:#}"), |status| status.to_string());
        bail!("{ended}\n{}\n{}", failed.join("\n"), last_lines(&text));
    }
    ensure!(usage.left_over() == 0, "{} servers are left over", usage.left_over());
    let notes = text.lines().filter_map(|line| line.trim().split_once("_test.go:")).map(|(_, said)| said);
    let notes = notes.filter(|said| said.contains(" at once in ")).map(|said| said.to_owned());
    Ok((usage, notes.collect()))
}

/// The lines of Go and of Ginkgo that name what has failed.
fn is_failure(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("--- FAIL") || line.starts_with("[FAIL]") || line.starts_with("panic:")
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}
