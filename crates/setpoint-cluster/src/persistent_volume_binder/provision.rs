//! The simulated provisioner: a volume for every claim of a class that names one.

use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use setpoint::Event;

use super::claim::{Work, reference_to};
use super::{DEFAULT_CLASS, PROVISIONED_BY, PROVISIONER, SELECTED_NODE};
use crate::failure;

/// The provisioner of classes whose volumes somebody makes by hand.
const NOBODY: &str = "kubernetes.io/no-provisioner";

/// The class that a cluster without any gets: its name, and who makes its volumes.
const OFFERED: (&str, &str) = ("standard", "sim.setpoint.dev/provisioner");
/// How long to wait after a request failed.
const RETRY: Duration = Duration::from_secs(1);

/// Makes a default class, if there is no class at all, as clusters for development have one.
pub(super) async fn offer_class(client: Client) {
    let classes: Api<StorageClass> = Api::all(client);
    let offer = async || {
        if classes.list(&ListParams::default().limit(1)).await?.items.is_empty() {
            let class = json!({
                "metadata": {"name": OFFERED.0, "annotations": {DEFAULT_CLASS: "true"}},
                "provisioner": OFFERED.1,
                "volumeBindingMode": "WaitForFirstConsumer",
                "allowVolumeExpansion": true,
            });
            let class = crate::typed::typed(&class).map_err(kube::Error::SerdeError)?;
            classes.create(&PostParams::default(), &class).await?;
        }
        Ok::<_, kube::Error>(())
    };
    while let Err(error) = offer().await {
        if failure::already_exists(&error) {
            return;
        }
        tracing::debug!(%error, "cannot create the default storage class; retrying");
        tokio::time::sleep(RETRY).await;
    }
}

/// Whether volumes of this class are made when they are needed.
pub(super) fn is_dynamic(class: &StorageClass) -> bool {
    class.provisioner != NOBODY
}

/// What a claim says of who makes its volume, and where it is needed.
pub(super) fn annotations(class: &StorageClass, node: Option<&str>) -> Vec<(&'static str, String)> {
    let waits = class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
    let node = node.filter(|_| waits).map(|node| (SELECTED_NODE, node.to_owned()));
    std::iter::once((PROVISIONER, class.provisioner.clone())).chain(node).collect()
}

/// Makes the volume of a claim. Its name follows from the claim, so there is never a second one.
pub(super) async fn provision(
    work: &Work<'_>,
    class: &StorageClass,
    node: Option<&str>,
) -> Result<(), kube::Error> {
    let claim = work.claim;
    let spec = claim.spec.clone().unwrap_or_default();
    let name = format!("pvc-{}", claim.uid().unwrap_or_default());
    let size = spec.resources.and_then(|resources| resources.requests?.get("storage").cloned());
    let mut volume = json!({
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: class.provisioner}},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": spec.access_modes,
            "volumeMode": spec.volume_mode,
            "storageClassName": class.name_any(),
            "persistentVolumeReclaimPolicy": class.reclaim_policy.as_deref().unwrap_or("Delete"),
            "mountOptions": class.mount_options,
            "claimRef": reference_to(claim),
            "csi": {"driver": driver(&class.provisioner), "volumeHandle": name},
        },
    });
    if let Some(node) = node.filter(|_| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"))
    {
        let term = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]});
        volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [term]}});
    }
    let volume: PersistentVolume = crate::typed::typed(&volume).map_err(kube::Error::SerdeError)?;
    match Api::<PersistentVolume>::all(work.cx.client()).create(&PostParams::default(), &volume).await {
        Err(error) if failure::already_exists(&error) => Ok(()),
        Err(error) => {
            let note = format!("failed to provision volume: {}", failure::message(&error));
            work.event(Event::warning("ProvisioningFailed", note));
            Err(error)
        }
        Ok(_) => {
            work.event(Event::normal(
                "ProvisioningSucceeded",
                format!("Successfully provisioned volume {name}"),
            ));
            Ok(())
        }
    }
}

/// The name of a driver has no slash.
fn driver(provisioner: &str) -> String {
    provisioner.replace('/', ".")
}
