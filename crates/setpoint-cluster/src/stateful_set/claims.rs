//! The volume claims of a StatefulSet's pods.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use setpoint::owner::controller_of;
use setpoint::{Event, ObjectKey, ReconcileError};

use super::identity::{claim_name, ordinal};
use super::{Run, retention};
use crate::failure;

/// The sets that a claim may belong to, by its name and its owners.
pub(super) fn concerned(claim: &PersistentVolumeClaim) -> Vec<ObjectKey> {
    let namespace = claim.namespace().unwrap_or_default();
    let of_set =
        controller_of(claim).filter(|owner| owner.kind == "StatefulSet").map(|owner| owner.name.clone());
    // `data-web-0`: what the template is called, and what the set, is not said. Keys of nobody cost nothing.
    let name = claim.name_any();
    let parents = name.rsplit_once('-').map(|(parent, _)| parent.to_owned()).unwrap_or_default();
    let guesses = parents.match_indices('-').map(|(dash, _)| parents[dash.saturating_add(1)..].to_owned());
    let mut names: Vec<String> = of_set.into_iter().chain(guesses).filter(|name| !name.is_empty()).collect();
    names.sort();
    names.dedup();
    names.iter().map(|name| ObjectKey::namespaced(&namespace, name)).collect()
}

impl Run<'_> {
    fn claims_api(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.cx.client(), &self.set.namespace().unwrap_or_default())
    }

    /// The claims that the pod in a place has, as the set's templates say.
    fn wanted_claims(&self, place: i32) -> Vec<PersistentVolumeClaim> {
        let spec = &self.set.spec;
        let of_template = |template: &PersistentVolumeClaim| {
            let mut labels = template.metadata.labels.clone().unwrap_or_default();
            labels.extend(spec.selector.match_labels.clone().unwrap_or_default());
            let metadata = ObjectMeta {
                name: Some(claim_name(self.set, &template.name_any(), place)),
                namespace: self.set.namespace(),
                labels: Some(labels),
                annotations: template.metadata.annotations.clone(),
                finalizers: template.metadata.finalizers.clone(),
                owner_references: template.metadata.owner_references.clone(),
                ..ObjectMeta::default()
            };
            PersistentVolumeClaim { metadata, spec: template.spec.clone(), status: None }
        };
        spec.volume_claim_templates.iter().flatten().map(of_template).collect()
    }

    fn known_claim(&self, name: &str) -> Option<Arc<PersistentVolumeClaim>> {
        self.claims.namespace(&self.set.namespace().unwrap_or_default()).get(name)
    }

    /// The claims of a pod that are there.
    fn known_claims(&self, place: i32) -> Vec<Arc<PersistentVolumeClaim>> {
        let wanted = self.wanted_claims(place);
        wanted.iter().filter_map(|claim| self.known_claim(&claim.name_any())).collect()
    }

    /// Creates the claims of a pod that are missing.
    pub(super) async fn create_claims(&self, pod: &Pod) -> Result<(), ReconcileError> {
        let Some(place) = ordinal(pod) else { return Ok(()) };
        let (pod, set) = (pod.name_any(), self.set.name_any());
        for claim in self.wanted_claims(place) {
            let name = claim.name_any();
            match self.known_claim(&name) {
                Some(known) if known.metadata.deletion_timestamp.is_some() => {
                    return Err(format!("pvc {name} is being deleted").into());
                }
                Some(_) => continue,
                None => {}
            }
            match self.claims_api().create(&PostParams::default(), &claim).await {
                Ok(_) => {
                    let note = format!("Create Claim {name} Pod {pod} in StatefulSet {set} success");
                    self.event(Event::normal("SuccessfulCreate", note));
                }
                Err(error) => {
                    let why = failure::message(&error);
                    if !failure::already_exists(&error) && !failure::is_namespace_terminating(&error) {
                        let note = format!(
                            "Create Claim {name} for Pod {pod} in StatefulSet {set} failed error: {why}"
                        );
                        self.event(Event::warning("FailedCreate", note));
                    }
                    return Err(format!("failed to create PVC {name}: {why}").into());
                }
            }
        }
        Ok(())
    }

    /// Whether a claim is still owned by an earlier pod of this name: it is about to be collected.
    pub(super) fn has_stale_claim(&self, pod: &Pod) -> bool {
        let place = ordinal(pod).unwrap_or(-1);
        retention::policy(self.set).when_scaled
            && self.known_claims(place).iter().any(|claim| retention::is_of_earlier_pod(claim, pod))
    }

    /// Whether all claims of a pod have the owners that the retention policy wants.
    pub(super) fn claims_are_owned(&self, pod: &Pod) -> bool {
        let place = ordinal(pod).unwrap_or(-1);
        self.known_claims(place).iter().all(|claim| retention::wanted_owners(claim, self.set, pod).is_none())
    }

    /// Gives the claims of a pod the owners that the retention policy wants.
    pub(super) async fn own_claims(&self, pod: &Pod) -> Result<(), ReconcileError> {
        let place = ordinal(pod).unwrap_or(-1);
        for claim in self.known_claims(place) {
            let name = claim.name_any();
            if retention::has_foreign_controller(&claim, self.set, pod) {
                let note = format!(
                    "PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a manging controller, \
                     the retention policy is ignored for this claim"
                );
                self.event(Event::warning("ConflictingController", note));
            }
            let Some(owners) = retention::wanted_owners(&claim, self.set, pod) else { continue };
            let patch = json!({"metadata": {
                "uid": claim.metadata.uid,
                "resourceVersion": claim.metadata.resource_version,
                "ownerReferences": owners,
            }});
            match self.claims_api().patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                Err(error) if failure::is_not_found(&error) => {}
                patched => drop(patched?),
            }
        }
        Ok(())
    }

    pub(super) fn event(&self, event: Event) {
        let set: &StatefulSet = self.set;
        self.cx.recorder().event(set, event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_may_be_of_any_set_that_its_name_ends_with() {
        let claim: PersistentVolumeClaim =
            serde_json::from_value(json!({"metadata": {"name": "my-data-web-0", "namespace": "n"}})).unwrap();
        let keys: Vec<String> = concerned(&claim).iter().map(|key| key.name().to_owned()).collect();
        assert_eq!(keys, ["data-web", "web"]);
    }
}
