//! Two writers of one field, to be found: a controller keeps it at one value, and somebody else sets another one.

use std::convert::Infallible;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use setpoint::controller::Runtime;
use setpoint::kube::Client;
use setpoint::kube::api::{Api, Patch, PatchParams};
use setpoint::{Action, Context, Controller, Facts, Manager, Metrics, ObjectKey, ReconcileError, Watch};
use setpoint_env::{Env, Task};

const NAME: &str = "keeper";
const RIVAL: &str = "rival";
/// What both write into.
const OBJECT: &str = "contested";
const PAUSE: Duration = Duration::from_millis(400);

/// Starts both, as long as the task lives.
pub(crate) async fn start(client: Client, env: &Env, facts: &Facts) -> anyhow::Result<Task<()>> {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": OBJECT, "labels": {"demo": NAME}}});
    let params = PatchParams::apply("demo");
    maps.patch(OBJECT, &params, &Patch::Apply(object)).await.context("cannot make the object")?;
    let runtime = Runtime::with(client, env.clone(), Metrics::default()).with_facts(facts);
    let runtime = runtime.factory(|factory| factory.namespace("default"));
    let own = Watch::<ConfigMap>::new().labels(format!("demo={NAME}"));
    let manager = Manager::with(runtime).controller(Controller::of(own, NAME, keep));
    Ok(env.spawn(async move {
        tokio::select! {
            ended = manager.run() => if let Err(error) = ended {
                tracing::warn!(%error, "the controller with a rival has failed");
            },
            never = set_back(maps) => match never {},
        }
    }))
}

fn mode(manager: &str, mode: &str) -> (PatchParams, Patch<Value>) {
    let params = PatchParams { field_manager: Some(manager.into()), ..PatchParams::default() };
    (params, Patch::Merge(json!({"data": {"mode": mode}})))
}

/// The rival.
async fn set_back(maps: Api<ConfigMap>) -> Infallible {
    loop {
        tokio::time::sleep(PAUSE).await;
        let (params, off) = mode(RIVAL, "off");
        if let Err(error) = maps.patch(OBJECT, &params, &off).await {
            tracing::debug!(%error, "the rival cannot write");
        }
    }
}

async fn keep(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let map = cx.lister::<ConfigMap>()?.get(&key);
    let is_on =
        |map: &ConfigMap| map.data.as_ref().and_then(|data| data.get("mode")).is_some_and(|it| it == "on");
    if map.is_some_and(|map| !is_on(&map)) {
        let maps: Api<ConfigMap> = Api::default_namespaced(cx.client());
        let (params, on) = mode(NAME, "on");
        maps.patch(key.name(), &params, &on).await?;
    }
    Ok(Action::done())
}
