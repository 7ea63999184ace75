//! Runs the Network controller.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use example_network::neutron::{Auth, Neutron, https};
use example_network::{Settings, controller, crd};
use setpoint::{ClientConfig, Env, Manager};

/// Makes a Neutron network and subnet of every Network
#[derive(Parser)]
struct Options {
    /// The URL of the API server, whatever the kubeconfig says
    #[arg(long, value_name = "URL")]
    master: Option<String>,
    /// The kubeconfig to use; without flags KUBECONFIG, ~/.kube/config or the service account of the pod
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Where Neutron is
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9696")]
    neutron_url: String,
    /// A file with the token for Neutron, read again for each request; without it, none is sent
    #[arg(long, value_name = "PATH")]
    token_file: Option<PathBuf>,
    /// The authority of Neutron's certificate, in PEM
    #[arg(long, value_name = "PATH")]
    neutron_ca: Option<PathBuf>,
    /// The name of this cluster, among those that share the Neutron
    #[arg(long, value_name = "NAME", default_value = "kubernetes")]
    cluster: String,
    /// How often to look for what was changed in Neutron, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    resync: u64,
    /// Print the CustomResourceDefinition as YAML, and end
    #[arg(long)]
    crd: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    if options.crd {
        std::io::stdout().write_all(serde_saphyr::to_string(&crd())?.as_bytes())?;
        return Ok(());
    }
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut config = ClientConfig::new();
    if let Some(url) = options.master {
        config = config.master(url);
    }
    if let Some(path) = options.kubeconfig {
        config = config.kubeconfig(path);
    }
    let client = config.connect().await?;
    let authority =
        options.neutron_ca.as_ref().map(std::fs::read).transpose().context("--neutron-ca cannot be read")?;
    let transport = https(authority.as_deref()).map_err(anyhow::Error::from_boxed)?;
    let auth = options.token_file.map_or(Auth::None, Auth::TokenFile);
    let neutron = Neutron::new(&options.neutron_url, auth, transport, Env::system());
    let settings = Settings {
        cluster: options.cluster,
        resync: Duration::from_secs(options.resync),
        ..Settings::default()
    };
    Manager::new(client).controller(controller(neutron, settings)).stop_on_signals().run().await?;
    Ok(())
}
