//! Runs the Foo controller.

use std::io::Write;
use std::path::PathBuf;

use clap::Parser;
use example_foo::{FooController, RESYNC, WORKERS, crd};
use setpoint::{ClientConfig, Env, SharedInformerFactory};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Keeps a Deployment for every Foo
#[derive(Parser)]
struct Options {
    /// The URL of the API server, whatever the kubeconfig says
    #[arg(long, value_name = "URL")]
    master: Option<String>,
    /// The kubeconfig to use; without flags KUBECONFIG, ~/.kube/config or the service account of the pod
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
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
    let (client, env) = (config.connect().await?, Env::system());
    let shutdown = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let _signals = env.spawn({
        let shutdown = shutdown.clone();
        async move {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            shutdown.cancel();
        }
    });
    let factory = SharedInformerFactory::new(client.clone()).resync(RESYNC);
    FooController::new(client, &factory, env).run(WORKERS, shutdown).await?;
    Ok(())
}
