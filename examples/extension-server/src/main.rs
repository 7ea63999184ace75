//! Serves `metrics.k8s.io` and `peaks.example.com`, and registers itself.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;
use example_extension_server::{NAMESPACE, Nodes, Peaks, SERVICE};
use kube::{Api, Client};
use setpoint::ClientConfig;
use setpoint_apiserver::User;
use setpoint_apiserver::extension::Asked;
use setpoint_apiserver::pki::{CertificateAuthority, Identity, Pem};
use setpoint_apiserver::serve::CancellationToken;
use setpoint_env::Env;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// Serve metrics.k8s.io and peaks.example.com behind an API server
///
/// Without --tls the certificate is made at the start, and the cluster is told to trust its authority: for one that runs beside
/// its API server, such as `setpoint up`. In a cluster, `manifests/` say where it is, and cert-manager makes the certificate.
#[derive(Parser)]
struct Arguments {
    /// The address to listen on
    #[arg(long, default_value = "127.0.0.1:9444")]
    listen: SocketAddr,
    /// The host by which the API server finds this one
    #[arg(long, default_value = "localhost", conflicts_with = "tls")]
    host: String,
    /// A folder with tls.crt and tls.key
    #[arg(long, value_name = "FOLDER")]
    tls: Option<PathBuf>,
    /// The kubeconfig of the cluster [default: as kubectl finds it]
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let arguments = Arguments::parse();
    let env = Env::system();
    let mut config = ClientConfig::new();
    if let Some(path) = &arguments.kubeconfig {
        config = config.kubeconfig(path);
    }
    let client = config.connect().await?;
    let peaks = Peaks::new(env.clone());
    let server = example_extension_server::server(client.clone(), peaks.clone(), &env).await?;
    let listener = TcpListener::bind(arguments.listen).await?;
    let identity = identity(&arguments, &client, listener.local_addr()?.port(), &env).await?;
    let asked = Asked::by(User::new("extension-server", [""; 0]));
    let nodes = Nodes::new(client, env.clone());
    let alarms = Api::all(server.client());
    tokio::select! {
        served = server.serve(listener, &identity, CancellationToken::new()) => served?,
        () = example_extension_server::follow(&peaks, &nodes, &alarms, &asked) => {}
        stopped = stop() => stopped?,
    }
    server.close().await;
    Ok(())
}

/// The certificate that others made, or one of its own, which the cluster is told of.
async fn identity(arguments: &Arguments, client: &Client, port: u16, env: &Env) -> anyhow::Result<Identity> {
    if let Some(folder) = &arguments.tls {
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).with_context(|| path.display().to_string())
        };
        return Ok(Identity::from_pem(Pem { certificate: read("tls.crt")?, key: read("tls.key")? })?);
    }
    let authority = CertificateAuthority::generate(env)?;
    let identity = authority.issue_server([format!("{SERVICE}.{NAMESPACE}.svc")])?;
    example_extension_server::install(client, &arguments.host, port, authority.certificate_pem()).await?;
    Ok(identity)
}

/// Whoever ends the program says so.
async fn stop() -> std::io::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        stopped = tokio::signal::ctrl_c() => stopped,
        _ = terminated.recv() => Ok(()),
    }
}
