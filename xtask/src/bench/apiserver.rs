//! Operations a second of the API server: ours on its durable store, and
//! kube-apiserver over an etcd that syncs, both over TLS, with the same
//! client-go program as the client.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::Bench;
use super::figures::{Better, Figures, Metric, OURS};
use crate::real::peers::{LOAD, Peers};
use crate::real::process;
use crate::real::servers::{Reference, Server};

const REFERENCE: &str = "kube-apiserver";
const RATE: Metric = Metric { name: "operations", unit: "/s", better: Better::More };
const CPU: Metric = Metric { name: "server CPU an operation", unit: "µs", better: Better::Less };
const P50: Metric = Metric { name: "p50", unit: "ms", better: Better::Less };
const P99: Metric = Metric { name: "p99", unit: "ms", better: Better::Less };

#[derive(clap::Args)]
#[group(id = "apiserver")]
pub(super) struct Options {
    /// apiserver: how many connections, each with one request at a time.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64])]
    connections: Vec<usize>,
    /// apiserver: create, update, patch or apply.
    #[arg(long, value_delimiter = ',', default_values_t = ["create", "update", "patch", "apply"].map(String::from))]
    operations: Vec<String>,
    /// apiserver: how long each turn is.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
}

/// What the load program prints.
#[derive(Deserialize)]
struct Outcome {
    count: f64,
    seconds: f64,
    p50: f64,
    p99: f64,
}

pub(super) fn run(bench: &Bench, figures: &mut Figures) -> Result<()> {
    let options = &bench.apiserver;
    let peers = Peers::new(!bench.skip_build)?;
    let load = peers.get(&LOAD).context("the client of this benchmark")?;
    let binary = crate::real::setpoint_release(bench.skip_build)?;
    let reference = if bench.takes(REFERENCE) {
        Reference::get(&peers).inspect_err(|error| println!("skipped {REFERENCE}: {error:#}")).ok()
    } else {
        None
    };
    for operation in &options.operations {
        for connections in &options.connections {
            let turn = Turn { load: &load, operation, connections: *connections, seconds: seconds(bench) };
            for _ in 0..bench.rounds() {
                turn.measure(OURS, &Server::durable_setpoint(&binary)?, figures)?;
                if let Some(reference) = &reference {
                    turn.measure(REFERENCE, &Server::durable_kube_apiserver(reference)?, figures)?;
                }
            }
        }
    }
    Ok(())
}

fn seconds(bench: &Bench) -> f64 {
    if bench.quick { 1.0 } else { bench.apiserver.seconds }
}

/// One operation at one number of connections.
struct Turn<'a> {
    load: &'a PathBuf,
    operation: &'a str,
    connections: usize,
    seconds: f64,
}

impl Turn<'_> {
    fn measure(&self, side: &str, server: &Server, figures: &mut Figures) -> Result<()> {
        let before = server.cpu()?;
        let outcome = self.put(server.kubeconfig())?;
        let cpu = server.cpu()? - before;
        let case = format!("{} by {} connections", self.operation, self.connections);
        println!("      {case}, {side}: {:.0}/s", outcome.count / outcome.seconds);
        figures.add(
            &case,
            side,
            &[
                (RATE, outcome.count / outcome.seconds),
                (CPU, cpu.as_secs_f64() * 1e6 / outcome.count),
                (P50, outcome.p50),
                (P99, outcome.p99),
            ],
        );
        Ok(())
    }

    fn put(&self, kubeconfig: &Path) -> Result<Outcome> {
        let mut command = Command::new(self.load);
        command
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--operation", self.operation])
            .args(["--connections", &self.connections.to_string()])
            .args(["--seconds", &self.seconds.to_string()]);
        let limit = Duration::from_secs_f64(self.seconds + 60.0);
        let finished = process::run(command, None, limit)?;
        ensure!(finished.status.success(), "the load program failed: {}", finished.stderr.trim());
        Ok(serde_json::from_str(&finished.stdout)?)
    }
}
