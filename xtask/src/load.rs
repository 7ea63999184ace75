//! `cargo xtask load`: what the durable store does under load.
//!
//! Requests are encoded beforehand and answers are hardly read, so that the
//! server has as much of the machine as can be.

mod checks;
pub(crate) mod connection;
mod fill;
pub(crate) mod histories;
mod hostile;
mod kill;
mod latencies;
mod lists;
mod race;
pub(crate) mod server;
mod soak;
mod svg;
pub(crate) mod throughput;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Subcommand;

use self::checks::Checks;
use crate::workspace;

/// Options of `cargo xtask load`.
#[derive(clap::Args)]
pub(crate) struct Load {
    #[command(subcommand)]
    what: What,
    /// The program to measure [default: the release build in cargo's target folder]
    #[arg(long, global = true, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Measure the debug build: limits are reported on, and break nothing.
    #[arg(long, global = true)]
    debug: bool,
    /// The data folder of the server, on the disk to measure.
    #[arg(long, global = true, value_name = "DIR", default_value = ".")]
    on: PathBuf,
}

#[derive(Subcommand)]
enum What {
    /// Creates a second, in memory and durable, beside the syncs a second of the disk.
    Throughput(throughput::Options),
    /// Many objects: memory, file size, and the time to start after a stop and after a kill.
    Fill(fill::Options),
    /// Record every operation of many clients while the server is killed, and check that reads, lists and watches
    /// keep their guarantees.
    Histories(histories::Options),
    /// Malformed and abusive requests: memory, and the latency of a well-behaved client beside them.
    Hostile(hostile::Options),
    /// Repeated `kill -9` under load: nothing acknowledged is lost, nothing is there twice.
    Kill(kill::Options),
    /// Lists that find nothing among many objects, and the latency of another client in the meantime.
    Lists(lists::Options),
    /// Concurrent patches of one object: each one succeeds and is kept.
    Race(race::Options),
    /// Lease renewals, events and updates at full speed: memory and file size level off.
    Soak(soak::Options),
}

/// Runs it.
pub(crate) fn run(options: &Load) -> Result<ExitCode> {
    if let What::Histories(what) = &options.what {
        histories::run(what, options.binary.as_deref())?;
        return Ok(ExitCode::SUCCESS);
    }
    let (folder, flag) = if options.debug { ("debug", "") } else { ("release", " --release") };
    let built =
        || Ok::<_, anyhow::Error>(workspace::target(workspace::root()?).join(folder).join("setpoint"));
    let binary = options.binary.clone().map_or_else(built, Ok)?;
    let binary =
        binary.canonicalize().with_context(|| format!("cargo build{flag} -p setpoint-cli makes it"))?;
    match &options.what {
        What::Throughput(what) => throughput::run(what, &binary, &options.on)?,
        What::Fill(what) => fill::run(what, &binary, &options.on)?,
        What::Histories(_) => unreachable!("it needs no binary, and has run"),
        What::Hostile(what) => hostile::run(what, &binary, &options.on, Checks::new(options.debug))?,
        What::Kill(what) => kill::run(what, &binary, &options.on)?,
        What::Lists(what) => lists::run(what, &binary, &options.on, Checks::new(options.debug))?,
        What::Race(what) => race::run(what, &binary, &options.on)?,
        What::Soak(what) => soak::run(what, &binary, &options.on)?,
    }
    Ok(ExitCode::SUCCESS)
}
