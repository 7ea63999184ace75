//! Many objects: memory, lists, and the time to start after a kill.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{REFERENCE, Sides};
use crate::bench::figures::{Figures, Metric, OURS, less};
use crate::bench::programs::{bench_binary, json_of, number};
use crate::real::process;
use crate::real::servers::Server;
use crate::real::startup::once;

/// How long one step may take.
const LIMIT: Duration = Duration::from_secs(600);
const MEMORY: Metric = less("resident", "MiB");
const TIME: Metric = less("time", "s");
const SIZE: Metric = less("size", "MB");

pub(super) fn run(sides: &Sides<'_>, figures: &mut Figures) -> Result<()> {
    let program = bench_binary("setpoint-bench", sides.bench)?;
    // Filling takes minutes: one turn is enough for figures that hardly differ from turn to turn.
    for side in [OURS, REFERENCE] {
        if let Some(server) = sides.server(side)? {
            one(sides, &program, side, server, figures)?;
        }
    }
    Ok(())
}

fn one(
    sides: &Sides<'_>,
    program: &Path,
    side: &str,
    mut server: Server,
    figures: &mut Figures,
) -> Result<()> {
    let (pods, config_maps) = match sides.bench.quick {
        true => (1_000, 1_000),
        false => (sides.bench.apiserver.stored_pods, sides.bench.apiserver.config_maps),
    };
    let stored = format!("{pods} Pods and {config_maps} ConfigMaps stored");
    let begun = Instant::now();
    let mut fill = Command::new(program);
    fill.arg("fill").arg(server.kubeconfig()).args(["--pods", &pods.to_string()]);
    fill.args(["--config-maps", &config_maps.to_string()]);
    let finished = process::run(fill, None, LIMIT)?;
    ensure!(finished.status.success(), "the server was not filled: {}", finished.stderr.trim());
    let took = begun.elapsed().as_secs_f64();
    let memory = server.resident()? as f64 / 1024.0;
    println!("      {stored}, {side}: in {took:.1} s, {memory:.0} MiB");
    figures.add(&stored, side, &[(MEMORY, memory)]);
    for (how, title) in [
        ("whole", "whole, JSON"),
        ("protobuf", "whole, protobuf"),
        ("paged", "pages of 500"),
        ("streamed", "streamed"),
    ] {
        let mut read = Command::new(program);
        read.arg("read").arg(server.kubeconfig()).args(["--how", how]);
        let result = json_of(read, LIMIT)?;
        let (time, size) = (number(&result, "seconds"), number(&result, "mb"));
        println!("      list of {pods} Pods, {title}, {side}: {time:.2} s, {size:.0} MB");
        figures.add(&format!("list of {pods} Pods, {title}"), side, &[(TIME, time), (SIZE, size)]);
    }
    figures.add(&format!("{stored}, after lists"), side, &[(MEMORY, server.resident()? as f64 / 1024.0)]);
    let begun = Instant::now();
    server.crash()?;
    let (time, server) = once((begun, server))?;
    println!("      after kill -9, {side}: {:.2} s until a create", time.as_secs_f64());
    let memory = server.resident()? as f64 / 1024.0;
    figures.add(&format!("{stored}, after kill -9"), side, &[(TIME, time.as_secs_f64()), (MEMORY, memory)]);
    Ok(())
}
