//! A page with very much to show: 100,000 objects, 5,000 facts a second, names that would like to be markup, and a controller that
//! gives up on one key and reconciles another all the time.
//!
//! `cargo run --release -p setpoint-dashboard --example crowd -- [ADDRESS] [OBJECTS] [FACTS A SECOND]`

use std::time::Duration;

use anyhow::Context;
use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use setpoint::controller::Runtime;
use setpoint::{
    Action, Context as Reconcile, Controller, Facts, Manager, Metrics, ObjectKey, ReconcileError,
    SharedInformerFactory, WorkQueue, run_workers,
};
use setpoint_apiserver::ApiServer;
use setpoint_dashboard::{Dashboard, DashboardConfig};
use setpoint_env::Env;
use tokio_util::sync::CancellationToken;

/// What a browser would run, if a name could become a part of the page.
const HOSTILE: &str = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>";
/// A key that is added, taken and done is told so often.
const FACTS_OF_A_KEY: u64 = 5;
const EVERY: Duration = Duration::from_millis(20);
/// A key that its controller gives up on, and one that it reconciles all the time.
const HOPELESS: &str = "hopeless";
const BUSY: &str = "busy";
const BUSY_EVERY: Duration = Duration::from_millis(200);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:6480".to_owned());
    let objects: usize = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let rate: u64 = arguments.next().map_or(Ok(5000), |text| text.parse())?;
    let (env, server) = (Env::system(), ApiServer::builder().build());
    let facts = Facts::new(env.clone());
    let config = DashboardConfig::default().listen(address.parse()?).all_kinds();
    let listening = Dashboard::new(&facts, server.client(), env.clone(), config).listen().await?;

    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let made = stream::iter(0..objects).map(|n| {
        let maps = &maps;
        async move {
            let name = format!("object-{n:06}");
            let map = json!({"metadata": {"name": name, "annotations": {"note": HOSTILE}}, "data": {HOSTILE_KEY: HOSTILE}});
            maps.create(&PostParams::default(), &serde_json::from_value(map)?).await?;
            anyhow::Ok(())
        }
    });
    let made: Vec<anyhow::Result<()>> = made.buffer_unordered(64).collect().await;
    made.into_iter().collect::<anyhow::Result<()>>().context("an object cannot be made")?;
    let factory = SharedInformerFactory::new(server.client()).env(env.clone()).with_facts(&facts);
    factory.informer::<ConfigMap>();
    factory.start();
    factory.wait_for_cache_sync(Duration::from_secs(120)).await?;

    let secrets: Api<Secret> = Api::default_namespaced(server.client());
    for name in [HOPELESS, BUSY] {
        let secret = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        secrets.create(&PostParams::default(), &secret).await?;
    }
    let runtime = Runtime::with(server.client(), env.clone(), Metrics::default()).with_facts(&facts);
    let manager = Manager::with(runtime).controller(Controller::of::<Secret>(.., "moody", moody));
    let _managing = env.spawn(manager.run());

    let queue = WorkQueue::builder().facts(HOSTILE, &facts).build();
    let working =
        run_workers(4, &queue, async |key: String| if key.ends_with("13") { Err(HOSTILE) } else { Ok(()) });
    let adding = async {
        let mut tick = tokio::time::interval(EVERY);
        let each = rate * EVERY.as_millis() as u64 / 1000 / FACTS_OF_A_KEY;
        for n in 0.. {
            tick.tick().await;
            (0..each).for_each(|m| queue.add(format!("default/{HOSTILE}-{}", (n * each + m) % 5000)));
        }
    };
    tell(&listening.url());
    let serving = listening.serve(CancellationToken::new());
    tokio::select! {
        served = serving => served?,
        () = working => {}
        () = adding => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(())
}

async fn moody(key: ObjectKey, _: Reconcile) -> Result<Action, ReconcileError> {
    match key.name() {
        HOPELESS => Err(ReconcileError::terminal("there is no such class")),
        BUSY => Ok(Action::requeue_after(BUSY_EVERY)),
        _ => Ok(Action::done()),
    }
}

/// A key of a ConfigMap may not be markup; its value may.
const HOSTILE_KEY: &str = "note";

#[expect(clippy::print_stdout, reason = "an example says where it is")]
fn tell(url: &str) {
    println!("{url}");
}
