//! A controller with a bug, to be found: it writes into its object which reconcile was the last.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use setpoint::controller::Runtime;
use setpoint::kube::Client;
use setpoint::kube::api::{Api, Patch, PatchParams};
use setpoint::{Action, Context, Controller, Facts, Manager, Metrics, ObjectKey, ReconcileError, Watch};
use setpoint_env::{Env, Task};

const NAME: &str = "stamp";
/// What it writes into.
pub(crate) const OBJECT: &str = "stamped";
/// So that it is hot, and leaves something for the others.
const PAUSE: Duration = Duration::from_millis(40);

/// Starts it, as long as the task lives.
pub(crate) async fn start(client: Client, env: &Env, facts: &Facts) -> anyhow::Result<Task<()>> {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": OBJECT, "labels": {"demo": NAME}}});
    let params = PatchParams::apply("demo");
    maps.patch(OBJECT, &params, &Patch::Apply(object)).await.context("cannot make the object")?;
    let runtime = Runtime::with(client, env.clone(), Metrics::default()).with_facts(facts);
    let runtime = runtime.factory(|factory| factory.namespace("default"));
    let own = Watch::<ConfigMap>::new().labels(format!("demo={NAME}"));
    let manager = Manager::with(runtime).controller(Controller::of(own, NAME, stamp));
    Ok(env.spawn(async move {
        if let Err(error) = manager.run().await {
            tracing::warn!(%error, "the controller that loops has failed");
        }
    }))
}

async fn stamp(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    if cx.lister::<ConfigMap>()?.get(&key).is_some() {
        tokio::time::sleep(PAUSE).await;
        let maps: Api<ConfigMap> = Api::default_namespaced(cx.client());
        let last = json!({"data": {"lastReconcile": cx.reconcile_id().to_string()}});
        let params = PatchParams { field_manager: Some(NAME.into()), ..PatchParams::default() };
        maps.patch(key.name(), &params, &Patch::Merge(last)).await?;
    }
    Ok(Action::done())
}
