//! The controller: makes the world match each `Shop`.

use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use setpoint::conditions::{new_condition, set_condition};
use setpoint::ensure;
use setpoint::owner::is_controlled_by;
use setpoint::patch_status;
use setpoint::{
    Action, Context, Controller, Ensured, Event, ObjectKey, Predicate, ReconcileError, Verb, Watch,
    Watchable,
};

use crate::api;
use crate::children;

/// The condition that says whether everything is in place.
pub const READY: &str = "Ready";

/// The controller: what to call, what to watch, and what it writes (config/rbac is made from that).
pub fn controller() -> Controller {
    // What we write into a status ourselves is no news.
    let shops = Watch::<api::Shop>::new().filter(Predicate::generation_changed());
    Controller::of(shops, crate::NAME, reconcile)
        .writes_status::<api::Shop>()
        .owns::<Deployment>(..)
        .writes::<Deployment>(&[Verb::Create, Verb::Patch])
        .owns::<ConfigMap>(..)
        .writes::<ConfigMap>(&[Verb::Create, Verb::Patch])
        .records_events()
        .workers(4)
}

/// Makes the world match one object.
pub async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(object) = cx.lister::<api::Shop>()?.get(&key) else {
        return Ok(Action::done()); // it is gone, and what it owned goes with it
    };
    if object.metadata.deletion_timestamp.is_some() {
        return Ok(Action::done());
    }
    let outcome = make(&object, &cx).await;
    let ready = match &outcome {
        Ok(None) => new_condition(READY, true, "Reconciled", "everything is in place"),
        // It comes again when the child changes.
        Ok(Some(child)) => {
            let message = format!("the {child} is not available yet");
            new_condition(READY, false, format!("{child}NotAvailable"), message)
        }
        Err(error) => new_condition(READY, false, "Failed", error.to_string()),
    };
    write_status(&object, ready, &cx).await?;
    // What failed is tried again, later and later.
    outcome.map(|_| Action::done())
}

/// Makes everything that the object asks for. Called again and again, it changes nothing that is as it should be.
/// Says which child is not available yet, the first of them.
async fn make(object: &api::Shop, cx: &Context) -> Result<Option<&'static str>, ReconcileError> {
    let deployment = keep(object, children::deployment(object)?, cx).await?;
    keep(object, children::config_map(object)?, cx).await?;
    if !children::deployment_is_available(&deployment) {
        return Ok(Some("Deployment"));
    }
    Ok(None)
}

/// Makes sure that a child is there, is as wanted, and is ours. Returns it as it is now.
async fn keep<C>(object: &api::Shop, wanted: C, cx: &Context) -> Result<Arc<C>, ReconcileError>
where
    C: Watchable + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    C: Serialize + Debug,
{
    let (name, namespace) = (wanted.name_any(), wanted.namespace().unwrap_or_default());
    let current = cx
        .lister::<C>()?
        .get(&ObjectKey::namespaced(&namespace, &name));
    if current
        .as_deref()
        .is_some_and(|current| !is_controlled_by(current, object))
    {
        return Err(format!(
            "the {} {name} is there already, and is not ours",
            C::kind(&())
        )
        .into());
    }
    let api: Api<C> = Api::namespaced(cx.client(), &namespace);
    match ensure(&api, current.as_deref(), &wanted).await? {
        Ensured::Created(child) => {
            let note = format!("made the {} {name}", C::kind(&()));
            cx.recorder().event(object, Event::normal("Created", note));
            Ok(Arc::new(child))
        }
        Ensured::Updated(child) => Ok(Arc::new(child)),
        // As wanted: what is there already.
        Ensured::Unchanged => Ok(current.unwrap_or_else(|| Arc::new(wanted))),
    }
}

async fn write_status(
    object: &api::Shop,
    mut ready: Condition,
    cx: &Context,
) -> Result<(), kube::Error> {
    let mut status: api::ShopStatus = object.status.clone().unwrap_or_default();
    status.observed_generation = object.metadata.generation;
    ready.observed_generation = object.metadata.generation;
    set_condition(&mut status.conditions, ready, cx.env().now());
    let api: Api<api::Shop> = Api::namespaced(cx.client(), &object.namespace().unwrap_or_default());
    patch_status(&api, object, &status).await?;
    Ok(())
}
