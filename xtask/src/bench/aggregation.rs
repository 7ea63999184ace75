//! An extension server behind an API server: ours, and kube-apiserver over etcd. The extension server is the same, and so is the
//! client.

use std::time::Duration;

use anyhow::Result;

use super::Bench;
use super::figures::{Better, Figures, Metric, OURS, less};
use super::programs::{bench_binary, json_of, number};
use crate::real::peers::Peers;
use crate::real::servers::{Reference, Server};

const REFERENCE: &str = "kube-apiserver";
const LIMIT: Duration = Duration::from_secs(300);
const CONNECTIONS: [usize; 2] = [1, 16];

const METRICS: [(Metric, &str); 5] = [
    (Metric { name: "proxied creates", unit: "/s", better: Better::More }, "creates_per_second"),
    (less("p50", "ms"), "p50_ms"),
    (less("p99", "ms"), "p99_ms"),
    (Metric { name: "proxied watch", unit: "events/s", better: Better::More }, "events_per_second"),
    (less("CPU of the server in front", "s"), "cpu_s"),
];

pub(super) fn run(bench: &Bench, figures: &mut Figures) -> Result<()> {
    let peers = Peers::new(!bench.skip_build)?;
    let binary = crate::real::setpoint_release(bench.skip_build)?;
    let program = bench_binary("setpoint-bench", bench)?;
    let reference = match bench.takes(REFERENCE) {
        true => Reference::get(&peers).inspect_err(|error| println!("skipped {REFERENCE}: {error:#}")).ok(),
        false => None,
    };
    let (seconds, events) = if bench.quick { ("1", "1000") } else { ("5", "10000") };
    for _ in 0..bench.rounds() {
        for connections in CONNECTIONS {
            let case = format!("aggregation: {connections} connections create, one watches {events} events");
            let mut measure = |side: &str, server: &Server| -> Result<()> {
                let before = server.cpu()?;
                let mut command = std::process::Command::new(&program);
                command.arg("aggregation").arg(server.kubeconfig()).args([
                    "--seconds",
                    seconds,
                    "--events",
                    events,
                ]);
                command.args(["--connections", &connections.to_string()]);
                let mut result = json_of(command, LIMIT)?;
                result["cpu_s"] = (server.cpu()? - before).as_secs_f64().into();
                println!(
                    "      {case}, {side}: {:.0} creates/s, {:.0} events/s",
                    number(&result, "creates_per_second"),
                    number(&result, "events_per_second"),
                );
                figures.add(&case, side, &super::turn(&METRICS, &result));
                Ok(())
            };
            measure(OURS, &Server::durable_setpoint(&binary)?)?;
            if let Some(reference) = &reference {
                measure(REFERENCE, &Server::durable_kube_apiserver(reference)?)?;
            }
        }
    }
    Ok(())
}
