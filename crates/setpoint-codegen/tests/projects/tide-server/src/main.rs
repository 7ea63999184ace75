//! Serves the kind until Ctrl-C or SIGTERM.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Parser;
use setpoint::{ClientConfig, Env};
use setpoint_apiserver::extension::Beside;
use setpoint_apiserver::pki::{Identity, Pem};
use setpoint_apiserver::serve::CancellationToken;
use tide_server::{NAME, NAMESPACE, server};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// An extension API server for the kind Tide
#[derive(Parser)]
#[command(version)]
struct Options {
    /// The kubeconfig to use [default: KUBECONFIG, ~/.kube/config, or the service account of the pod]
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Where the API is served
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9444")]
    listen: SocketAddr,
    /// A folder with tls.crt and tls.key. Without it there is a certificate of its own, and the cluster is told
    /// to ask this process: for development
    #[arg(long, value_name = "FOLDER")]
    tls: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let env = Env::system();
    let mut config = ClientConfig::new();
    if let Some(path) = &options.kubeconfig {
        config = config.kubeconfig(path);
    }
    let client = config.connect().await?;
    let server = server(client.clone(), &env).await?;
    let listener = TcpListener::bind(options.listen).await?;
    let shutdown = CancellationToken::new();
    let serving = async {
        match &options.tls {
            Some(folder) => server.serve(listener, &identity(folder)?, shutdown).await?,
            None => {
                server
                    .serve_beside(&client, &Beside::new(NAMESPACE, NAME), listener, shutdown)
                    .await?
            }
        }
        anyhow::Ok(())
    };
    tokio::select! {
        served = serving => served?,
        stopped = stop() => stopped?,
    }
    server.close().await;
    Ok(())
}

/// The certificate that others made.
fn identity(folder: &Path) -> anyhow::Result<Identity> {
    let read = |name: &str| {
        let path = folder.join(name);
        std::fs::read_to_string(&path).with_context(|| path.display().to_string())
    };
    Ok(Identity::from_pem(Pem {
        certificate: read("tls.crt")?,
        key: read("tls.key")?,
    })?)
}

/// Returns when the program is told to end.
async fn stop() -> std::io::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        stopped = tokio::signal::ctrl_c() => stopped,
        _ = terminated.recv() => Ok(()),
    }
}
