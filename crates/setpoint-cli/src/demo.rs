//! `setpoint demo`: a cluster in memory, a controller in it, and the path of a change, live.

mod gate;
mod listener;
mod looper;
mod notices;
mod observer;
mod playground;
mod requests;
mod rivals;
mod screen;
mod stage;
mod steps;
mod web;
mod world;

use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use example_foo::{FooController, RESYNC, WORKERS};
use setpoint::SharedInformerFactory;
use setpoint_apiserver::kubeconfig::Kubeconfig;
use setpoint_apiserver::pki::CertificateAuthority;
use setpoint_apiserver::serve::CancellationToken;
use setpoint_apiserver::{ApiServer, User};
use setpoint_cluster::Cluster;
use setpoint_env::Env;
use tokio::net::TcpListener;
use tokio::time::Instant;

use self::notices::Notices;
use self::observer::Observer;
use self::requests::Requests;
use self::screen::Screen;
use self::steps::Steps;
use crate::dashboard;
use crate::signals::Signals;

/// How many simulated nodes there are.
const NODES: usize = 3;

/// Run a controller in a cluster in memory, and show what it does
///
/// Starts an API server, the built-in controllers and three simulated nodes, installs the custom resource Foo
/// and its controller, and shows the path of a change: object, reflector, queue, reconcile, Deployment, pods.
/// Then it deletes the pod, scales the Foo, and deletes it. Nothing is installed on the machine.
///
/// Exits non-zero if a step does not converge.
#[derive(Args)]
pub(crate) struct Demo {
    /// Keep the cluster running afterwards, and print the path of a kubeconfig
    #[arg(long)]
    keep: bool,

    /// Wait for Enter before each step
    #[arg(long)]
    step: bool,

    /// Serve a dashboard that shows the demo live, instead of printing it
    ///
    /// It shows each stage of the control loop, the history of each key, and objects with their field managers. On it you can
    /// pause, step, speed up time, break watches, lose responses and crash the controller. IP:PORT or :PORT; port 0 picks a
    /// free port.
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = dashboard::ADDRESS, conflicts_with_all = ["keep", "step"])]
    web: Option<String>,
}

impl Demo {
    /// Runs it all.
    pub(crate) fn run(self, env: &Env, started: Instant) -> anyhow::Result<()> {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .context("cannot start threads")?
            .block_on(async {
                match &self.web {
                    Some(address) => web::run(env, address).await,
                    None => self.show(env, started).await,
                }
            })
    }

    async fn show(self, env: &Env, started: Instant) -> anyhow::Result<()> {
        let mut signals = Signals::new().context("cannot listen to signals")?;
        let (screen, notices) = (Screen::new(self.step), Notices::new(env.clone()));
        let server = ApiServer::builder().env(env.clone()).build();
        let requests = Requests::default();
        let client = |who| requests.client(&server, who);

        let cluster = Cluster::builder(client("the cluster")).env(env.clone()).nodes(NODES).start();
        let you = client("you");
        steps::install_foo(&you).await?;
        let controller_client = client("the Foo controller");
        let factory = SharedInformerFactory::new(controller_client.clone()).env(env.clone()).resync(RESYNC);
        let _listener = listener::listen(factory.facts(), env, &notices);
        let shutdown = CancellationToken::new();
        let controller = FooController::new(controller_client, &factory, env.clone());
        let controller = env.spawn(controller.run(WORKERS, shutdown.clone()));
        let observer = Observer::start(client("the observer"), env, &notices).await?;
        steps::wait_for_nodes(&observer, NODES).await?;
        screen.title(&format!(
            "An API server, {NODES} nodes, the built-in controllers and the Foo controller are up after {} ms.",
            env.instant().saturating_duration_since(started).as_millis()
        ));

        let mut steps = Steps::new(you, observer, notices, screen, env.clone());
        let outcome = tokio::select! {
            outcome = steps.run() => outcome,
            _ = signals.next() => bail!("interrupted before the demo had ended"),
        };
        steps.summary(&requests, env.instant().saturating_duration_since(started));
        outcome?;
        if self.keep {
            keep(&server, env, &mut signals, steps.screen()).await?;
        }
        shutdown.cancel();
        controller.await.context("the Foo controller panicked")??;
        cluster.stop().await.context("the cluster did not stop cleanly")?;
        Ok(())
    }
}

/// Serves what is there until a signal comes.
async fn keep(server: &ApiServer, env: &Env, signals: &mut Signals, screen: &Screen) -> anyhow::Result<()> {
    const SERVE_LIMIT: Duration = Duration::from_secs(5);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("cannot listen on 127.0.0.1")?;
    let address = listener.local_addr()?;
    let authority = CertificateAuthority::generate(env)?;
    let tls = authority.server_config(&authority.issue_server(["127.0.0.1"])?)?;
    let folder = std::env::temp_dir().join(format!("setpoint-demo-{}", std::process::id()));
    std::fs::create_dir_all(&folder).context("cannot make a folder for the kubeconfig")?;
    let path = folder.join("kubeconfig");
    let kubeconfig =
        Kubeconfig::new(&format!("https://{address}"), &authority, &authority.issue_client(&User::admin())?);
    kubeconfig.write(&path)?;
    let shutdown = CancellationToken::new();
    let serving = env.spawn({
        let (server, shutdown) = (server.clone(), shutdown.clone());
        async move { server.serve(listener, tls, shutdown).await }
    });
    screen.line("");
    screen.line("It goes on running until Ctrl-C. In another terminal:");
    screen.line("");
    screen.line(&format!("  export KUBECONFIG={}", path.display()));
    screen.line("  kubectl apply -f examples/foo/manifests/example-foo.yaml");
    screen.line("  kubectl get foos,deployments,pods");
    signals.next().await;
    shutdown.cancel();
    // What cannot be removed is in the folder for temporary files anyway.
    let _left = std::fs::remove_dir_all(&folder);
    tokio::time::timeout(SERVE_LIMIT, serving).await.ok();
    Ok(())
}
