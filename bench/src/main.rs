//! The programs that `cargo xtask bench` measures.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time, in tasks of its own")]
#![expect(clippy::print_stdout, reason = "it prints its results")]

#[cfg(feature = "apiserver")]
mod aggregation;
mod client;
#[cfg(feature = "cluster")]
mod cluster;
mod count;
mod e2e;
mod facts;
mod fan_out;
mod fill;
#[cfg(feature = "apiserver")]
mod latency;
mod lookups;
mod measure;
mod pods;
mod queue;
mod reads;
mod replay;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about)]
struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Subcommand)]
enum Benchmark {
    #[cfg(feature = "apiserver")]
    /// Time from the change of an object until its reconcile is called, in-process and over TLS.
    Latency {
        /// How many changes.
        #[arg(long, default_value_t = 2_000)]
        changes: usize,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    #[cfg(feature = "apiserver")]
    /// An extension server behind an API server.
    #[command(hide = true)]
    Aggregation(aggregation::Options),
    /// The work queue.
    Queue {
        /// How often each case is run.
        #[arg(default_value_t = 31)]
        runs: usize,
    },
    #[cfg(feature = "cluster")]
    /// A whole cluster in one process: from the creation of Deployments until all their pods are ready.
    Cluster {
        /// How many Deployments.
        #[arg(long, default_value_t = 500)]
        deployments: usize,
        /// How many pods each has.
        #[arg(long, default_value_t = 10)]
        replicas: usize,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Our controller of the end-to-end benchmark.
    #[command(hide = true)]
    E2eController { kubeconfig: PathBuf },
    /// A watch instead of a controller in the end-to-end benchmark.
    #[command(hide = true)]
    E2eBare { kubeconfig: PathBuf },
    /// Makes and changes sources, and watches their children, for the end-to-end benchmark.
    #[command(hide = true)]
    E2eLoad(e2e::load::Options),
    /// How much memory the facts take that are kept for those who listen.
    Facts,
    /// Many watchers of the same objects.
    #[command(hide = true)]
    FanOut(fan_out::Options),
    /// Fills an API server with Pods and ConfigMaps.
    #[command(hide = true)]
    Fill(fill::Options),
    /// Reads all objects of a kind.
    #[command(hide = true)]
    Read(reads::Options),
    /// Work for counting instructions (`cargo xtask counts`).
    #[command(hide = true)]
    Count { case: count::Case, n: usize },
    /// The server of the informer benchmark.
    #[command(hide = true)]
    ReplayServer {
        objects: usize,
        #[arg(long, value_enum, default_value = "json")]
        format: replay::Format,
    },
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
        #[cfg(feature = "apiserver")]
        Benchmark::Latency { changes, json } => threads()?.block_on(latency::run(changes, json)),
        #[cfg(feature = "apiserver")]
        Benchmark::Aggregation(options) => threads()?.block_on(aggregation::run(&options)),
        Benchmark::Queue { runs } => queue::run(runs),
        #[cfg(feature = "cluster")]
        Benchmark::Cluster { deployments, replicas, json } => {
            threads()?.block_on(cluster::run(deployments, replicas, json))
        }
        Benchmark::E2eController { kubeconfig } => threads()?.block_on(e2e::controller::run(&kubeconfig)),
        Benchmark::E2eBare { kubeconfig } => threads()?.block_on(e2e::bare::run(&kubeconfig)),
        Benchmark::E2eLoad(options) => threads()?.block_on(e2e::load::run(&options)),
        Benchmark::Facts => threads()?.block_on(facts::run()),
        Benchmark::FanOut(options) => threads()?.block_on(fan_out::run(&options)),
        Benchmark::Fill(options) => threads()?.block_on(fill::run(&options)),
        Benchmark::Read(options) => threads()?.block_on(reads::run(&options)),
        Benchmark::Count { case, n } => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(count::run(case, n))
        }
        Benchmark::ReplayServer { objects, format } => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(replay::Replay::new(format, objects).serve())
        }
        Benchmark::InformerClient { setup, port, events } => {
            threads()?.block_on(client::run(port, events, setup))
        }
    }
}

fn threads() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}
