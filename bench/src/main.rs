//! The programs that `cargo xtask bench` measures.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time, in tasks of its own")]
#![expect(clippy::print_stdout, reason = "it prints its results")]

mod client;
#[cfg(feature = "servers")]
mod cluster;
mod count;
#[cfg(feature = "servers")]
mod latency;
mod lookups;
mod measure;
mod pods;
mod queue;
mod replay;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about)]
struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Subcommand)]
enum Benchmark {
    #[cfg(feature = "servers")]
    /// Time from the change of an object until its reconcile is called, in-process and over TLS.
    Latency {
        /// How many changes.
        #[arg(long, default_value_t = 2_000)]
        changes: usize,
    },
    /// The work queue.
    Queue,
    #[cfg(feature = "servers")]
    /// A whole cluster in one process: from the creation of Deployments until all their pods are ready.
    Cluster {
        /// How many Deployments.
        #[arg(long, default_value_t = 500)]
        deployments: usize,
        /// How many pods each has.
        #[arg(long, default_value_t = 10)]
        replicas: usize,
    },
    /// Work for counting instructions (`cargo xtask counts`).
    #[command(hide = true)]
    Count { case: count::Case, n: usize },
    /// The server of the informer benchmark.
    #[command(hide = true)]
    ReplayServer { objects: usize, events: u64 },
    /// Our client of the informer benchmark.
    #[command(hide = true)]
    InformerClient {
        #[command(flatten)]
        setup: client::Setup,
        port: u16,
        events: u64,
    },
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().benchmark {
        #[cfg(feature = "servers")]
        Benchmark::Latency { changes } => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(latency::run(changes))
        }
        Benchmark::Queue => queue::run(),
        #[cfg(feature = "servers")]
        Benchmark::Cluster { deployments, replicas } => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(cluster::run(deployments, replicas))
        }
        Benchmark::Count { case, n } => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(count::run(case, n))
        }
        Benchmark::ReplayServer { objects, events } => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(replay::Replay::new(objects, events).serve())
        }
        Benchmark::InformerClient { setup, port, events } => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(client::run(port, events, setup))
        }
    }
}
