//! Benchmarks. `cargo run --release -p setpoint-bench -- informer` compares informers.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time, in tasks of its own")]
#![expect(clippy::print_stdout, reason = "it prints its results")]

mod client;
mod cluster;
mod informer;
mod latency;
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
    /// Time to sync, events a second and memory of an informer, beside kube-rs.
    Informer {
        /// How many Pods the server has.
        #[arg(long, default_value_t = 100_000)]
        objects: usize,
        /// How many changes follow.
        #[arg(long, default_value_t = 500_000)]
        events: u64,
        /// How many times each client runs; the best run counts.
        #[arg(long, default_value_t = 1)]
        rounds: usize,
        /// Only the clients whose name contains this.
        #[arg(long)]
        only: Option<String>,
    },
    /// Time from the change of an object until its reconcile is called, in-process and over TLS.
    Latency {
        /// How many changes.
        #[arg(long, default_value_t = 2_000)]
        changes: usize,
    },
    /// The work queue, beside client-go's.
    Queue,
    /// A whole cluster in one process: from the creation of Deployments until all their pods are ready.
    Cluster {
        /// How many Deployments.
        #[arg(long, default_value_t = 500)]
        deployments: usize,
        /// How many pods each has.
        #[arg(long, default_value_t = 10)]
        replicas: usize,
    },
    /// The server (started by `informer`).
    #[command(hide = true)]
    ReplayServer { objects: usize, events: u64 },
    /// Our client (started by `informer`).
    #[command(hide = true)]
    InformerClient {
        #[arg(long)]
        streaming: bool,
        port: u16,
        events: u64,
    },
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().benchmark {
        Benchmark::Informer { objects, events, rounds, only } => {
            informer::run(objects, events, rounds, only.as_deref())
        }
        Benchmark::Latency { changes } => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(latency::run(changes))
        }
        Benchmark::Queue => queue::run(),
        Benchmark::Cluster { deployments, replicas } => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(cluster::run(deployments, replicas))
        }
        Benchmark::ReplayServer { objects, events } => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(replay::Replay::new(objects, events).serve())
        }
        Benchmark::InformerClient { streaming, port, events } => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(client::run(port, events, streaming))
        }
    }
}
