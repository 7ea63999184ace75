//! The same changes to many watchers, each on a connection of its own.

use std::time::Duration;

use anyhow::Result;

use super::Sides;
use crate::bench::figures::{Better, Figures, Metric, less};
use crate::bench::programs::{bench_binary, json_of, number};

/// Watchers, and how many changes a second they see.
const STEPS: [(usize, usize); 5] = [(1, 1000), (100, 1000), (1000, 100), (1000, 120), (1000, 150)];
const QUICK_STEPS: [(usize, usize); 2] = [(1, 1000), (1000, 100)];
const LIMIT: Duration = Duration::from_secs(180);

const METRICS: [(Metric, &str); 5] = [
    (Metric { name: "deliveries", unit: "/s", better: Better::More }, "deliveries_per_second"),
    (less("p50", "ms"), "p50_ms"),
    (less("p99", "ms"), "p99_ms"),
    (less("server CPU a delivery", "µs"), "cpu_us"),
    (less("never delivered", ""), "missed"),
];

pub(super) fn run(sides: &Sides<'_>, figures: &mut Figures) -> Result<()> {
    let program = bench_binary("setpoint-bench", sides.bench)?;
    let steps: &[(usize, usize)] = if sides.bench.quick { &QUICK_STEPS } else { &STEPS };
    let seconds = if sides.bench.quick { 1 } else { 5 };
    for &(watchers, rate) in steps {
        let changes = rate * seconds;
        let case = format!("{watchers} watchers, {rate} changes/s");
        sides.each(|side, server| {
            let before = server.cpu()?;
            let numbers = ["--watchers", &watchers.to_string(), "--rate", &rate.to_string()];
            let mut command = std::process::Command::new(&program);
            command.arg("fan-out").arg(server.kubeconfig()).args(numbers);
            command.args(["--changes", &changes.to_string()]);
            let mut result = json_of(command, LIMIT)?;
            let delivered = (watchers * changes) as f64 - number(&result, "missed");
            let cpu = (server.cpu()? - before).as_secs_f64() * 1e6 / delivered;
            result["cpu_us"] = cpu.into();
            println!(
                "      {case}, {side}: {:.0} deliveries/s, p99 {:.1} ms",
                number(&result, "deliveries_per_second"),
                number(&result, "p99_ms"),
            );
            figures.add(&case, side, &crate::bench::turn(&METRICS, &result));
            Ok(())
        })?;
    }
    Ok(())
}
