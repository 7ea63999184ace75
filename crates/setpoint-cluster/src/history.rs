//! ControllerRevisions: the templates that the pods of an owner have been made of.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Selector;
use serde_json::{Value, json};
use setpoint::owner::{controller_reference, is_controlled_by};
use setpoint::{Context, ReconcileError};

use crate::owned::{self, Kind};
use crate::{failure, hash};

/// The label of a pod that says which revision it was made of.
pub(crate) const REVISION_LABEL: &str = "controller-revision-hash";
/// The longest beginning of a revision's name.
const LONGEST_PREFIX: usize = 223;
/// How many names are tried, should others have them.
const MOST_COLLISIONS: u32 = 100;

/// The revisions of an owner, the oldest first.
pub(crate) struct History<'a, K> {
    cx: &'a Context,
    owner: &'a K,
    /// The label of a revision that has its hash.
    label: &'static str,
    revisions: Vec<Arc<ControllerRevision>>,
}

impl<'a, K: Kind> History<'a, K> {
    /// Reads the revisions of an owner, and takes those that are nobody's.
    pub(crate) async fn claim(
        cx: &'a Context,
        owner: &'a K,
        selector: &Selector,
        label: &'static str,
    ) -> Result<History<'a, K>, ReconcileError> {
        let candidates = owned::candidates(&cx.lister::<ControllerRevision>()?, owner);
        let mut revisions = owned::claim_all(cx, owner, selector, candidates, None).await?;
        revisions.sort_by_cached_key(|revision| age(revision));
        Ok(History { cx, owner, label, revisions })
    }

    fn api(&self) -> Api<ControllerRevision> {
        Api::namespaced(self.cx.client(), &self.owner.namespace().unwrap_or_default())
    }

    /// The revision of this name.
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<ControllerRevision>> {
        self.revisions.iter().find(|revision| revision.name_any() == name)
    }

    /// All revisions but this one, the oldest first.
    pub(crate) fn others<'b>(
        &'b self,
        current: &'b ControllerRevision,
    ) -> impl Iterator<Item = &'b Arc<ControllerRevision>> + use<'b, K> {
        self.revisions.iter().filter(|other| other.metadata.uid != current.metadata.uid)
    }

    /// The revision that has this template: the newest, one of old that becomes the newest, or one that is made.
    /// `collisions` is how many names have turned out to be taken.
    pub(crate) async fn of_template(
        &mut self,
        template: &PodTemplateSpec,
        collisions: &mut i32,
    ) -> Result<Arc<ControllerRevision>, ReconcileError> {
        let newest = self.revisions.last().and_then(|revision| revision.revision).unwrap_or(0);
        let has_template =
            |revision: &Arc<ControllerRevision>| template_of(revision).as_ref() == Some(template);
        let Some(place) = self.revisions.iter().rposition(has_template) else {
            let made = self.create(template, newest.saturating_add(1), collisions).await?;
            self.revisions.push(made.clone());
            return Ok(made);
        };
        if place.saturating_add(1) == self.revisions.len() {
            return Ok(self.revisions[place].clone());
        }
        let old = self.revisions.remove(place);
        let patch = json!({
            "metadata": {"uid": old.metadata.uid, "resourceVersion": old.resource_version()},
            "revision": newest.saturating_add(1),
        });
        let renewed =
            self.api().patch(&old.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await?;
        let renewed = Arc::new(renewed);
        self.revisions.push(renewed.clone());
        Ok(renewed)
    }

    async fn create(
        &self,
        template: &PodTemplateSpec,
        number: i64,
        collisions: &mut i32,
    ) -> Result<Arc<ControllerRevision>, ReconcileError> {
        let data = data_of(template)?;
        for _ in 0..MOST_COLLISIONS {
            let revision = self.revision(template, &data, number, *collisions)?;
            match self.api().create(&PostParams::default(), &revision).await {
                Err(error) if failure::already_exists(&error) => {
                    let found = self.api().get(&revision.name_any()).await?;
                    if template_of(&found).as_ref() == Some(template) && is_controlled_by(&found, self.owner)
                    {
                        return Ok(Arc::new(found));
                    }
                    *collisions = collisions.saturating_add(1);
                }
                created => return Ok(Arc::new(created?)),
            }
        }
        Err("every name of a revision is taken".into())
    }

    fn revision(
        &self,
        template: &PodTemplateSpec,
        data: &Value,
        number: i64,
        collisions: i32,
    ) -> Result<ControllerRevision, serde_json::Error> {
        let mut text = serde_json::to_vec(data)?;
        text.extend(collisions.to_string().bytes());
        let hash = hash::word(hash::fnv_1(&text));
        let mut name = self.owner.name_any();
        name.truncate(LONGEST_PREFIX);
        let labels = template.metadata.as_ref().and_then(|meta| meta.labels.clone());
        let mut labels = labels.unwrap_or_default();
        labels.insert(self.label.to_owned(), hash.clone());
        let metadata = ObjectMeta {
            name: Some(format!("{name}-{hash}")),
            namespace: self.owner.namespace(),
            labels: Some(labels),
            annotations: self.owner.meta().annotations.clone(),
            owner_references: Some(controller_reference(self.owner).into_iter().collect()),
            ..ObjectMeta::default()
        };
        Ok(ControllerRevision { metadata, data: RawExtension(data.clone()), revision: Some(number) })
    }

    /// Deletes the oldest of those that are not in use, at most as many as there are too many.
    pub(crate) async fn forget(
        &self,
        unused: impl Iterator<Item = &Arc<ControllerRevision>>,
        surplus: usize,
    ) -> Result<(), ReconcileError> {
        for revision in unused.take(surplus) {
            let this = Preconditions { uid: revision.metadata.uid.clone(), resource_version: None };
            let parameters = DeleteParams::default().preconditions(this);
            match self.api().delete(&revision.name_any(), &parameters).await {
                Err(error) if failure::is_not_found(&error) => {}
                deleted => drop(deleted?),
            }
        }
        Ok(())
    }
}

/// What revisions are ordered by.
fn age(revision: &ControllerRevision) -> (Option<i64>, Option<jiff::Timestamp>, String) {
    let created = revision.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (revision.revision, created, revision.name_any())
}

/// A template as a revision keeps it: a patch that puts it in place of any other, as `kubectl rollout undo` applies it.
fn data_of(template: &PodTemplateSpec) -> Result<Value, serde_json::Error> {
    let mut template = serde_json::to_value(template)?;
    template["$patch"] = json!("replace");
    Ok(json!({"spec": {"template": template}}))
}

/// The template that a revision keeps; none if it is somebody else's data.
pub(crate) fn template_of(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.0.pointer("/spec/template")?.clone();
    template.as_object_mut()?.remove("$patch");
    crate::typed::typed(&template).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_comes_out_of_a_revision_as_it_went_in() {
        let template: PodTemplateSpec = serde_json::from_value(json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "a", "image": "b", "resources": {}}]},
        }))
        .unwrap();
        let data = data_of(&template).unwrap();
        assert_eq!(data["spec"]["template"]["$patch"], "replace");
        let revision = ControllerRevision { data: RawExtension(data), ..ControllerRevision::default() };
        assert_eq!(template_of(&revision), Some(template));
        assert_eq!(template_of(&ControllerRevision::default()), None);
    }
}
