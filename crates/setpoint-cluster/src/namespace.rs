//! Empties a namespace that is being deleted, then lets it go.

mod content;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use setpoint::{Action, Context, Controller, ObjectKey, Predicate, ReconcileError, Watch};

use self::content::Remaining;
use crate::failure;

/// How long one reconcile may take.
const TIME_LIMIT: Duration = Duration::from_secs(300);
const NAME: &str = "namespace-controller";
/// The finalizer in a namespace's spec that is this controller's.
const FINALIZER: &str = "kubernetes";
/// How soon a namespace is looked at again that still has something in it: the longer it ends, the later.
const SOONEST: Duration = Duration::from_secs(1);
const LATEST: Duration = Duration::from_secs(15);
/// How many namespaces are emptied at the same time.
const WORKERS: usize = 4;

pub(crate) fn controller() -> Controller {
    Controller::of(Watch::<Namespace>::new().filter(Predicate::version_changed()), NAME, reconcile)
        .workers(WORKERS)
        .time_limit(TIME_LIMIT)
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(namespace) = cx.lister::<Namespace>()?.get(&key) else { return Ok(Action::done()) };
    let finalizers = namespace.spec.iter().flat_map(|spec| spec.finalizers.iter().flatten());
    let is_held = finalizers.into_iter().any(|finalizer| finalizer == FINALIZER);
    let Some(since) = namespace.metadata.deletion_timestamp.as_ref().filter(|_| is_held) else {
        return Ok(Action::done());
    };
    let remaining = content::delete(&cx.untracked_client(), key.name()).await?;
    let api: Api<Namespace> = Api::all(cx.client());
    let done = if remaining.is_empty() {
        finalize(&api, &namespace).await
    } else {
        say_what_remains(&api, &namespace, &remaining, &cx).await
    };
    match done {
        Err(error) if failure::is_not_found(&error) => Ok(Action::done()),
        Err(error) => Err(error.into()),
        Ok(()) if remaining.is_empty() => Ok(Action::done()),
        Ok(()) => {
            let ends_for = cx.env().now().duration_since(since.0).unsigned_abs();
            Ok(Action::requeue_after(ends_for.checked_div(8).unwrap_or_default().clamp(SOONEST, LATEST)))
        }
    }
}

/// Takes this controller's finalizer away; the server then removes the namespace.
async fn finalize(api: &Api<Namespace>, namespace: &Namespace) -> Result<(), kube::Error> {
    let mut emptied = namespace.clone();
    if let Some(finalizers) = emptied.spec.as_mut().and_then(|spec| spec.finalizers.as_mut()) {
        finalizers.retain(|finalizer| finalizer != FINALIZER);
    }
    let name = namespace.name_any();
    api.replace_subresource("finalize", &name, &PostParams::default(), &emptied).await.map(drop)
}

async fn say_what_remains(
    api: &Api<Namespace>,
    namespace: &Namespace,
    remaining: &Remaining,
    cx: &Context,
) -> Result<(), kube::Error> {
    let old = namespace.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let now = format!("{:.0}", cx.env().now());
    let mut is_changed = false;
    let conditions: Vec<Value> = remaining
        .conditions()
        .into_iter()
        .map(|(type_, is_true, reason, message)| {
            let status = if is_true { "True" } else { "False" };
            let known = old.iter().find(|condition| condition.type_ == type_);
            let is_same = |known: &NamespaceCondition| {
                known.status == status
                    && known.reason.as_deref() == Some(reason)
                    && known.message.as_ref() == Some(&message)
            };
            is_changed |= !known.is_some_and(is_same);
            let since = known.filter(|known| known.status == status);
            let since = since.and_then(|known| known.last_transition_time.as_ref());
            let since = since.map_or_else(|| now.clone(), |time| format!("{:.0}", time.0));
            json!({"type": type_, "status": status, "reason": reason, "message": message,
                   "lastTransitionTime": since})
        })
        .collect();
    if !is_changed {
        return Ok(());
    }
    let patch = json!({"status": {"conditions": conditions}});
    let name = namespace.name_any();
    api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(&patch)).await.map(drop)
}
