//! Puts clients on a server, writes down what they see, and says whether a correct server can have shown it to them.
//! `cargo xtask load histories` starts the servers.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool talks to its terminal")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use kube::config::{KubeConfigOptions, Kubeconfig};
use setpoint_env::Env;
use setpoint_history::{Load, Until, Verdict, check, model};

/// Record what clients of a server see, and check it
#[derive(Parser)]
struct Options {
    /// The server
    #[arg(long, required_unless_present = "model")]
    kubeconfig: Option<PathBuf>,
    /// Where the clients work; it is created
    #[arg(long, default_value = "histories")]
    namespace: String,
    /// How long
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// What the clients do
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many read and write
    #[arg(long, default_value_t = 6)]
    clients: u16,
    /// How many watch
    #[arg(long, default_value_t = 4)]
    watchers: u16,
    /// How many objects: few, so that clients meet
    #[arg(long, default_value_t = 8)]
    keys: u16,
    /// How long a client rests between two operations at most, in milliseconds
    #[arg(long, default_value_t = 10)]
    pause: u64,
    /// Instead of a server: so many operations of a model of one, to see how long the checker takes
    #[arg(long, value_name = "OPERATIONS", conflicts_with = "kubeconfig")]
    model: Option<usize>,
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let history = match (options.model, &options.kubeconfig) {
        (Some(operations), _) => model::history(options.seed, operations),
        (None, kubeconfig) => runtime.block_on(record(&options, kubeconfig.clone().unwrap_or_default()))?,
    };
    let env = Env::system();
    let begun = env.instant();
    let verdict: Verdict = check(&history);
    println!("seed {}: {verdict}", options.seed);
    println!("checked in {:.3} s", begun.elapsed().as_secs_f64());
    Ok(if verdict.total == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn record(options: &Options, kubeconfig: PathBuf) -> Result<setpoint_history::History> {
    let file = Kubeconfig::read_from(&kubeconfig)
        .with_context(|| format!("cannot read {}: give --kubeconfig a file", kubeconfig.display()))?;
    let mut config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    // Whoever repeats a request behind our back does it twice.
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    config.read_timeout = None;
    let client = kube::Client::try_from(config.clone())?;
    create_namespace(&client, &options.namespace).await?;
    let load = Load {
        seed: options.seed,
        clients: options.clients,
        watchers: options.watchers,
        keys: options.keys,
        namespace: options.namespace.clone(),
        pause: Duration::from_millis(options.pause),
        until: Until::Elapsed(Duration::from_secs(options.seconds)),
    };
    let connect = |_: &str| kube::Client::try_from(config.clone()).unwrap_or_else(|_| client.clone());
    Ok(load.run(connect).await?)
}

async fn create_namespace(client: &kube::Client, name: &str) -> Result<()> {
    let body = format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{name}"}}}}"#);
    let request = http::Request::post("/api/v1/namespaces")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body.into_bytes())?;
    client.request_text(request).await.with_context(|| format!("cannot create the namespace {name}"))?;
    Ok(())
}
