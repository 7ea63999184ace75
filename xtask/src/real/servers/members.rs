//! Three etcds that agree with each other, of which one at a time is killed or stopped for a while.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::{Program, compact, free_port, spawn};
use crate::real::process::Running;

const COUNT: usize = 3;

/// The members of one etcd cluster; dropping it stops them.
pub(crate) struct Members {
    all: Vec<Member>,
    folder: TempDir,
}

struct Member {
    process: Running,
    program: Program,
    address: String,
}

impl Members {
    /// Starts them without waiting. They sync what they write, as in production.
    pub(crate) fn start(binary: &Path) -> Result<Members> {
        const LOGS: [&str; COUNT] = ["etcd-0.log", "etcd-1.log", "etcd-2.log"];
        let folder = TempDir::new()?;
        let ports: Vec<(u16, u16)> =
            (0..COUNT).map(|_| Ok((free_port()?, free_port()?))).collect::<Result<_>>()?;
        let peer = |port: u16| format!("http://127.0.0.1:{port}");
        let named = ports.iter().enumerate().map(|(n, (_, port))| format!("etcd-{n}={}", peer(*port)));
        let cluster = named.collect::<Vec<_>>().join(",");
        let start = |((n, (client, own)), log): ((usize, &(u16, u16)), &'static str)| {
            let address = format!("127.0.0.1:{client}");
            let mut command = Command::new(binary);
            command
                .args(["--log-level=error", "--initial-cluster-token=setpoint"])
                .arg(format!("--name=etcd-{n}"))
                .arg(format!("--data-dir=etcd-{n}"))
                .arg(format!("--listen-client-urls=http://{address}"))
                .arg(format!("--advertise-client-urls=http://{address}"))
                .arg(format!("--listen-peer-urls={}", peer(*own)))
                .arg(format!("--initial-advertise-peer-urls={}", peer(*own)))
                .arg(format!("--initial-cluster={cluster}"));
            let program = Program::of(&command, log);
            Ok(Member { process: spawn(command, folder.path(), log)?, program, address })
        };
        let all = ports.iter().enumerate().zip(LOGS).map(start).collect::<Result<_>>()?;
        Ok(Members { all, folder })
    }

    /// Where they are, as `--etcd` takes it.
    pub(crate) fn urls(&self) -> String {
        self.all.iter().map(|member| format!("http://{}", member.address)).collect::<Vec<_>>().join(",")
    }

    /// Kills one with SIGKILL, and starts it again without waiting.
    pub(crate) fn crash(&mut self, number: usize) -> Result<()> {
        let member = &mut self.all[number % COUNT];
        member.process.kill()?;
        member.process = member.program.start(self.folder.path())?;
        Ok(())
    }

    /// Lets one stand still for a while.
    pub(crate) fn pause(&self, number: usize, length: Duration) -> Result<()> {
        let id = self.all[number % COUNT].process.id().to_string();
        let signal = |signal: &str| -> Result<()> {
            let sent = Command::new("kill").args([signal, &id]).status().context("cannot run kill")?;
            ensure!(sent.success(), "kill {signal} {id} failed");
            Ok(())
        };
        signal("-STOP")?;
        thread::sleep(length);
        signal("-CONT")
    }

    /// Gives up the history up to now.
    pub(crate) fn compact(&self) -> Result<()> {
        let mut outcome = Ok(());
        for member in &self.all {
            outcome = compact(&member.address);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }
}
