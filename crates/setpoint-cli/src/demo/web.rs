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
use super::world::World;
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

/// Everything that there is to see: it lives in a world with a time of its own.
struct Scenery {
    server: ApiServer,
    playground: Arc<Playground>,
    facts: Facts,
}

impl Scenery {
    async fn set(world: &World) -> anyhow::Result<Scenery> {
        let stage = world.clone();
        let setting = async move {
            let env = stage.env();
            let server = ApiServer::builder().env(env.clone()).logs(SyntheticLog).build();
            let facts = Facts::new(env.clone());
            let playground = Arc::new(Playground::new(&server, env, &facts).with_time(&stage));
            Scenery { server, playground, facts }
        };
        world.run(setting).await
    }

    /// Starts all that moves.
    async fn start(&self, world: &World) -> anyhow::Result<Cluster> {
        let (server, playground, facts) = (self.server.clone(), self.playground.clone(), self.facts.clone());
        let env = world.env().clone();
        let starting = async move {
            let cluster = Cluster::builder(named(&server, "setpoint-cluster"))
                .env(env)
                .facts(&facts)
                .nodes(NODES)
                .start();
            steps::install_foo(&server.client()).await?;
            playground.start_controller();
            playground.scale(1).await?;
            anyhow::Ok(cluster)
        };
        world.run(starting).await?
    }
}

/// Runs until a signal comes.
pub(crate) async fn run(env: &Env, address: &str) -> anyhow::Result<()> {
    let mut signals = Signals::new().context("cannot listen to signals")?;
    let (screen, world) = (Screen::new(false), World::begin().await?);
    let scenery = Scenery::set(&world).await?;
    let playground = scenery.playground.clone();
    let config = DashboardConfig::default().listen(dashboard::parse(address)?).all_kinds();
    let config = config.stage(OnStage { playground, world: world.clone() });
    // Before anything starts: the page knows it all from the beginning.
    let client = world.client(&scenery.server);
    let dashboard = Dashboard::new(&scenery.facts, client, env.clone(), config);
    let listening = dashboard.listen().await.map_err(dashboard::with_advice)?;
    let cluster = scenery.start(&world).await?;
    let _driving = env.spawn(world.clone().drive(env.clone()));
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
            ended.context("the dashboard panicked")??;
            bail!("the dashboard stopped unexpectedly");
        }
        _ = signals.next() => {}
    }
    shutdown.cancel();
    serving.await.context("the dashboard panicked")??;
    // Whoever stops waits for time to pass.
    world.set_rate(1.0);
    world.run(async move { cluster.stop().await }).await?.context("the cluster did not stop cleanly")
}
