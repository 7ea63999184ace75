//! The work queue beside client-go's, case by case.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Bench;
use super::figures::{Better, Figures, Metric, OURS};
use super::programs::bench_binary;
use crate::real::peers::{Peers, QUEUE};
use crate::real::process;

const CLIENT_GO: &str = "client-go";
const TIME: Metric = Metric { name: "an operation", unit: "ns", better: Better::Less };
const LIMIT: Duration = Duration::from_secs(600);

pub(super) fn run(bench: &Bench, figures: &mut Figures) -> Result<()> {
    let ours = bench_binary("setpoint-bench", bench)?;
    let peer = match bench.takes(CLIENT_GO) {
        true => Peers::new(!bench.skip_build)
            .and_then(|peers| peers.get(&QUEUE))
            .inspect_err(|error| println!("skipped {CLIENT_GO}: {error:#}"))
            .ok(),
        false => None,
    };
    let runs: &[&str] = if bench.quick { &["3"] } else { &[] };
    for _ in 0..bench.rounds() {
        measure(OURS, &ours, &[&["queue"], runs].concat(), figures)?;
        if let Some(peer) = &peer {
            measure(CLIENT_GO, peer, runs, figures)?;
        }
    }
    Ok(())
}

/// Runs a program that prints one line a case: its name, and nanoseconds an operation.
fn measure(side: &str, program: &Path, arguments: &[&str], figures: &mut Figures) -> Result<()> {
    let mut command = Command::new(program);
    command.args(arguments);
    let finished = process::run(command, None, LIMIT)?;
    ensure!(finished.status.success(), "{side} failed: {}", finished.stderr.trim());
    for line in finished.stdout.lines() {
        let (case, time) = line.split_once(' ').with_context(|| format!("{side} said {line:?}"))?;
        figures.add(&format!("queue, {case}"), side, &[(TIME, time.parse()?)]);
    }
    Ok(())
}
