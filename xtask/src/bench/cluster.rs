//! A whole cluster in one process: from the creation of Deployments until all their pods are ready.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::Bench;
use super::figures::{Better, Figures, Metric, OURS, less};
use super::programs::{bench_binary, json_of, number};

const LIMIT: Duration = Duration::from_secs(600);

const METRICS: [(Metric, &str); 5] = [
    (less("until all are ready", "s"), "seconds"),
    (Metric { name: "pods", unit: "/s", better: Better::More }, "pods_per_second"),
    (less("CPU", "s"), "cpu_seconds"),
    (less("peak RSS", "MB"), "peak_rss_mb"),
    (less("requests", ""), "requests"),
];

#[derive(clap::Args)]
#[group(id = "cluster")]
pub(super) struct Options {
    /// cluster: how many Deployments.
    #[arg(long, default_value_t = 500)]
    deployments: usize,
    /// cluster: how many pods each has.
    #[arg(long, default_value_t = 10)]
    replicas: usize,
}

pub(super) fn run(bench: &Bench, figures: &mut Figures) -> Result<()> {
    let program = bench_binary("setpoint-bench", bench)?;
    let deployments = if bench.quick { 50 } else { bench.cluster.deployments };
    let replicas = bench.cluster.replicas;
    let case = format!("{} pods over {deployments} Deployments", deployments * replicas);
    for _ in 0..bench.rounds() {
        let mut command = Command::new(&program);
        command.args(["cluster", "--json", "--deployments", &deployments.to_string()]);
        command.args(["--replicas", &replicas.to_string()]);
        let result = json_of(command, LIMIT)?;
        println!("      {case}: {:.2} s", number(&result, "seconds"));
        figures.add(&case, OURS, &super::turn(&METRICS, &result));
    }
    Ok(())
}
