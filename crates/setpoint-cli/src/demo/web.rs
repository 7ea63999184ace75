//! `setpoint demo --web`: the same world, on a page, to play with.

use std::sync::Arc;

use anyhow::{Context, bail};
use http::Request;
use http::header::{HeaderValue, USER_AGENT};
use setpoint::Facts;
use setpoint::kube::Client;
use setpoint::kube::client::Body;
use setpoint_apiserver::{ApiServer, User};
use setpoint_cluster::Cluster;
use setpoint_cluster::node::SyntheticLog;
use setpoint_dashboard::{Dashboard, DashboardConfig};
use setpoint_env::Env;
use tokio_util::sync::CancellationToken;
use tower::{ServiceExt, service_fn};

use super::playground::{OnStage, Playground};
use super::screen::Screen;
use super::{NODES, steps};
use crate::dashboard;
use crate::signals::Signals;

/// A client whose writes have this name in `managedFields`.
fn named(server: &ApiServer, name: &'static str) -> Client {
    let service = server.as_user(User::admin());
    let named = service_fn(move |mut request: Request<Body>| {
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(name));
        service.clone().oneshot(request)
    });
    Client::new(named, "default")
}

/// Runs until a signal comes.
pub(crate) async fn run(env: &Env, address: &str) -> anyhow::Result<()> {
    let mut signals = Signals::new().context("cannot listen to signals")?;
    let (screen, facts) = (Screen::new(false), Facts::new(env.clone()));
    let server = ApiServer::builder().env(env.clone()).logs(SyntheticLog).build();
    let playground = Arc::new(Playground::new(&server, env, &facts));
    let config = DashboardConfig::default().listen(dashboard::parse(address)?).all_kinds();
    let config = config.stage(OnStage(playground.clone()));
    // Before anything starts: the page knows it all from the beginning.
    let dashboard = Dashboard::new(&facts, server.client(), env.clone(), config);
    let listening = dashboard.listen().await.map_err(dashboard::with_advice)?;
    let cluster = Cluster::builder(named(&server, "setpoint-cluster"))
        .env(env.clone())
        .facts(&facts)
        .nodes(NODES)
        .start();
    steps::install_foo(&server.client()).await?;
    playground.start_controller();
    playground.scale(1).await?;
    screen.title("An API server, three nodes, the built-in controllers and the Foo controller are up.");
    screen.line("");
    screen.line(&format!("  {}", listening.url()));
    screen.line("");
    screen.line("Open it in a browser; under Play you can scale, delete, cut, crash. Ctrl-C ends it.");
    let shutdown = CancellationToken::new();
    let serving = env.spawn(listening.serve(shutdown.clone()));
    tokio::pin!(serving);
    tokio::select! {
        ended = &mut serving => {
            ended.context("the page panicked")??;
            bail!("the page ended by itself");
        }
        _ = signals.next() => {}
    }
    shutdown.cancel();
    serving.await.context("the page panicked")??;
    cluster.stop().await.context("the cluster did not stop well")?;
    Ok(())
}
