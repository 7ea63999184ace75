//! `cargo xtask bench`: our figures beside the peers', in one run.
//!
//! Sides take turns, so that whatever else the machine does hits all of them;
//! what is printed is the median of the turns and their range.

mod apiserver;
mod figures;
mod informer;
mod queue;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::ValueEnum;

use figures::Figures;

/// Options of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Bench {
    /// What to measure; everything unless named.
    #[arg(value_enum)]
    parts: Vec<Part>,
    /// The peers to measure beside us; all of the part's unless named.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    peers: Option<Vec<String>>,
    /// How many turns each side gets.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Little data and one short turn: whether it runs, not how fast.
    #[arg(long)]
    quick: bool,
    /// Use the release build and the peers that are there.
    #[arg(long)]
    skip_build: bool,
    /// Where to write the figures, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    apiserver: apiserver::Options,
    #[command(flatten)]
    informer: informer::Options,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Operations a second of the API server over TLS, durable, with client-go as the client.
    Apiserver,
    /// Time to sync, events a second, memory and lookups of an informer, beside kube-rs and client-go.
    Informer,
    /// The work queue, beside client-go's.
    Queue,
}

impl Bench {
    fn takes(&self, peer: &str) -> bool {
        self.peers.as_ref().is_none_or(|peers| peers.iter().any(|name| name == peer))
    }

    fn rounds(&self) -> usize {
        if self.quick { 1 } else { self.rounds }
    }
}

/// Measures and prints.
pub(crate) fn run(options: &Bench) -> Result<ExitCode> {
    if options.rounds == 0 {
        bail!("--rounds 0 measures nothing");
    }
    let mut figures = Figures::default();
    let parts = if options.parts.is_empty() { Part::value_variants() } else { &options.parts };
    for part in parts {
        match part {
            Part::Apiserver => apiserver::run(options, &mut figures)?,
            Part::Informer => informer::run(options, &mut figures)?,
            Part::Queue => queue::run(options, &mut figures)?,
        }
    }
    figures.print();
    if let Some(path) = &options.json {
        std::fs::write(path, figures.to_json().to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}
