//! Serves the webhooks of `Backup`, and tells the cluster where they are.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;
use setpoint::{ClientConfig, Manager};

/// Serve the admission and conversion webhooks of the example kind Backup
///
/// All replicas share their certificates, in a Secret; they are renewed in time, and the cluster is told to trust
/// them.
#[derive(Parser)]
struct Arguments {
    /// Where to listen; the API server must reach it there
    #[arg(long, default_value = "127.0.0.1:9443")]
    listen: SocketAddr,
    /// The kubeconfig of the cluster [default: as kubectl finds it]
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let arguments = Arguments::parse();
    let mut config = ClientConfig::new();
    if let Some(path) = arguments.kubeconfig {
        config = config.kubeconfig(path);
    }
    let client = config.connect().await?;
    let url = format!("https://{}", arguments.listen);
    example_webhooks::install(&client, &url).await?;
    let certificates = example_webhooks::certificates(&client, arguments.listen);
    Manager::new(client)
        .webhooks(arguments.listen, example_webhooks::server(certificates))
        .stop_on_signals()
        .run()
        .await?;
    Ok(())
}
