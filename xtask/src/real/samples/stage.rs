//! One server, kubectl, and a folder for files.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::real::process::{self, Running, poll};

/// No step of these checks needs longer, even on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct Stage {
    kubectl: PathBuf,
    kubeconfig: PathBuf,
    setpoint: PathBuf,
    folder: TempDir,
}

impl Stage {
    pub(crate) fn new(kubectl: PathBuf, kubeconfig: &Path, setpoint: &Path) -> Result<Stage> {
        let (kubeconfig, setpoint) = (kubeconfig.to_owned(), setpoint.to_owned());
        Ok(Stage { kubectl, kubeconfig, setpoint, folder: TempDir::new()? })
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The built-in controllers and simulated nodes beside the server, until they are dropped.
    pub(crate) fn cluster(&self) -> Result<Running> {
        let mut command = Command::new(&self.setpoint);
        command.args(["cluster", "--nodes", "2", "--kubeconfig"]).arg(&self.kubeconfig);
        let running = self.start(command, "cluster.log")?;
        let ready = poll(LIMIT, || {
            let nodes = self.kubectl("get nodes -o name").unwrap_or_default();
            Ok((nodes.lines().count() >= 2).then_some(()))
        })?;
        ensure!(ready.is_some(), "setpoint cluster brings no nodes: {}", self.log("cluster.log"));
        Ok(running)
    }

    /// Starts a program that runs until it is dropped; what it says is in the folder.
    pub(crate) fn start(&self, mut command: Command, log: &str) -> Result<Running> {
        let log = std::fs::File::create(self.folder.path().join(log))?;
        command.env("KUBECONFIG", &self.kubeconfig).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Running::start(&mut command)
    }

    /// The end of a log, for a message.
    pub(crate) fn log(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }

    /// Runs kubectl, which must succeed. Words are separated by spaces and quoted by `'`.
    pub(crate) fn kubectl(&self, line: &str) -> Result<String> {
        self.kubectl_with(line, None)
    }

    pub(crate) fn kubectl_with(&self, line: &str, input: Option<&str>) -> Result<String> {
        let (succeeded, text) = self.try_kubectl(line, input)?;
        ensure!(succeeded, "kubectl {line}: {text}");
        Ok(text)
    }

    /// Runs kubectl, which must fail, and returns what it says.
    pub(crate) fn kubectl_fails(&self, line: &str, input: Option<&str>) -> Result<String> {
        let (succeeded, text) = self.try_kubectl(line, input)?;
        ensure!(!succeeded, "kubectl {line} should fail: {text}");
        Ok(text)
    }

    fn try_kubectl(&self, line: &str, input: Option<&str>) -> Result<(bool, String)> {
        let mut command = Command::new(&self.kubectl);
        command
            .args(crate::real::kubectl::words(line))
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path())
            .env("KUBECONFIG", &self.kubeconfig);
        let done = process::run(command, input.map(str::as_bytes), LIMIT)?;
        let succeeded = done.status.success();
        Ok((succeeded, if succeeded { done.stdout } else { done.stderr }))
    }

    /// An object as JSON; none if it is not there.
    pub(crate) fn get(&self, what: &str) -> Result<Option<Value>> {
        let text = self.kubectl(&format!("get {what} --ignore-not-found -o json"))?;
        if text.trim().is_empty() { Ok(None) } else { Ok(Some(serde_json::from_str(&text)?)) }
    }

    /// The objects of a list.
    pub(crate) fn list(&self, what: &str) -> Result<Vec<Value>> {
        let list: Value = serde_json::from_str(&self.kubectl(&format!("get {what} -o json"))?)?;
        list["items"].as_array().cloned().context("no list")
    }

    /// Waits until something is so.
    pub(crate) fn until(&self, what: &str, limit: Duration, is_so: impl Fn() -> Result<bool>) -> Result<()> {
        let found = poll(limit, || {
            let is_so = is_so()?;
            if !is_so {
                std::thread::sleep(Duration::from_millis(100));
            }
            Ok(is_so.then_some(()))
        })?;
        match found {
            Some(()) => Ok(()),
            None => bail!("it never came about within {limit:?}: {what}"),
        }
    }
}

/// Status and reason of the condition `Ready`.
pub(crate) fn ready(object: &Value) -> (String, String, String) {
    let conditions = object["status"]["conditions"].as_array();
    let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    let text = |field: &str| ready.and_then(|ready| ready[field].as_str()).unwrap_or("").to_owned();
    (text("status"), text("reason"), text("message"))
}
