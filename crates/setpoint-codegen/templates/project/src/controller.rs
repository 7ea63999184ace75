//! The controller: makes the world match each `Widget`.

{% if owned %}
use std::fmt::Debug;
use std::sync::Arc;

{% for child in owned %}
use k8s_openapi::api::{{ child.module }}::{{ child.kind }};
{% endfor %}
use k8s_openapi::NamespaceResourceScope;
{% endif %}
{% if conditions %}
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
{% endif %}
{% if owned %}
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
{% elif conditions %}
use kube::{Api, ResourceExt};
{% else %}
use kube::ResourceExt;
{% endif %}
{% if conditions %}
use setpoint::conditions::{new_condition, set_condition};
{% endif %}
{% if owned %}
use setpoint::owner::is_controlled_by;
use setpoint::{
    Action, Context, Controller, Ensured, Event, ObjectKey, Predicate, ReconcileError, Verb, Watch, Watchable,
};
use setpoint::ensure;
{% else %}
use setpoint::{Action, Context, Controller, ObjectKey, Predicate, ReconcileError, Watch};
{% endif %}
{% if conditions %}
use setpoint::patch_status;
{% endif %}

use crate::api;
{% if owned %}
use crate::children;
{% endif %}

{% if conditions %}
/// The condition that says whether everything is in place.
pub const READY: &str = "Ready";

{% endif %}
/// The controller: what to call, what to watch, and what it writes (config/rbac is made from that).
pub fn controller() -> Controller {
    // What we write into a status ourselves is no news.
    let widgets = Watch::<api::Widget>::new().filter(Predicate::generation_changed());
    Controller::of(widgets, crate::NAME, reconcile)
{% if conditions %}
        .writes_status::<api::Widget>()
{% endif %}
{% for child in owned %}
        .owns::<{{ child.kind }}>(..)
        .writes::<{{ child.kind }}>(&[Verb::Create, Verb::Patch])
{% endfor %}
{% if owned %}
        .records_events()
{% endif %}
        .workers(4)
}

/// Makes the world match one object.
pub async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(object) = cx.lister::<api::Widget>()?.get(&key) else {
        return Ok(Action::done()); // it is gone, and what it owned goes with it
    };
    if object.metadata.deletion_timestamp.is_some() {
        return Ok(Action::done());
    }
    let outcome = make(&object, &cx).await;
{% if conditions %}
    let ready = match &outcome {
{% if awaited %}
        Ok(None) => new_condition(READY, true, "Reconciled", "everything is in place"),
        // It comes again when the child changes.
        Ok(Some(child)) => {
            let message = format!("the {child} is not available yet");
            new_condition(READY, false, format!("{child}NotAvailable"), message)
        }
{% else %}
        Ok(()) => new_condition(READY, true, "Reconciled", "everything is in place"),
{% endif %}
        Err(error) => new_condition(READY, false, "Failed", error.to_string()),
    };
    write_status(&object, ready, &cx).await?;
{% endif %}
    // What failed is tried again, later and later.
{% if awaited %}
    outcome.map(|_| Action::done())
{% else %}
    outcome.map(|()| Action::done())
{% endif %}
}

/// Makes everything that the object asks for. Called again and again, it changes nothing that is as it should be.
{% if owned %}
{% if awaited %}
/// Says which child is not available yet, the first of them.
async fn make(object: &api::Widget, cx: &Context) -> Result<Option<&'static str>, ReconcileError> {
{% for child in owned %}
{% if child.is_available %}
    let {{ child.name }} = keep(object, children::{{ child.name }}(object)?, cx).await?;
{% else %}
    keep(object, children::{{ child.name }}(object)?, cx).await?;
{% endif %}
{% endfor %}
{% for child in owned if child.is_available %}
    if !children::{{ child.name }}_is_available(&{{ child.name }}) {
        return Ok(Some("{{ child.kind }}"));
    }
{% endfor %}
    Ok(None)
}
{% else %}
async fn make(object: &api::Widget, cx: &Context) -> Result<(), ReconcileError> {
{% for child in owned %}
    keep(object, children::{{ child.name }}(object)?, cx).await?;
{% endfor %}
    Ok(())
}
{% endif %}

/// Makes sure that a child is there, is as wanted, and is ours. Returns it as it is now.
async fn keep<C>(object: &api::Widget, wanted: C, cx: &Context) -> Result<Arc<C>, ReconcileError>
where
    C: Watchable + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    C: Serialize + Debug,
{
    let (name, namespace) = (wanted.name_any(), wanted.namespace().unwrap_or_default());
    let current = cx.lister::<C>()?.get(&ObjectKey::namespaced(&namespace, &name));
    if current.as_deref().is_some_and(|current| !is_controlled_by(current, object)) {
        return Err(format!("the {} {name} is there already, and is not ours", C::kind(&())).into());
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
{% else %}
async fn make(object: &api::Widget, _cx: &Context) -> Result<(), ReconcileError> {
    tracing::info!(name = object.name_any(), "reconciled");
    Ok(())
}
{% endif %}
{% if conditions %}

{% if plain %}
async fn write_status(object: &api::Widget, mut ready: Condition, cx: &Context) -> Result<(), kube::Error> {
    let mut status: api::WidgetStatus = object.status.clone().unwrap_or_default();
    status.observed_generation = object.metadata.generation;
    ready.observed_generation = object.metadata.generation;
    set_condition(&mut status.conditions, ready, cx.env().now());
{% else %}
async fn write_status(object: &api::Widget, mut ready: Condition, cx: &Context) -> Result<(), ReconcileError> {
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
{% endif %}
{% if cluster_scoped %}
    let api: Api<api::Widget> = Api::all(cx.client());
{% else %}
    let api: Api<api::Widget> = Api::namespaced(cx.client(), &object.namespace().unwrap_or_default());
{% endif %}
    patch_status(&api, object, &status).await?;
    Ok(())
}
{% endif %}
