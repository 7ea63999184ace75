//! Runs the operator until Ctrl-C or SIGTERM.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;
use gizmo_operator::{NAME, controller, webhook};
use setpoint::controller::Runtime;
use setpoint::webhook::Certificates;
use setpoint::{ClientConfig, Env, LeaseConfig, Manager, Metrics};

/// Looks after the objects of the kind Gizmo
#[derive(Parser)]
#[command(version)]
struct Options {
    /// The kubeconfig to use [default: KUBECONFIG, ~/.kube/config, or the service account of the pod]
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Where /healthz and /readyz are served
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8081")]
    health: SocketAddr,
    /// Where /metrics is served. On an address that others can reach it is HTTPS, and wants a token
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    metrics: SocketAddr,
    /// Where the webhooks are served
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9443")]
    webhooks: SocketAddr,
    /// A folder with tls.crt and tls.key for the webhooks. Without it the program makes a certificate, and the
    /// cluster is told to call this process: for development
    #[arg(long, value_name = "FOLDER")]
    tls: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let metrics = Metrics::default();
    let mut config = ClientConfig::new().metrics(&metrics);
    if let Some(path) = options.kubeconfig {
        config = config.kubeconfig(path);
    }
    let client = config.connect().await?;
    let certificates = match options.tls {
        Some(folder) => Certificates::files(folder.join("tls.crt"), folder.join("tls.key")),
        None => webhook::development(&client, options.webhooks)
            .await?
            .into(),
    };
    // Several replicas may run; one of them works.
    let lease = LeaseConfig::new(client.default_namespace(), NAME);
    Manager::with(Runtime::with(client, Env::system(), metrics))
        .serve_health(options.health)
        .serve_metrics(options.metrics)
        .leader_election(lease)
        .webhooks(options.webhooks, webhook::server(certificates))
        .controller(controller())
        .stop_on_signals()
        .run()
        .await?;
    Ok(())
}
