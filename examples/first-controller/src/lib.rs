//! A namespace that is annotated with a greeting has a ConfigMap with it.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{Api, ResourceExt};
use serde_json::json;
use setpoint::owner::controller_reference;
use setpoint::{Action, Context, Controller, ObjectKey, ReconcileError, Verb, ensure};

/// What asks for the ConfigMap.
pub const ANNOTATION: &str = "example.com/greeting";

/// Makes the world match one namespace.
pub async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(namespace) = cx.lister::<Namespace>()?.get(&key) else {
        return Ok(Action::done()); // it is gone, and all that was in it
    };
    let Some(greeting) = namespace.annotations().get(ANNOTATION) else {
        return Ok(Action::done()); // it wants nothing
    };
    let wanted: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "greeting", "ownerReferences": [controller_reference(&*namespace)]},
        "data": {"text": greeting},
    }))?;
    let maps: Api<ConfigMap> = Api::namespaced(cx.client(), key.name());
    let current = cx.lister::<ConfigMap>()?.get(&ObjectKey::namespaced(key.name(), "greeting"));
    ensure(&maps, current.as_deref(), &wanted).await?;
    Ok(Action::done())
}

/// The controller: what to call, what to watch, and what it writes.
pub fn controller() -> Controller {
    Controller::of::<Namespace>(.., "greeting", reconcile)
        .owns::<ConfigMap>(..)
        .writes::<ConfigMap>(&[Verb::Create, Verb::Patch])
}
