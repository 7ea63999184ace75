//! Revisions: the ReplicaSet of the template, made or found again, and those that history keeps.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use setpoint::owner::{controller_reference, is_controlled_by};
use setpoint::{Event, ReconcileError};

use super::conditions::{self, PROGRESSING};
use super::template::{HASH_LABEL, hash, is_same};
use super::{Rollout, limits, sets};
use crate::failure;

/// The number of a revision, on the Deployment and on its ReplicaSets.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
/// The numbers that a ReplicaSet had before it was rolled back to.
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The replicas that the Deployment had when the set was scaled last.
pub(super) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// The most pods that the Deployment might have then.
pub(super) const MOST: &str = "deployment.kubernetes.io/max-replicas";

/// Annotations of a Deployment that its sets do not get.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "deprecated.deployment.rollback.to",
    REVISION,
    HISTORY,
    DESIRED,
    MOST,
];
/// The longest history, in characters.
const LONGEST_HISTORY: usize = 2000;
/// The longest name of an object.
const LONGEST_NAME: usize = 253;

type Annotations = BTreeMap<String, String>;

fn revision_of(set: &ReplicaSet) -> i64 {
    set.annotations().get(REVISION).and_then(|revision| revision.parse().ok()).unwrap_or(0)
}

/// The one after all of these.
fn revision_after<'a>(sets: impl IntoIterator<Item = &'a ReplicaSet>) -> i64 {
    sets.into_iter().map(revision_of).max().unwrap_or(0).saturating_add(1)
}

impl Rollout<'_> {
    fn next_revision(&self) -> i64 {
        revision_after(self.sets.old.iter().map(|set| &**set))
    }

    /// Gives the set of the template the newest revision, and what else it gets from the Deployment.
    pub(super) async fn sync_revision(&mut self) -> Result<(), ReconcileError> {
        let Some(set) = self.sets.new.clone() else { return Ok(()) };
        let annotations = self.annotations_for(set.annotations());
        let seconds = self.spec.min_ready_seconds.unwrap_or(0);
        let set_seconds = set.spec.min_ready_seconds.unwrap_or(0);
        let set = if annotations != *set.annotations() || seconds != set_seconds {
            let patch = json!({
                "metadata": {"resourceVersion": set.resource_version(), "annotations": annotations},
                "spec": {"minReadySeconds": seconds},
            });
            let sets = self.api::<ReplicaSet>();
            let updated = sets.patch(&set.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await?;
            self.sets.update(updated.clone());
            Arc::new(updated)
        } else {
            set
        };
        self.revision = set.annotations().get(REVISION).cloned();
        if self.deadline().is_some() && conditions::find(&self.status.conditions, PROGRESSING).is_none() {
            let message = format!("Found new replica set {:?}", set.name_any());
            self.set_progressing("True", "FoundNewReplicaSet", &message);
        }
        Ok(())
    }

    /// The annotations of the new set: those of the Deployment, and a revision that is newer than all others.
    fn annotations_for(&self, known: &Annotations) -> Annotations {
        let mut annotations = known.clone();
        let copied = self.deployment.annotations().iter();
        let copied = copied.filter(|(key, _)| !NOT_COPIED.contains(&key.as_str()));
        annotations.extend(copied.map(|(key, value)| (key.clone(), value.clone())));
        let old = known.get(REVISION);
        let number = match old.map(|old| old.parse::<i64>()) {
            Some(Ok(number)) => number,
            None => 0,
            // Not one of ours: leave it.
            Some(Err(_)) => return annotations,
        };
        let next = self.next_revision();
        if number < next {
            annotations.insert(REVISION.to_owned(), next.to_string());
            if let Some(old) = old {
                let history = annotations.entry(HISTORY.to_owned()).or_default();
                *history = longer_history(history, old);
            }
        }
        annotations
    }

    /// Makes the set of the template.
    pub(super) async fn create_new_set(&mut self) -> Result<(), ReconcileError> {
        let set = self.new_set()?;
        match self.api::<ReplicaSet>().create(&PostParams::default(), &set).await {
            Ok(created) => self.created(created),
            Err(error) if failure::already_exists(&error) => self.resolve_collision(&set, error).await?,
            Err(error) => {
                if !failure::is_namespace_terminating(&error) {
                    self.creation_failed(&set, &error);
                }
                return Err(error.into());
            }
        }
        Ok(())
    }

    fn new_set(&self) -> Result<ReplicaSet, ReconcileError> {
        let mut template = self.spec.template.clone();
        let hash = hash(&template, self.status.collision_count)?;
        let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
        labels.insert(HASH_LABEL.to_owned(), hash.clone());
        let labels = labels.clone();
        let mut selector = self.spec.selector.clone();
        selector.match_labels.get_or_insert_default().insert(HASH_LABEL.to_owned(), hash.clone());
        let mut name = self.name();
        name.truncate(LONGEST_NAME - 1 - hash.len());
        let mut annotations = self.annotations_for(&Annotations::new());
        annotations.extend(self.size_annotations());
        let metadata = ObjectMeta {
            name: Some(format!("{name}-{hash}")),
            namespace: self.deployment.namespace(),
            labels: Some(labels),
            annotations: Some(annotations),
            owner_references: Some(controller_reference(&**self.deployment).into_iter().collect()),
            ..ObjectMeta::default()
        };
        let spec = ReplicaSetSpec {
            replicas: Some(self.room_for_new(0).unwrap_or(0)),
            min_ready_seconds: self.spec.min_ready_seconds,
            selector,
            template: Some(template),
        };
        Ok(ReplicaSet { metadata, spec, status: None })
    }

    /// What sets remember of the Deployment's size, to grow and shrink in proportion.
    pub(super) fn size_annotations(&self) -> [(String, String); 2] {
        let most = self.replicas().saturating_add(limits::max_surge(self.spec));
        [(DESIRED.to_owned(), self.replicas().to_string()), (MOST.to_owned(), most.to_string())]
    }

    fn created(&mut self, set: ReplicaSet) {
        let (name, replicas) = (set.name_any(), sets::replicas(&set));
        if replicas > 0 {
            let note = format!("Scaled up replica set {name} from 0 to {replicas}");
            self.event(Event::normal("ScalingReplicaSet", note));
        }
        if self.deadline().is_some() {
            let message = format!("Created new replica set {name:?}");
            self.set_progressing("True", "NewReplicaSetCreated", &message);
        }
        self.revision = set.annotations().get(REVISION).cloned();
        self.sets.new = Some(Arc::new(set));
    }

    /// A set has the name already. If it is not the one that was to be made, the next hash will be another.
    async fn resolve_collision(
        &mut self,
        set: &ReplicaSet,
        error: kube::Error,
    ) -> Result<(), ReconcileError> {
        let found = self.api::<ReplicaSet>().get(&set.name_any()).await?;
        let template = found.spec.template.as_ref();
        let has_template = template.is_some_and(|template| is_same(template, &self.spec.template));
        if has_template && is_controlled_by(&found, &**self.deployment) {
            self.sets.new = Some(Arc::new(found));
            return Ok(());
        }
        self.status.collision_count = Some(self.status.collision_count.unwrap_or(0).saturating_add(1));
        Err(error.into())
    }

    fn creation_failed(&mut self, set: &ReplicaSet, error: &kube::Error) {
        let (name, words) = (set.name_any(), failure::message(error));
        let message = format!("Failed to create new replica set {name:?}: {words}");
        if self.deadline().is_some() {
            self.set_progressing("False", "ReplicaSetCreateError", &message);
        }
        self.event(Event::warning("ReplicaSetCreateError", message));
    }

    /// Deletes old sets that history does not keep.
    pub(super) async fn forget_old_sets(&mut self) -> Result<(), ReconcileError> {
        let Some(limit) = self.spec.revision_history_limit.filter(|limit| *limit != i32::MAX) else {
            return Ok(());
        };
        let is_kept = |set: &&Arc<ReplicaSet>| set.metadata.deletion_timestamp.is_none();
        let mut old: Vec<_> = self.sets.old.iter().filter(is_kept).cloned().collect();
        old.sort_by_cached_key(|set| (revision_of(set), sets::age(set)));
        let surplus = old.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        for set in &old[..surplus] {
            if sets::at_most(set) != 0 || !sets::is_settled(set) {
                continue;
            }
            let deleted = self.api::<ReplicaSet>().delete(&set.name_any(), &DeleteParams::default()).await;
            deleted
                .map(drop)
                .or_else(|error| if failure::is_not_found(&error) { Ok(()) } else { Err(error) })?;
        }
        Ok(())
    }
}

/// A history with one revision more; without its oldest ones if it would be too long.
fn longer_history(history: &str, revision: &str) -> String {
    let mut numbers: Vec<&str> = history.split(',').filter(|number| !number.is_empty()).collect();
    numbers.push(revision);
    let mut joined = numbers.join(",");
    while joined.len() > LONGEST_HISTORY {
        numbers.remove(0);
        joined = numbers.join(",");
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_grows_and_forgets_its_beginning() {
        assert_eq!(longer_history("", "1"), "1");
        assert_eq!(longer_history("1,3", "5"), "1,3,5");
        let long = vec!["100"; 500].join(",");
        let longer = longer_history(&long, "200");
        assert!(longer.len() <= LONGEST_HISTORY && longer.ends_with(",200"), "{longer}");
    }

    #[test]
    fn a_revision_that_a_client_wrote_does_not_wrap() {
        let check = |written: &str, next: i64| {
            let mut set = ReplicaSet::default();
            set.annotations_mut().insert(REVISION.to_owned(), written.to_owned());
            assert_eq!(revision_after([&set]), next);
        };
        check("7", 8);
        check("x", 1);
        check("9223372036854775807", i64::MAX);
        assert_eq!(revision_after([]), 1);
    }
}
