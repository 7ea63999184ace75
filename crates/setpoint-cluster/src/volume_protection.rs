//! Volumes and claims that are in use are not deleted: each has a finalizer until nobody uses it any more.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde_json::json;
use setpoint::Watchable;
use setpoint::controller::ListerError;
use setpoint::{Action, Context, Controller, ObjectKey, ReconcileError, SharedInformerFactory};

use crate::persistent_volume_binder::claims_of;
use crate::{caches, failure};

/// How long one reconcile may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);
const OF_CLAIM: &str = "kubernetes.io/pvc-protection";
const OF_VOLUME: &str = "kubernetes.io/pv-protection";
/// How many pods are asked for at a time.
const PAGE: u32 = 500;

/// The controller that keeps claims as long as a pod uses them.
pub(crate) fn of_claims(informers: &SharedInformerFactory) -> Controller {
    caches::index_pods_by_claim(&informers.informer::<Pod>());
    Controller::of::<PersistentVolumeClaim>(
        ..,
        "persistentvolumeclaim-protection-controller",
        reconcile_claim,
    )
    .watches::<Pod>(.., |pod| {
        let namespace = pod.namespace().unwrap_or_default();
        claims_of(pod).iter().map(|claim| ObjectKey::namespaced(&namespace, claim)).collect()
    })
    .time_limit(TIME_LIMIT)
}

/// The controller that keeps volumes as long as a claim has them.
pub(crate) fn of_volumes() -> Controller {
    Controller::of::<PersistentVolume>(.., "persistentvolume-protection-controller", reconcile_volume)
        .time_limit(TIME_LIMIT)
}

async fn reconcile_claim(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(claim) = cx.lister::<PersistentVolumeClaim>()?.get(&key) else { return Ok(Action::done()) };
    let namespace = key.namespace().unwrap_or_default();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(cx.client(), namespace);
    let is_free = claim.metadata.deletion_timestamp.is_some()
        && !is_used(&cx, namespace, key.name())?
        && !is_used_live(&cx, namespace, key.name()).await?;
    protect(&claims, &*claim, OF_CLAIM, is_free).await
}

/// Whether a pod in the cache uses a claim.
fn is_used(cx: &Context, namespace: &str, claim: &str) -> Result<bool, ListerError> {
    let claim = caches::claim_value(namespace, claim);
    let pods = cx.lister::<Pod>()?.by_index(caches::BY_CLAIM, &claim).unwrap_or_default();
    Ok(pods.iter().any(|pod| has_node(pod)))
}

/// A pod that has no node yet will not start with a claim that is going.
fn has_node(pod: &Pod) -> bool {
    !crate::pod::node_name(pod).is_empty()
}

/// Asks the server: nothing is given up for what only a cache says.
async fn is_used_live(cx: &Context, namespace: &str, claim: &str) -> Result<bool, kube::Error> {
    let pods: Api<Pod> = Api::namespaced(cx.untracked_client(), namespace);
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list = pods.list(&page).await?;
        if list.items.iter().any(|pod| has_node(pod) && claims_of(pod).iter().any(|name| name == claim)) {
            return Ok(true);
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = ListParams::default().limit(PAGE).continue_token(&token),
            None => return Ok(false),
        }
    }
}

async fn reconcile_volume(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(volume) = cx.lister::<PersistentVolume>()?.get(&key) else { return Ok(Action::done()) };
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_free = volume.metadata.deletion_timestamp.is_some() && phase != Some("Bound");
    protect(&Api::all(cx.client()), &*volume, OF_VOLUME, is_free).await
}

/// Gives an object its finalizer, or takes it if the object is free to go.
async fn protect<K: Watchable + Resource<DynamicType = ()> + std::fmt::Debug>(
    api: &Api<K>,
    object: &K,
    finalizer: &str,
    is_free: bool,
) -> Result<Action, ReconcileError> {
    let meta = object.meta();
    let mut finalizers = meta.finalizers.clone().unwrap_or_default();
    let has_it = finalizers.iter().any(|known| known == finalizer);
    match (has_it, is_free) {
        (true, true) => finalizers.retain(|known| known != finalizer),
        (false, false) if meta.deletion_timestamp.is_none() => finalizers.push(finalizer.to_owned()),
        _ => return Ok(Action::done()),
    }
    let patch = json!({"metadata": {
        "uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": finalizers,
    }});
    match api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await {
        Err(error) if failure::is_not_found(&error) => Ok(Action::done()),
        patched => patched.map(|_| Action::done()).map_err(Into::into),
    }
}
