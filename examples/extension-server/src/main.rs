//! Serves `metrics.k8s.io` and `peaks.example.com`, and registers itself.

use std::path::PathBuf;

use clap::Parser;
use example_extension_server::{NAMESPACE, Nodes, SERVICE};
use setpoint::ClientConfig;
use setpoint_apiserver::User;
use setpoint_apiserver::extension::Asked;
use setpoint_apiserver::pki::CertificateAuthority;
use setpoint_apiserver::serve::CancellationToken;
use setpoint_env::Env;
use tokio::net::TcpListener;

/// Serve metrics.k8s.io and peaks.example.com behind an API server
///
/// The certificate is made at the start; the cluster is told to trust its authority. So this is for one replica that runs
/// beside its API server, such as `setpoint up`.
#[derive(Parser)]
struct Arguments {
    /// The host by which the API server finds this one
    #[arg(long, default_value = "localhost")]
    host: String,
    /// The port to listen on
    #[arg(long, default_value_t = 9444)]
    port: u16,
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
    if let Some(path) = arguments.kubeconfig {
        config = config.kubeconfig(path);
    }
    let client = config.connect().await?;
    let server = example_extension_server::server(client.clone(), &env).await?;
    let authority = CertificateAuthority::generate(&env)?;
    let identity = authority.issue_server([format!("{SERVICE}.{NAMESPACE}.svc")])?;
    let listener = TcpListener::bind(("127.0.0.1", arguments.port)).await?;
    example_extension_server::install(&client, &arguments.host, arguments.port, authority.certificate_pem())
        .await?;
    let shutdown = CancellationToken::new();
    let asked = Asked::by(User::new("extension-server", [""; 0]));
    let following =
        example_extension_server::follow(&server, Nodes::new(client, env.clone()), asked, env.clone());
    tokio::select! {
        served = server.serve(listener, &identity, shutdown.clone()) => served?,
        () = following => {}
        stopped = tokio::signal::ctrl_c() => stopped?,
    }
    server.close().await;
    Ok(())
}
