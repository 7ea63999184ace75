//! Runs the operator until Ctrl-C or SIGTERM.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;
{% if webhook %}
use setpoint::webhook::Certificates;
{% endif %}
use setpoint::{ClientConfig, LeaseConfig, Manager};
{% if webhook %}
use widget_operator::{NAME, controller, webhook};
{% else %}
use widget_operator::{NAME, controller};
{% endif %}

/// Looks after the objects of the kind Widget
#[derive(Parser)]
#[command(version)]
struct Options {
    /// The kubeconfig to use [default: KUBECONFIG, ~/.kube/config, or the service account of the pod]
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Where /healthz, /readyz and /metrics are served
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    http: SocketAddr,
{% if webhook %}
    /// Where the webhooks are served
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9443")]
    webhooks: SocketAddr,
    /// A folder with tls.crt and tls.key for the webhooks. Without it they get a certificate that they sign
    /// themselves, and the cluster is told to call this process: for development
    #[arg(long, value_name = "FOLDER")]
    tls: Option<PathBuf>,
{% endif %}
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut config = ClientConfig::new();
    if let Some(path) = options.kubeconfig {
        config = config.kubeconfig(path);
    }
    let client = config.connect().await?;
{% if webhook %}
    let certificates = match options.tls {
        Some(folder) => Certificates::files(folder.join("tls.crt"), folder.join("tls.key")),
        None => {
            let (certificates, ca_bundle) = Certificates::self_signed([options.webhooks.ip().to_string()])?;
            webhook::register(&client, &format!("https://{}", options.webhooks), &ca_bundle).await?;
            certificates
        }
    };
{% endif %}
    // Several replicas may run; one of them works.
    let lease = LeaseConfig::new(client.default_namespace(), NAME);
    Manager::new(client)
        .http(options.http)
        .leader_election(lease)
{% if webhook %}
        .webhooks(options.webhooks, webhook::server(certificates))
{% endif %}
        .controller(controller())
        .stop_on_signals()
        .run()
        .await?;
    Ok(())
}
