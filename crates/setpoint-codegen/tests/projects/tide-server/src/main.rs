//! Serves the kind until Ctrl-C or SIGTERM.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;
use kube::Client;
use setpoint::{ClientConfig, Env};
use setpoint_apiserver::pki::{CertificateAuthority, Identity, Pem};
use setpoint_apiserver::serve::CancellationToken;
use tide_server::{NAME, NAMESPACE, install, server};
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
    let identity = identity(&options, &client, listener.local_addr()?.port(), &env).await?;
    let shutdown = CancellationToken::new();
    tokio::select! {
        served = server.serve(listener, &identity, shutdown) => served?,
        stopped = stop() => stopped?,
    }
    server.close().await;
    Ok(())
}

/// The certificate that others made, or one of its own, which the cluster is told of.
async fn identity(
    options: &Options,
    client: &Client,
    port: u16,
    env: &Env,
) -> anyhow::Result<Identity> {
    if let Some(folder) = &options.tls {
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).with_context(|| path.display().to_string())
        };
        return Ok(Identity::from_pem(Pem {
            certificate: read("tls.crt")?,
            key: read("tls.key")?,
        })?);
    }
    let authority = CertificateAuthority::generate(env)?;
    let identity = authority.issue_server([format!("{NAME}.{NAMESPACE}.svc")])?;
    install(client, port, authority.certificate_pem()).await?;
    Ok(identity)
}

/// Returns when the program is told to end.
async fn stop() -> std::io::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        stopped = tokio::signal::ctrl_c() => stopped,
        _ = terminated.recv() => Ok(()),
    }
}
