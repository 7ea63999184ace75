//! Serves `metrics.k8s.io` and `peaks.example.com`, and registers itself.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Parser;
use example_extension_server::{NAMESPACE, Nodes, Peaks, SERVICE};
use kube::Api;
use setpoint::ClientConfig;
use setpoint_apiserver::User;
use setpoint_apiserver::extension::{Asked, Beside};
use setpoint_apiserver::pki::{Identity, Pem};
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
    let asked = Asked::by(User::new("extension-server", [""; 0]));
    let nodes = Nodes::new(client.clone(), env.clone());
    let alarms = Api::all(server.client());
    let serving = async {
        let shutdown = CancellationToken::new();
        match &arguments.tls {
            Some(folder) => server.serve(listener, &identity(folder)?, shutdown).await?,
            None => {
                let beside = Beside::new(NAMESPACE, SERVICE).host(&arguments.host);
                server.serve_beside(&client, &beside, listener, shutdown).await?;
            }
        }
        anyhow::Ok(())
    };
    tokio::select! {
        served = serving => served?,
        () = example_extension_server::follow(&peaks, &nodes, &alarms, &asked) => {}
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
    Ok(Identity::from_pem(Pem { certificate: read("tls.crt")?, key: read("tls.key")? })?)
}

/// Whoever ends the program says so.
async fn stop() -> std::io::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        stopped = tokio::signal::ctrl_c() => stopped,
        _ = terminated.recv() => Ok(()),
    }
}
