//! Operations a second, with a client-go program as the client.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::Sides;
use crate::bench::figures::{Better, Figures, Metric};
use crate::real::peers::LOAD;
use crate::real::process;
use crate::real::servers::Server;

const RATE: Metric = Metric { name: "operations", unit: "/s", better: Better::More };
const CPU: Metric = Metric { name: "server CPU an operation", unit: "µs", better: Better::Less };
const P50: Metric = Metric { name: "p50", unit: "ms", better: Better::Less };
const P99: Metric = Metric { name: "p99", unit: "ms", better: Better::Less };

/// What the load program prints.
#[derive(Deserialize)]
struct Outcome {
    count: f64,
    seconds: f64,
    p50: f64,
    p99: f64,
}

pub(super) fn run(sides: &Sides<'_>, figures: &mut Figures) -> Result<()> {
    let (bench, options) = (sides.bench, &sides.bench.apiserver);
    let load = sides.peers.get(&LOAD).context("the client of this benchmark")?;
    let connections = if bench.quick { &vec![16] } else { &options.connections };
    let operations =
        if bench.quick { &vec!["create".to_owned(), "apply".to_owned()] } else { &options.operations };
    if bench.quick {
        println!("      --quick: creates and applies of 16 connections only");
    }
    for operation in operations {
        for connections in connections {
            let seconds = if bench.quick { 1.0 } else { options.seconds };
            let turn = Turn { load: &load, operation, connections: *connections, seconds };
            sides.each(|side, server| turn.measure(side, server, figures))?;
        }
    }
    Ok(())
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
        let limit = Duration::try_from_secs_f64(self.seconds + 60.0)?;
        let finished = process::run(command, None, limit)?;
        ensure!(finished.status.success(), "the load program failed: {}", finished.stderr.trim());
        Ok(serde_json::from_str(&finished.stdout)?)
    }
}
