//! A server to put load on.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::connection::Connection;
use crate::kubeconfig::Kubeconfig;

/// Ticks of the kernel's accounting a second; Linux tells all programs so.
const TICKS: f64 = 100.0;

/// A running server in its own folder.
pub(crate) struct Server {
    child: Child,
    kubeconfig: Kubeconfig,
    data: PathBuf,
    pub(crate) started_in: Duration,
}

impl Server {
    /// Starts a server on a folder; its data stays there.
    pub(crate) fn start(binary: &Path, folder: &TempDir, memory: bool) -> Result<Self> {
        Self::start_with(binary, folder, memory, &[])
    }

    /// The same with more arguments.
    pub(crate) fn start_with(
        binary: &Path,
        folder: &TempDir,
        memory: bool,
        arguments: &[&str],
    ) -> Result<Self> {
        let arguments = [&["--no-controllers"], arguments].concat();
        Self::up(binary, folder, memory, &arguments)
    }

    /// A durable server with all controllers and so many simulated nodes beside it.
    pub(crate) fn start_cluster(binary: &Path, folder: &TempDir, nodes: usize) -> Result<Self> {
        Self::up(binary, folder, false, &["--nodes", &nodes.to_string()])
    }

    fn up(binary: &Path, folder: &TempDir, memory: bool, arguments: &[&str]) -> Result<Self> {
        let data = folder.path().join("data");
        let kubeconfig = folder.path().join("kubeconfig");
        let begun = Instant::now();
        let mut command = Command::new(binary);
        command.args(["up", "--listen", "127.0.0.1:0", "--kubeconfig"]).arg(&kubeconfig).args(arguments);
        if memory {
            command.arg("--memory")
        } else {
            command.arg("--data").arg(&data)
        };
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        for line in lines {
            if line?.starts_with("ready in ") {
                let kubeconfig = Kubeconfig::read(&kubeconfig)?;
                return Ok(Self { child, kubeconfig, data, started_in: begun.elapsed() });
            }
        }
        bail!("the server did not start")
    }

    pub(crate) fn connect(&self) -> Result<Connection> {
        Connection::open(&self.kubeconfig)
    }

    pub(crate) fn kubeconfig(&self) -> &Kubeconfig {
        &self.kubeconfig
    }

    /// Resident memory, in MiB.
    pub(crate) fn resident(&self) -> Result<f64> {
        self.memory("VmRSS:")
    }

    /// The most that was resident, in MiB.
    pub(crate) fn peak(&self) -> Result<f64> {
        self.memory("VmHWM:")
    }

    fn memory(&self, which: &str) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find(|line| line.starts_with(which)).context("no such line")?;
        let kib: f64 = line.split_whitespace().nth(1).context("no number")?.parse()?;
        Ok(kib / 1024.0)
    }

    /// Seconds of processor time so far.
    pub(crate) fn cpu(&self) -> Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: f64 =
            fields.get(11..13).context("short stat")?.iter().filter_map(|t| t.parse::<f64>().ok()).sum();
        Ok(ticks / TICKS)
    }

    /// The file of the store, in MiB: its length, and what it takes on the disk.
    pub(crate) fn file(&self) -> Result<(f64, f64)> {
        let metadata = fs::metadata(self.data.join("objects.redb"))?;
        let mebibytes = |bytes: u64| bytes as f64 / (1 << 20) as f64;
        Ok((mebibytes(metadata.len()), mebibytes(metadata.blocks() * 512)))
    }

    /// `kill -9`
    pub(crate) fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM, and how long it takes to end.
    pub(crate) fn stop(mut self) -> Result<Duration> {
        let begun = Instant::now();
        let status = Command::new("kill").arg(self.child.id().to_string()).status()?;
        if !status.success() || !self.child.wait()?.success() {
            bail!("the server did not end well");
        }
        Ok(begun.elapsed())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
