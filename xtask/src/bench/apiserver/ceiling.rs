//! Creates a second of our server when the client hardly takes anything: what the server itself can do.

use std::env::temp_dir;
use std::time::Duration;

use anyhow::Result;

use super::Sides;
use crate::bench::figures::{Better, Figures, Metric, OURS, less};
use crate::load::throughput::{measure, syncs};

const RATE: Metric = Metric { name: "operations", unit: "/s", better: Better::More };
const SYNCS: Metric = Metric { name: "syncs of 4 KiB", unit: "/s", better: Better::More };
/// How long the disk is measured at most.
const SYNCING: Duration = Duration::from_secs(2);

pub(super) fn run(sides: &Sides<'_>, figures: &mut Figures) -> Result<()> {
    let on = temp_dir();
    let seconds = if sides.bench.quick { 0.5 } else { sides.bench.apiserver.seconds };
    let limit = Duration::try_from_secs_f64(seconds)?;
    let connections = if sides.bench.quick { &vec![16] } else { &sides.bench.apiserver.connections };
    for _ in 0..sides.bench.rounds() {
        figures.add("the disk", "the disk", &[(SYNCS, syncs(&on, limit.min(SYNCING))?)]);
        for connections in connections {
            let run = measure(&sides.binary, &on, false, *connections, limit)?;
            let case = format!("create, encoded beforehand, by {connections} connections");
            println!("      {case}: {:.0}/s", run.rate);
            figures.add(
                &case,
                OURS,
                &[
                    (RATE, run.rate),
                    (less("server CPU an operation", "µs"), run.cpu * 1e3),
                    (less("p50", "ms"), run.p50),
                    (less("p99", "ms"), run.p99),
                ],
            );
        }
    }
    Ok(())
}
