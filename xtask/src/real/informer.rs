//! The suite `informer`: our informer, as a program of its own, against a server that changes, forgets its
//! history, and goes away. There are two of them, side by side: one asks for JSON, one for protobuf.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::process::Lines;
use super::report::Report;
use super::servers::Server;
use crate::workspace;

pub(crate) const SUITE: &str = "informer";
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) const NAMES: [&str; 4] = [
    "it syncs by what is there",
    "it tells of creates, updates and deletes",
    "it goes on after the server was restarted",
    "it lists again when the history is compacted",
];

/// The checks go on from each other: they run all or not at all.
pub(crate) fn run(report: &mut Report, program: &Path, server: &mut Server) {
    let [syncs, tells, goes_on, lists_again] = NAMES;
    let mut session = None;
    report.check(SUITE, syncs, || {
        session = Some(Session::start(program, server)?);
        Ok(())
    });
    let Some(mut session) = session else { return };
    report.check(SUITE, tells, || session.changes(server));
    if !server.can_restart() {
        return report.skip(SUITE, "restart and compaction: this server keeps nothing over a restart");
    }
    report.check(SUITE, goes_on, || session.restart(server));
    report.check(SUITE, lists_again, || session.compaction(server));
}

struct Session {
    programs: Vec<Lines>,
}

const MAPS: &str = "/api/v1/namespaces/informer/configmaps";

impl Session {
    fn start(program: &Path, server: &Server) -> Result<Self> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "informer"}});
        write(server, "POST", "/api/v1/namespaces", Some(&namespace))?;
        for name in ["a", "b", "c"] {
            write(server, "POST", MAPS, Some(&map(name, "1")))?;
        }
        let programs = ["json", "protobuf"].map(|format| Self::start_one(program, server, format));
        Ok(Self { programs: programs.into_iter().collect::<Result<_>>()? })
    }

    fn start_one(program: &Path, server: &Server, format: &str) -> Result<Lines> {
        let mut command = Command::new(program);
        command.args(["informer", format]).env("KUBECONFIG", server.kubeconfig());
        let mut lines = Lines::start(command)?;
        let mut told: Vec<String> = Vec::new();
        loop {
            let line = lines.next(LIMIT)?;
            if line.starts_with("synced") {
                ensure!(line == "synced 3", "{line}");
                break;
            }
            told.push(line);
        }
        while told.len() < 3 {
            told.push(lines.next(LIMIT)?);
        }
        told.sort();
        ensure!(told == ["added informer/a 1", "added informer/b 1", "added informer/c 1"], "told {told:?}");
        Ok(lines)
    }

    fn expect(&mut self, line: &str) -> Result<()> {
        for lines in &mut self.programs {
            let told = lines.next(LIMIT)?;
            if told != line {
                bail!("told {told:?} instead of {line:?}");
            }
        }
        Ok(())
    }

    fn changes(&mut self, server: &Server) -> Result<()> {
        write(server, "POST", MAPS, Some(&map("d", "1")))?;
        self.expect("added informer/d 1")?;
        write(server, "PUT", &format!("{MAPS}/d"), Some(&map("d", "2")))?;
        self.expect("updated informer/d 2")?;
        write(server, "DELETE", &format!("{MAPS}/d"), None)?;
        self.expect("deleted informer/d 2")
    }

    fn restart(&mut self, server: &mut Server) -> Result<()> {
        server.restart()?;
        write(server, "PUT", &format!("{MAPS}/a"), Some(&map("a", "2")))?;
        self.expect("updated informer/a 2")
    }

    /// While the informer stands still, its connection ends, objects come and go, and history is given up: what it
    /// resumes from is not there any more (410), and only a new list shows the delete.
    fn compaction(&mut self, server: &mut Server) -> Result<()> {
        self.signal("-STOP")?;
        // What is sent over a connection that lives waits in it, however long the informer stands still.
        server.restart()?;
        let before = version(server)?;
        write(server, "DELETE", &format!("{MAPS}/b"), None)?;
        write(server, "POST", MAPS, Some(&map("e", "1")))?;
        write(server, "PUT", &format!("{MAPS}/c"), Some(&map("c", "2")))?;
        server.compact()?;
        server.restart()?;
        let watch = format!("{MAPS}?watch=true&timeoutSeconds=1&resourceVersion={before}");
        let answer = server.client()?.send("GET", &watch, "application/json", None)?.text()?;
        ensure!(answer.contains(r#""code":410"#), "the history is still there: {answer}");
        self.signal("-CONT")?;
        for lines in &mut self.programs {
            let mut told = Vec::new();
            for _ in 0..3 {
                told.push(lines.next(LIMIT)?);
            }
            told.sort();
            ensure!(
                told == ["added informer/e 1", "deleted informer/b 1", "updated informer/c 2"],
                "told {told:?}"
            );
        }
        Ok(())
    }

    fn signal(&self, signal: &str) -> Result<()> {
        for lines in &self.programs {
            let id = lines.id().to_string();
            let sent = Command::new("kill").args([signal, &id]).status().context("cannot run kill")?;
            ensure!(sent.success(), "kill {signal} failed");
        }
        Ok(())
    }
}

fn map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": value}})
}

fn write(server: &Server, method: &str, path: &str, body: Option<&Value>) -> Result<()> {
    let response = server.client()?.send(method, path, "application/json", body)?;
    let status = response.status;
    ensure!((200..300).contains(&status), "{method} {path}: {status} {}", response.text()?);
    Ok(())
}

/// The version of the server's newest change.
fn version(server: &Server) -> Result<String> {
    let list: Value =
        serde_json::from_str(&server.client()?.send("GET", MAPS, "application/json", None)?.text()?)?;
    list["metadata"]["resourceVersion"].as_str().map(str::to_owned).context("a list without a version")
}

/// The example `informer` of the crate `setpoint`. The tests have built it already, as a rule.
pub(crate) fn program(root: &Path, target: &Path, skip_build: bool) -> Result<PathBuf> {
    let program = target.join("debug").join("examples").join("informer");
    if !program.exists() && !skip_build {
        let build = ["build", "-p", "setpoint", "--example", "informer"];
        let status = workspace::cargo(root).args(build).status().context("cannot run cargo")?;
        ensure!(status.success(), "the example does not build");
    }
    ensure!(program.exists(), "{} is not there: run without --skip-build", program.display());
    Ok(program)
}
