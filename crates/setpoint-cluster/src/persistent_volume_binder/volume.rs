//! What becomes of a volume: it is free, bound, or left over by a claim that is gone.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Preconditions};
use setpoint::{Action, Context, Event, ObjectKey, ReconcileError, patch_status};

use super::PROVISIONED_BY;
use crate::failure;
use crate::time::time;

pub(super) async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(volume) = cx.lister::<PersistentVolume>()?.get(&key) else { return Ok(Action::done()) };
    let volumes: Api<PersistentVolume> = Api::all(cx.client());
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let Some(reference) =
        reference.filter(|reference| reference.uid.as_ref().is_some_and(|uid| !uid.is_empty()))
    else {
        set_phase(&cx, &volumes, &volume, "Available").await?;
        return Ok(Action::done());
    };
    let (namespace, name) =
        (reference.namespace.as_deref().unwrap_or_default(), reference.name.as_deref().unwrap_or_default());
    let claim = cx.lister::<PersistentVolumeClaim>()?.namespace(namespace).get(name);
    let is_there = claim.is_some_and(|claim| claim.metadata.uid == reference.uid);
    if is_there {
        set_phase(&cx, &volumes, &volume, "Bound").await?;
        return Ok(Action::done());
    }
    // The cache may be behind: nothing is deleted for what only it says.
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(cx.untracked_client(), namespace);
    let live = claims.get_opt(name).await?;
    if live.is_some_and(|live| live.metadata.uid == reference.uid) {
        return Ok(Action::requeue_after(std::time::Duration::from_secs(1)));
    }
    set_phase(&cx, &volumes, &volume, "Released").await?;
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    if policy == Some("Delete") && volume.metadata.deletion_timestamp.is_none() {
        reclaim(&cx, &volumes, &volume).await?;
    }
    Ok(Action::done())
}

/// Deletes a volume that was made for its claim. Storage of others cannot be deleted here.
async fn reclaim(
    cx: &Context,
    volumes: &Api<PersistentVolume>,
    volume: &PersistentVolume,
) -> Result<(), ReconcileError> {
    if !volume.annotations().contains_key(PROVISIONED_BY) {
        let note = "error getting deleter volume plugin: no deletable volume plugin matched";
        cx.recorder().event(volume, Event::warning("VolumeFailedDelete", note));
        return Ok(());
    }
    let this = Preconditions { uid: volume.metadata.uid.clone(), resource_version: None };
    match volumes.delete(&volume.name_any(), &DeleteParams::default().preconditions(this)).await {
        Err(error) if failure::is_not_found(&error) => Ok(()),
        deleted => deleted.map(drop).map_err(Into::into),
    }
}

async fn set_phase(
    cx: &Context,
    volumes: &Api<PersistentVolume>,
    volume: &PersistentVolume,
    phase: &str,
) -> Result<(), ReconcileError> {
    let mut status = volume.status.clone().unwrap_or_default();
    if status.phase.as_deref() == Some(phase) {
        return Ok(());
    }
    status.phase = Some(phase.to_owned());
    status.last_phase_transition_time = Some(time(cx.env().now()));
    match patch_status(volumes, volume, &status).await {
        Err(error) if failure::is_not_found(&error) => Ok(()),
        written => written.map(drop).map_err(Into::into),
    }
}
