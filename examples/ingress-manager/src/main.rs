//! Runs the ingress manager.

use std::path::PathBuf;

use clap::Parser;
use example_ingress_manager::{Settings, controller};
use setpoint::{ClientConfig, Manager};

/// Gives every Service that is annotated `ingress/http: "true"` an Ingress
#[derive(Parser)]
struct Options {
    /// The URL of the API server
    #[arg(long, value_name = "URL")]
    master: Option<String>,
    /// The kubeconfig to use; without flags KUBECONFIG, ~/.kube/config or the service account of the pod
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// The class of the Ingresses
    #[arg(long, value_name = "NAME")]
    ingress_class: Option<String>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut config = ClientConfig::new();
    if let Some(url) = options.master {
        config = config.master(url);
    }
    if let Some(path) = options.kubeconfig {
        config = config.kubeconfig(path);
    }
    let settings = Settings { ingress_class: options.ingress_class };
    let client = config.connect().await?;
    Manager::new(client).controller(controller(settings)).stop_on_signals().run().await?;
    Ok(())
}
