//! The ReplicaSets of a Deployment: the one that has its template, and those that had it once.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetStatus};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::ResourceExt;

use super::template::is_same;

/// The ReplicaSets of a Deployment.
pub(super) struct Sets {
    /// The one of the template.
    pub(super) new: Option<Arc<ReplicaSet>>,
    /// All others, the oldest first.
    pub(super) old: Vec<Arc<ReplicaSet>>,
}

impl Sets {
    /// Sorts sets by age; the oldest that has the template is the new one.
    pub(super) fn new(template: &PodTemplateSpec, mut sets: Vec<Arc<ReplicaSet>>) -> Sets {
        sets.sort_by_cached_key(|set| age(set));
        let has_template = |set: &Arc<ReplicaSet>| {
            set.spec.template.as_ref().is_some_and(|of_set| is_same(of_set, template))
        };
        let new = sets.iter().position(has_template).map(|place| sets.remove(place));
        Sets { new, old: sets }
    }

    /// All of them, the old ones first.
    pub(super) fn all(&self) -> impl DoubleEndedIterator<Item = &Arc<ReplicaSet>> + Clone {
        self.old.iter().chain(&self.new)
    }

    /// Those that shall have pods.
    pub(super) fn active(&self) -> impl DoubleEndedIterator<Item = &Arc<ReplicaSet>> + Clone {
        self.all().filter(|set| replicas(set) > 0)
    }

    /// Puts a set in the place of an earlier state of it.
    pub(super) fn update(&mut self, set: ReplicaSet) {
        let place = self.old.iter_mut().chain(&mut self.new).find(|known| known.name_any() == set.name_any());
        if let Some(known) = place {
            *known = Arc::new(set);
        }
    }
}

/// What sets are ordered by: their age, then their names.
pub(super) fn age(set: &ReplicaSet) -> (Option<jiff::Timestamp>, String) {
    (set.metadata.creation_timestamp.as_ref().map(|time| time.0), set.name_any())
}

/// How many pods a set shall have.
pub(super) fn replicas(set: &ReplicaSet) -> i32 {
    set.spec.replicas.unwrap_or(1)
}

fn status(set: &ReplicaSet) -> Option<&ReplicaSetStatus> {
    set.status.as_ref()
}

/// How many pods a set says that it has.
pub(super) fn actual(set: &ReplicaSet) -> i32 {
    status(set).map_or(0, |status| status.replicas)
}

/// How many ready pods a set says that it has.
pub(super) fn ready(set: &ReplicaSet) -> i32 {
    status(set).and_then(|status| status.ready_replicas).unwrap_or(0)
}

/// How many available pods a set says that it has.
pub(super) fn available(set: &ReplicaSet) -> i32 {
    status(set).and_then(|status| status.available_replicas).unwrap_or(0)
}

/// Whether the set has acted on its spec as it is. Until then nobody knows how many pods it has.
pub(super) fn is_settled(set: &ReplicaSet) -> bool {
    status(set).and_then(|status| status.observed_generation) >= set.metadata.generation
}

/// The most pods that a settled set can have. What it said was counted before it created or deleted.
pub(super) fn at_most(set: &ReplicaSet) -> i32 {
    replicas(set).max(actual(set))
}

/// How many available pods a settled set will have when it has deleted what is too much. It deletes those first
/// that are not.
pub(super) fn available_at_least(set: &ReplicaSet) -> i32 {
    replicas(set).min(available(set))
}

/// The sum of something over sets.
pub(super) fn sum<'a>(
    sets: impl IntoIterator<Item = &'a Arc<ReplicaSet>>,
    number: impl Fn(&ReplicaSet) -> i32,
) -> i32 {
    sets.into_iter().map(|set| number(set)).fold(0, i32::saturating_add)
}
