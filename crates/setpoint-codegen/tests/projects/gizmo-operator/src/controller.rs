//! The controller: makes the world match each `Gizmo`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Api, ResourceExt};
use setpoint::conditions::{new_condition, set_condition};
use setpoint::patch_status;
use setpoint::{Action, Context, Controller, ObjectKey, Predicate, ReconcileError, Watch};

use crate::api;

/// The condition that says whether everything is in place.
pub const READY: &str = "Ready";

/// The controller: what to call, what to watch, and what it writes (config/rbac is made from that).
pub fn controller() -> Controller {
    // What we write into a status ourselves is no news.
    let gizmos = Watch::<api::Gizmo>::new().filter(Predicate::generation_changed());
    Controller::of(gizmos, crate::NAME, reconcile)
        .writes_status::<api::Gizmo>()
        .workers(4)
}

/// Makes the world match one object.
pub async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(object) = cx.lister::<api::Gizmo>()?.get(&key) else {
        return Ok(Action::done()); // it is gone, and what it owned goes with it
    };
    if object.metadata.deletion_timestamp.is_some() {
        return Ok(Action::done());
    }
    let outcome = make(&object, &cx).await;
    let ready = match &outcome {
        Ok(()) => new_condition(READY, true, "Reconciled", "everything is in place"),
        Err(error) => new_condition(READY, false, "Failed", error.to_string()),
    };
    write_status(&object, ready, &cx).await?;
    // What failed is tried again, later and later.
    outcome.map(|()| Action::done())
}

/// Makes everything that the object asks for. Called again and again, it changes nothing that is as it should be.
async fn make(object: &api::Gizmo, _cx: &Context) -> Result<(), ReconcileError> {
    tracing::info!(name = object.name_any(), "reconciled");
    Ok(())
}

async fn write_status(
    object: &api::Gizmo,
    mut ready: Condition,
    cx: &Context,
) -> Result<(), ReconcileError> {
    // As JSON: the conditions of this kind have a type of their own.
    let mut status = match &object.status {
        Some(status) => serde_json::to_value(status)?,
        None => serde_json::json!({}),
    };
    let mut conditions: Vec<Condition> =
        serde_json::from_value(status["conditions"].take()).unwrap_or_default();
    ready.observed_generation = object.metadata.generation;
    set_condition(&mut conditions, ready, cx.env().now());
    status["conditions"] = serde_json::to_value(conditions)?;
    let api: Api<api::Gizmo> = Api::all(cx.client());
    patch_status(&api, object, &status).await?;
    Ok(())
}
