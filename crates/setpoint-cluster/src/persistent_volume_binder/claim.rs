//! What becomes of a claim: it waits, it is bound, or it has lost its volume.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use setpoint::{Action, Context, Event, Lister, ObjectKey, ReconcileError, patch_status};

use super::matching::{best, is_for, mismatch};
use super::{
    BIND_COMPLETED, BOUND_BY_CONTROLLER, DEFAULT_CLASS, SELECTED_NODE, class_of, is_bound, provision, storage,
};
use crate::{caches, failure};

pub(super) async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(claim) = cx.lister::<PersistentVolumeClaim>()?.get(&key) else { return Ok(Action::done()) };
    let claims: Api<PersistentVolumeClaim> =
        Api::namespaced(cx.client(), key.namespace().unwrap_or_default());
    let work = Work {
        cx: &cx,
        claim: &claim,
        claims,
        volumes: cx.lister()?,
        classes: cx.lister()?,
        pods: cx.lister()?,
    };
    let done = if is_bound(&claim) { work.keep().await } else { work.bind().await };
    match done {
        Err(error) if failure::is_not_found(&error) => Ok(Action::done()),
        done => done.map(|()| Action::done()).map_err(Into::into),
    }
}

pub(super) struct Work<'a> {
    pub(super) cx: &'a Context,
    pub(super) claim: &'a Arc<PersistentVolumeClaim>,
    claims: Api<PersistentVolumeClaim>,
    volumes: Lister<PersistentVolume>,
    classes: Lister<StorageClass>,
    pods: Lister<Pod>,
}

impl Work<'_> {
    pub(super) fn event(&self, event: Event) {
        self.cx.recorder().event(&**self.claim, event);
    }

    fn volume_name(&self) -> Option<&str> {
        self.claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
    }

    /// Changes the claim, if nobody else has since.
    async fn patch(&self, mut patch: Value) -> Result<(), kube::Error> {
        patch["metadata"]["uid"] = json!(self.claim.metadata.uid);
        patch["metadata"]["resourceVersion"] = json!(self.claim.metadata.resource_version);
        self.claims
            .patch(&self.claim.name_any(), &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .map(drop)
    }

    async fn set_phase(&self, phase: &str) -> Result<(), kube::Error> {
        let mut status = self.claim.status.clone().unwrap_or_default();
        status.phase = Some(phase.to_owned());
        if phase != "Bound" {
            (status.access_modes, status.capacity) = (None, None);
        }
        patch_status(&self.claims, self.claim, &status).await.map(drop)
    }

    /// Finds a volume for a claim that has none yet.
    async fn bind(&self) -> Result<(), kube::Error> {
        if self.claim.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        if let Some(name) = self.volume_name() {
            return match self.volumes.get(&ObjectKey::cluster(name)) {
                Some(volume) => self.bind_named(&volume).await,
                None => self.set_phase("Pending").await,
            };
        }
        let Some(class) = class_of(self.claim) else {
            return self.wait_for_class().await;
        };
        let class = self.classes.get(&ObjectKey::cluster(class));
        let waits = class
            .as_ref()
            .is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"));
        let node = self.claim.annotations().get(SELECTED_NODE).cloned().or_else(|| self.node_of_consumer());
        let candidates = self.candidates(class_of(self.claim).unwrap_or_default());
        if let Some(volume) = best(self.claim, &candidates, waits && node.is_none()) {
            return self.bind_to(&volume, true).await;
        }
        if waits && node.is_none() {
            let note = "waiting for first consumer to be created before binding";
            self.event(Event::normal("WaitForFirstConsumer", note));
            return self.set_phase("Pending").await;
        }
        match class {
            Some(class) => self.provision(&class, node).await,
            None if class_of(self.claim) == Some("") => {
                let note = "no persistent volumes available for this claim and no storage class is set";
                self.event(Event::normal("FailedBinding", note));
                self.set_phase("Pending").await
            }
            None => {
                let name = class_of(self.claim).unwrap_or_default();
                let note = format!("storageclass.storage.k8s.io {name:?} not found");
                self.event(Event::warning("ProvisioningFailed", note));
                self.set_phase("Pending").await
            }
        }
    }

    /// Makes a volume that is meant for the claim; it is bound when the cache shows it.
    async fn provision(&self, class: &StorageClass, node: Option<String>) -> Result<(), kube::Error> {
        if !provision::is_dynamic(class) {
            let note = "no persistent volumes available for this claim and no storage class is set";
            self.event(Event::normal("FailedBinding", note));
            return self.set_phase("Pending").await;
        }
        let known = self.claim.annotations();
        let annotations = provision::annotations(class, node.as_deref());
        if annotations.iter().any(|(key, value)| known.get(*key) != Some(value)) {
            let annotations: serde_json::Map<String, Value> =
                annotations.into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect();
            // What the claim says of its provisioner comes first; its change brings us back here.
            return self.patch(json!({"metadata": {"annotations": annotations}})).await;
        }
        provision::provision(self, class, node.as_deref()).await
    }

    /// A claim without a class gets the default one, also if that comes later.
    async fn wait_for_class(&self) -> Result<(), kube::Error> {
        let classes = self.classes.list();
        let is_default = |class: &&Arc<StorageClass>| {
            class.annotations().get(DEFAULT_CLASS).is_some_and(|value| value == "true")
        };
        let created =
            |class: &&Arc<StorageClass>| class.metadata.creation_timestamp.as_ref().map(|time| time.0);
        // The newest of several.
        if let Some(class) = classes.iter().filter(is_default).max_by_key(created) {
            return self.patch(json!({"spec": {"storageClassName": class.name_any()}})).await;
        }
        let volumes = self.candidates("");
        let mut plain = PersistentVolumeClaim::clone(self.claim);
        plain.spec.get_or_insert_default().storage_class_name = Some(String::new());
        if let Some(volume) = best(&plain, &volumes, false) {
            return self.bind_to(&volume, true).await;
        }
        let note = "no persistent volumes available for this claim and no storage class is set";
        self.event(Event::normal("FailedBinding", note));
        self.set_phase("Pending").await
    }

    /// The volumes that are for this claim, and those of a class that are for none.
    fn candidates(&self, class: &str) -> Vec<Arc<PersistentVolume>> {
        let claim = caches::claim_value(&self.claim.namespace().unwrap_or_default(), &self.claim.name_any());
        let found = |value: &str| self.volumes.by_index(caches::BY_CLAIM_OR_CLASS, value).unwrap_or_default();
        let mut candidates = found(&claim);
        candidates.extend(found(&caches::free_of_class(class)));
        candidates
    }

    /// The node of a pod that uses the claim.
    fn node_of_consumer(&self) -> Option<String> {
        let claim = caches::claim_value(&self.claim.namespace().unwrap_or_default(), &self.claim.name_any());
        let pods = self.pods.by_index(caches::BY_CLAIM, &claim).unwrap_or_default();
        let nodes = pods.iter().map(|pod| crate::pod::node_name(pod));
        nodes.into_iter().find(|node| !node.is_empty()).map(str::to_owned)
    }

    /// Binds to the volume that the claim names itself.
    async fn bind_named(&self, volume: &Arc<PersistentVolume>) -> Result<(), kube::Error> {
        let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        match reference {
            None => match mismatch(self.claim, volume) {
                None => self.bind_to(volume, false).await,
                Some(why) => {
                    let note = format!("Cannot bind to requested volume {:?}: {why}", volume.name_any());
                    self.event(Event::warning("VolumeMismatch", note));
                    self.set_phase("Pending").await
                }
            },
            Some(reference) if is_for(reference, self.claim) => self.bind_to(volume, false).await,
            Some(_) => {
                let note = format!("volume {:?} already bound to a different claim.", volume.name_any());
                self.event(Event::warning("FailedBinding", note));
                self.set_phase("Pending").await
            }
        }
    }

    /// Binds both sides, the volume first: whoever dies on the way leaves a volume that is meant for this claim.
    async fn bind_to(&self, volume: &PersistentVolume, is_own_choice: bool) -> Result<(), kube::Error> {
        let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        let uid = self.claim.metadata.uid.as_ref();
        if reference.and_then(|reference| reference.uid.as_ref()) != uid {
            let mut patch = json!({
                "metadata": {"uid": volume.metadata.uid, "resourceVersion": volume.metadata.resource_version},
                "spec": {"claimRef": reference_to(self.claim)},
            });
            if reference.is_none() {
                patch["metadata"]["annotations"] = json!({BOUND_BY_CONTROLLER: "yes"});
            }
            let volumes: Api<PersistentVolume> = Api::all(self.cx.client());
            volumes.patch(&volume.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await?;
        }
        let mut annotations = json!({BIND_COMPLETED: "yes"});
        if is_own_choice && self.volume_name().is_none() {
            annotations[BOUND_BY_CONTROLLER] = json!("yes");
        }
        self.patch(
            json!({"metadata": {"annotations": annotations}, "spec": {"volumeName": volume.name_any()}}),
        )
        .await
    }

    /// Sees to a claim that is bound.
    async fn keep(&self) -> Result<(), kube::Error> {
        let volume = self.volume_name().and_then(|name| self.volumes.get(&ObjectKey::cluster(name)));
        let Some(volume) = volume else { return self.lose("ClaimLost", LOST).await };
        let spec = volume.spec.clone().unwrap_or_default();
        match &spec.claim_ref {
            None => return self.bind_to(&volume, false).await,
            Some(reference) if reference.uid == self.claim.metadata.uid => {}
            Some(_) => return self.lose("ClaimMisbound", MISBOUND).await,
        }
        let mut status = self.claim.status.clone().unwrap_or_default();
        let is_new = status.phase.as_deref() != Some("Bound");
        status.phase = Some("Bound".to_owned());
        status.access_modes = spec.access_modes.clone();
        if is_new {
            status.capacity = spec.capacity.clone();
        } else if self.grows(&volume).await? {
            return Ok(());
        } else if storage(spec.capacity.as_ref()) > storage(status.capacity.as_ref()) {
            status.capacity = spec.capacity.clone();
            let note = "External resizer resized the volume";
            self.event(Event::normal("VolumeResizeSuccessful", note));
        }
        patch_status(&self.claims, self.claim, &status).await.map(drop)
    }

    /// Makes the volume as large as the claim asks for, if the class allows it. Says whether it had to.
    async fn grows(&self, volume: &PersistentVolume) -> Result<bool, kube::Error> {
        let requests = self.claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
        let spec = volume.spec.as_ref();
        if storage(requests) <= storage(spec.and_then(|spec| spec.capacity.as_ref())) {
            return Ok(false);
        }
        let class = class_of(self.claim).and_then(|class| self.classes.get(&ObjectKey::cluster(class)));
        if class.is_none_or(|class| class.allow_volume_expansion != Some(true)) {
            return Ok(false);
        }
        let asked = requests.and_then(|requests| requests.get("storage"));
        let patch = json!({
            "metadata": {"uid": volume.metadata.uid, "resourceVersion": volume.metadata.resource_version},
            "spec": {"capacity": {"storage": asked}},
        });
        let volumes: Api<PersistentVolume> = Api::all(self.cx.client());
        volumes.patch(&volume.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(true)
    }

    async fn lose(&self, reason: &str, note: &str) -> Result<(), kube::Error> {
        let phase = self.claim.status.as_ref().and_then(|status| status.phase.as_deref());
        if phase != Some("Lost") {
            self.event(Event::warning(reason, note));
        }
        self.set_phase("Lost").await
    }
}

const LOST: &str = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
const MISBOUND: &str = "Two claims are bound to the same volume, this one is bound incorrectly";

/// What a volume says about the claim that it is for.
pub(super) fn reference_to(claim: &PersistentVolumeClaim) -> ObjectReference {
    claim.object_ref(&())
}
