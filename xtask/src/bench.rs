//! `cargo xtask bench`: our figures beside the peers', in one run.
//!
//! Sides take turns, so that whatever else the machine does hits all of them;
//! what is printed is the median of the turns and their range.

mod aggregation;
mod apiserver;
mod cluster;
mod e2e;
mod figures;
mod informer;
mod markdown;
mod plots;
mod programs;
mod queue;
mod scale;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde_json::Value;

use figures::{Figures, Metric};

/// Options of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Bench {
    /// What to measure [default: everything].
    #[arg(value_enum)]
    parts: Vec<Part>,
    /// The peers to measure [default: all of the part].
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    peers: Option<Vec<String>>,
    /// How many runs each side gets, in alternation.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Little data and one short run, to check that it works.
    #[arg(long)]
    quick: bool,
    /// Use the existing release build and peers.
    #[arg(long)]
    skip_build: bool,
    /// Write the figures to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Read the figures from files that --json wrote, instead of measuring.
    #[arg(long, value_delimiter = ',', value_name = "FILE")]
    from: Vec<PathBuf>,
    /// Print the figures as Markdown tables.
    #[arg(long)]
    markdown: bool,
    /// Replace the tables in this page by the figures.
    #[arg(long, value_name = "FILE")]
    docs: Option<PathBuf>,
    /// Write the plots to this folder.
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    #[command(flatten)]
    apiserver: apiserver::Options,
    #[command(flatten)]
    cluster: cluster::Options,
    #[command(flatten)]
    e2e: e2e::Options,
    #[command(flatten)]
    informer: informer::Options,
    #[command(flatten)]
    scale: scale::Options,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// An extension server behind the API server, beside kube-apiserver's aggregator.
    Aggregation,
    /// The API server, durable and over TLS, beside kube-apiserver and etcd.
    Apiserver,
    /// A whole cluster in one process.
    Cluster,
    /// Time from a change until its reconcile and its child, beside kube-rs and controller-runtime, on both servers.
    E2e,
    /// Time to sync, events a second, memory and lookups of an informer, beside kube-rs and client-go.
    Informer,
    /// The work queue, beside client-go's.
    Queue,
    /// A whole cluster as a process, durable and over TLS, watched from outside: up to thousands of nodes.
    Scale,
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
    for path in &options.from {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        figures.add_json(&serde_json::from_str(&text)?)?;
    }
    if options.from.is_empty() {
        measure(options, &mut figures)?;
    }
    if options.markdown {
        println!("{}", markdown::all(&figures));
    } else if options.from.is_empty() {
        figures.print();
    }
    if let Some(path) = &options.docs {
        let page = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        fs::write(path, markdown::fill(&page, &figures, options.plots.is_some())?)?;
    }
    if let Some(folder) = &options.plots {
        plots::draw(&figures, folder)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(options: &Bench, figures: &mut Figures) -> Result<()> {
    let parts = if options.parts.is_empty() { Part::value_variants() } else { &options.parts };
    for part in parts {
        let outcome = match part {
            Part::Aggregation => aggregation::run(options, figures),
            Part::Apiserver => apiserver::run(options, figures),
            Part::Cluster => cluster::run(options, figures),
            Part::E2e => e2e::run(options, figures),
            Part::Informer => informer::run(options, figures),
            Part::Queue => queue::run(options, figures),
            Part::Scale => scale::run(options, figures),
        };
        // What was measured before something failed has taken minutes.
        if let Some(path) = &options.json {
            fs::write(path, figures.to_json().to_string())?;
        }
        outcome?;
    }
    Ok(())
}

/// The metrics that a program's result has.
fn turn(metrics: &[(Metric, &str)], result: &Value) -> Vec<(Metric, f64)> {
    metrics.iter().filter_map(|(metric, name)| Some((*metric, result[*name].as_f64()?))).collect()
}
