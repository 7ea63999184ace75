//! Binds claims to volumes, makes volumes for claims that no volume will do for, and sees to volumes whose claim is gone.
//!
//! No storage is behind a volume: whatever provisioner a storage class names, it is simulated here.

mod claim;
mod matching;
mod provision;
mod volume;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use setpoint::{Controller, Lister, Manager, ObjectKey};

use crate::caches;
use crate::controllers::Setup;

/// How long one reconcile may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);
const NAME: &str = "persistentvolume-binder-controller";

/// The annotations by which binding is known to be complete, and to be this controller's decision.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// The index of claims that are not bound, by the class that they ask for; and what it begins with, if they do.
const WAITING: &str = "waiting";
const OF_CLASS: &str = "class/";
const DEFAULT: &str = "default";

/// Adds the controllers of claims and of volumes.
pub(crate) fn add_to(manager: Manager, setup: &Setup) -> Manager {
    let informers = manager.informers();
    caches::index_pods_by_claim(&informers.informer::<Pod>());
    caches::index_volumes(&informers.informer::<PersistentVolume>());
    let claims = informers.informer::<PersistentVolumeClaim>();
    // The only error is that the index is there.
    let _ = claims.add_index(
        WAITING,
        |claim: &PersistentVolumeClaim| {
            if is_bound(claim) { Vec::new() } else { vec![waits_for(claim)] }
        },
    );
    let (claims, volumes) = (claims.lister(), informers.informer::<PersistentVolume>().lister());
    let (of_class, of_volume) = (claims.clone(), claims);
    let claims = Controller::of::<PersistentVolumeClaim>(.., NAME, claim::reconcile)
        .watches::<PersistentVolume>(.., move |volume| concerned(&of_volume, volume))
        .watches::<StorageClass>(.., move |_| waiting(&of_class, None))
        .watches::<Pod>(.., using)
        .time_limit(TIME_LIMIT);
    let by_claim = move |claim: &PersistentVolumeClaim| {
        let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
        let namespace = claim.namespace().unwrap_or_default();
        let claim = caches::claim_value(&namespace, &claim.name_any());
        let mut keys = volumes.index_keys(caches::BY_CLAIM_OR_CLASS, &claim).unwrap_or_default();
        keys.extend(volume.map(|name| ObjectKey::cluster(&name)));
        keys
    };
    let volumes = Controller::of::<PersistentVolume>(.., NAME, volume::reconcile)
        .watches::<PersistentVolumeClaim>(.., by_claim)
        .time_limit(TIME_LIMIT);
    let client = setup.client.clone();
    manager.controller(claims).controller(volumes).runnable("storage class", move |cx| async move {
        tokio::select! {
            biased;
            () = cx.stopping().cancelled() => {}
            () = provision::offer_class(client) => {}
        }
        Ok(())
    })
}

/// The claim that a volume is for, or those that may take it.
fn concerned(claims: &Lister<PersistentVolumeClaim>, volume: &PersistentVolume) -> Vec<ObjectKey> {
    match volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) {
        Some(claim) => {
            let (Some(namespace), Some(name)) = (&claim.namespace, &claim.name) else { return Vec::new() };
            vec![ObjectKey::namespaced(namespace, name)]
        }
        None => waiting(claims, Some(volume)),
    }
}

/// What a claim that is not bound is found under: its class, or that it asks for the default one.
fn waits_for(claim: &PersistentVolumeClaim) -> String {
    class_of(claim).map_or_else(|| DEFAULT.to_owned(), |class| format!("{OF_CLASS}{class}"))
}

/// The claims that wait for a volume, or for this one.
fn waiting(claims: &Lister<PersistentVolumeClaim>, volume: Option<&PersistentVolume>) -> Vec<ObjectKey> {
    let values = match volume {
        // Those that ask for the default class may take one without a class, if there is no default.
        Some(volume) => {
            let class = class_of_volume(volume).unwrap_or_default();
            vec![format!("{OF_CLASS}{class}"), DEFAULT.to_owned()]
        }
        None => claims.index_values(WAITING).unwrap_or_default(),
    };
    values.iter().flat_map(|value| claims.index_keys(WAITING, value).unwrap_or_default()).collect()
}

/// The claims of a pod that has a node.
fn using(pod: &Pod) -> Vec<ObjectKey> {
    if crate::pod::node_name(pod).is_empty() {
        return Vec::new();
    }
    let namespace = pod.namespace().unwrap_or_default();
    claims_of(pod).iter().map(|claim| ObjectKey::namespaced(&namespace, claim)).collect()
}

/// The names of the claims that a pod uses.
pub(crate) fn claims_of(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims = volumes.filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.clone()),
        (None, Some(_)) => Some(format!("{}-{}", pod.name_any(), volume.name)),
        (None, None) => None,
    });
    claims.collect()
}

/// Whether a claim has its volume for good.
fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.annotations().contains_key(BIND_COMPLETED)
}

/// The class of a claim; none if it asks for the default one.
fn class_of(claim: &PersistentVolumeClaim) -> Option<&str> {
    let annotation = claim.annotations().get("volume.beta.kubernetes.io/storage-class");
    let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref());
    annotation.or(class).map(String::as_str)
}

pub(crate) fn class_of_volume(volume: &PersistentVolume) -> Option<&str> {
    Some(volume.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()).unwrap_or_default())
}

/// How many bytes a claim asks for, or a volume has.
fn storage(
    amounts: Option<&BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>,
) -> i128 {
    let amount = amounts.and_then(|amounts| amounts.get("storage"));
    amount.and_then(|amount| setpoint_kinds::quantity_nanos(&amount.0).ok()).unwrap_or(0)
}
