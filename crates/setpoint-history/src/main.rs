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
use setpoint_history::{History, Load, Resource, Until, check, model};

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
    #[arg(long, default_value_t = 6)]
    watchers: u16,
    /// How many objects: few, so that clients meet
    #[arg(long, default_value_t = 8)]
    keys: u16,
    /// How long a client rests between two operations at most, in milliseconds
    #[arg(long, default_value_t = 10)]
    pause: u64,
    /// The server is never killed: whatever fails or gets no answer is a failure
    #[arg(long)]
    all_answered: bool,
    /// Instead of a server: so many operations of a model of one, to see how long the checker takes
    #[arg(long, value_name = "OPERATIONS", conflicts_with = "kubeconfig")]
    model: Option<usize>,
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let histories = match (options.model, &options.kubeconfig) {
        (Some(operations), _) => vec![("model", model::history(options.seed, operations))],
        (None, kubeconfig) => runtime.block_on(record(&options, kubeconfig.clone().unwrap_or_default()))?,
    };
    let mut failures = 0;
    for (what, history) in &histories {
        failures += judge(what, history, &options);
    }
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says what the checker has found; how much of it is wrong.
fn judge(what: &str, history: &History, options: &Options) -> usize {
    let env = Env::system();
    let begun = env.instant();
    let verdict = check(history);
    println!("{what}, seed {}: {verdict}", options.seed);
    println!("checked in {:.3} s", begun.elapsed().as_secs_f64());
    let never = verdict.never_done();
    if !never.is_empty() {
        println!("{what}: never done, though often asked for: {}", never.join(", "));
    }
    let unanswered = if options.all_answered { verdict.unanswered() } else { 0 };
    if unanswered > 0 {
        println!("{what}: {unanswered} calls failed or got no answer, from a server that was left alone");
    }
    verdict.total + never.len() + unanswered
}

async fn record(options: &Options, kubeconfig: PathBuf) -> Result<Vec<(&'static str, History)>> {
    let file = Kubeconfig::read_from(&kubeconfig)
        .with_context(|| format!("cannot read {}: give --kubeconfig a file", kubeconfig.display()))?;
    let mut config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    // Whoever repeats a request behind our back does it twice.
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    config.read_timeout = None;
    let client = kube::Client::try_from(config.clone())?;
    create_namespace(&client, &options.namespace).await?;
    let load = |resource| Load {
        resource,
        seed: options.seed,
        clients: options.clients,
        watchers: options.watchers,
        keys: options.keys,
        namespace: options.namespace.clone(),
        pause: Duration::from_millis(options.pause),
        until: Until::Elapsed(Duration::from_secs(options.seconds)),
    };
    let connect = |_: &str| kube::Client::try_from(config.clone()).unwrap_or_else(|_| client.clone());
    let (config_maps, pods) = (load(Resource::ConfigMaps), load(Resource::Pods));
    let (config_maps, pods) = futures::try_join!(config_maps.run(connect), pods.run(connect))?;
    Ok(vec![("ConfigMaps", config_maps), ("Pods", pods)])
}

async fn create_namespace(client: &kube::Client, name: &str) -> Result<()> {
    let namespace = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    create(client, "/api/v1/namespaces", &namespace)
        .await
        .with_context(|| format!("cannot create the namespace {name}"))?;
    // The account of pods: where controllers run they may be first.
    let account =
        serde_json::json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    match create(client, &format!("/api/v1/namespaces/{name}/serviceaccounts"), &account).await {
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
        created => created.context("cannot create the account of the pods"),
    }
}

async fn create(client: &kube::Client, path: &str, object: &serde_json::Value) -> Result<(), kube::Error> {
    let request = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(object.to_string().into_bytes())
        .map_err(kube::Error::HttpError)?;
    client.request_text(request).await.map(drop)
}
