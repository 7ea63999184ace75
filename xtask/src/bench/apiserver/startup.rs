//! From exec until a create from outside succeeds, and memory at rest.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{REFERENCE, Sides};
use crate::bench::figures::{Figures, Metric, OURS, less};
use crate::real::servers::Server;
use crate::real::startup::once;

const TIME: Metric = less("exec → first create", "ms");
const MEMORY: Metric = less("at rest", "MiB");
/// How long after its start a server is at rest.
const SETTLE: Duration = Duration::from_secs(2);
const QUICK_SETTLE: Duration = Duration::from_millis(500);

pub(super) fn run(sides: &Sides<'_>, figures: &mut Figures) -> Result<()> {
    let (ours, theirs, settle) = match sides.bench.quick {
        true => (5, 1, QUICK_SETTLE),
        false => (25, 3, SETTLE),
    };
    let mut start = |side, runs: usize, spawn: &dyn Fn() -> Result<Server>| -> Result<()> {
        for run in 0..runs {
            let (time, server) = once((Instant::now(), spawn()?))?;
            let mut turn = vec![(TIME, time.as_secs_f64() * 1e3)];
            if run == 0 {
                thread::sleep(settle);
                turn.push((MEMORY, server.resident()? as f64 / 1024.0));
            }
            figures.add("start", side, &turn);
            if run + 1 == runs {
                sides.keep(side, server);
            }
        }
        println!("      start, {side}: {runs} starts");
        Ok(())
    };
    start(OURS, ours, &|| Server::spawn_durable_setpoint(&sides.binary))?;
    if let Some(reference) = &sides.reference {
        start(REFERENCE, theirs, &|| Server::spawn_durable_kube_apiserver(reference))?;
    }
    Ok(())
}
