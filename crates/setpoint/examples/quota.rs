//! Every namespace that is labelled `quota=small` has a ResourceQuota of that size.

use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use kube::{Api, Resource, ResourceExt};
use serde_json::json;
use setpoint::{Action, ClientConfig, Context, Controller, Manager, ObjectKey, ReconcileError, ensure};

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(namespace) = cx.lister::<Namespace>()?.get(&key) else {
        return Ok(Action::done()); // it is gone, and its quota with it
    };
    if namespace.labels().get("quota").is_none_or(|size| size != "small") {
        return Ok(Action::done());
    }
    let wanted: ResourceQuota = serde_json::from_value(json!({
        "metadata": {"name": "small", "ownerReferences": [namespace.controller_owner_ref(&())]},
        "spec": {"hard": {"pods": "10"}}
    }))?;
    let quotas: Api<ResourceQuota> = Api::namespaced(cx.client(), key.name());
    let current = cx.lister()?.get(&ObjectKey::namespaced(key.name(), "small"));
    ensure(&quotas, current.as_deref(), &wanted).await?;
    Ok(Action::done())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = ClientConfig::new().connect().await?;
    let controller = Controller::of::<Namespace>(.., "quota", reconcile).owns::<ResourceQuota>(..).workers(2);
    Manager::new(client).controller(controller).stop_on_signals().run().await?;
    Ok(())
}
