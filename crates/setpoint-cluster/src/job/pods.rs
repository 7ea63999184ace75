//! What a Job reads from its pods.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::JobSpec;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;

use super::failure_policy::{self, Verdict};
use super::indexes::Indexes;
use super::{Indexed, Run, TRACKING};
use crate::number::count;
use crate::pod;

/// The place of a pod in an indexed Job: an annotation, and a label.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// How often the pods of an index have failed before this one.
pub(super) const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// How often they have failed in ways that do not count.
pub(super) const IGNORED_FAILURES: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

pub(super) fn is_tracked(pod: &Pod) -> bool {
    pod.finalizers().iter().any(|finalizer| finalizer == TRACKING)
}

/// The index of a pod.
pub(super) fn index(pod: &Pod) -> Option<i32> {
    pod.annotations().get(INDEX)?.parse().ok().filter(|index| *index >= 0)
}

fn number(pod: &Pod, annotation: &str) -> i32 {
    let number = pod.annotations().get(annotation).and_then(|number| number.parse().ok());
    number.filter(|number| *number >= 0).unwrap_or(0)
}

pub(super) fn failures(pod: &Pod) -> i32 {
    number(pod, FAILURES)
}

pub(super) fn ignored_failures(pod: &Pod) -> i32 {
    number(pod, IGNORED_FAILURES)
}

/// How many pods of its index have failed with this one. Who may write pods may write these annotations, too.
pub(super) fn tries(pod: &Pod) -> i32 {
    failures(pod).saturating_add(ignored_failures(pod)).saturating_add(1)
}

/// Whether a pod is only replaced when it has ended, not when it is about to.
pub(super) fn waits_for_end(spec: &JobSpec) -> bool {
    spec.pod_replacement_policy.as_deref() == Some("Failed")
}

/// Whether a pod counts as failed: also when it is deleted, since it may never get to say so.
pub(super) fn is_failed(spec: &JobSpec, pod: &Pod) -> bool {
    let phase = pod::phase(pod);
    let is_deleted = pod.metadata.deletion_timestamp.is_some() && phase != "Succeeded";
    phase == "Failed" || (is_deleted && !waits_for_end(spec))
}

/// Whether a failure counts towards the limits.
pub(super) fn counts(spec: &JobSpec, pod: &Pod) -> bool {
    !matches!(failure_policy::verdict(spec, pod), Some(Verdict::Ignore))
}

/// When a pod ended, as near as can be told.
pub(super) fn ended_at(pod: &Pod) -> Option<Timestamp> {
    let not_ready = || {
        let condition = pod::condition(pod, "Ready").filter(|ready| ready.status == "False")?;
        condition.last_transition_time.as_ref().map(|time| time.0)
    };
    let deleted = || {
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
        let deleted = pod.metadata.deletion_timestamp.as_ref()?.0;
        deleted.checked_sub(SignedDuration::from_secs(grace)).ok()
    };
    let created = || pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    last_container(pod).or_else(not_ready).or_else(deleted).or_else(created)
}

/// When the last container ended; none if one has not.
fn last_container(pod: &Pod) -> Option<Timestamp> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let ended =
        |status: &ContainerStatus| Some(status.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()?.0);
    let ended: Option<Vec<Timestamp>> = statuses.iter().map(ended).collect();
    ended?.into_iter().max()
}

impl Run<'_> {
    /// Whether a pod can be counted: for an indexed Job it must have an index of the Job.
    fn is_valid(&self, pod: &Pod) -> bool {
        match self.completions_by_index() {
            None => true,
            Some(completions) => index(pod).is_some_and(|index| index < completions),
        }
    }

    pub(super) fn completions_by_index(&self) -> Option<i32> {
        let is_indexed = self.spec.completion_mode.as_deref() == Some("Indexed");
        is_indexed.then(|| self.spec.completions.unwrap_or(0))
    }

    /// Counts the pods that have ended: those of the counters, those that are noted, and the new ones.
    pub(super) fn count_ended(&mut self) {
        let (succeeded, failed) = self.noted();
        let new = |noted: &std::collections::BTreeSet<&str>, pod: &Pod| {
            is_tracked(pod)
                && self.is_valid(pod)
                && pod.uid().is_some_and(|uid| !noted.contains(uid.as_str()))
        };
        let new_succeeded =
            self.pods.iter().filter(|pod| pod::phase(pod) == "Succeeded" && new(&succeeded, pod)).count();
        let new_failed = self
            .pods
            .iter()
            .filter(|pod| is_failed(self.spec, pod) && new(&failed, pod) && counts(self.spec, pod))
            .count();
        let total_succeeded = count(new_succeeded + succeeded.len());
        let total_failed = count(new_failed + failed.len());
        self.succeeded = self.status.succeeded.unwrap_or(0).saturating_add(total_succeeded);
        self.failed = self.status.failed.unwrap_or(0).saturating_add(total_failed);
    }

    pub(super) fn indexed(&self) -> Option<Indexed> {
        let completions = self.completions_by_index()?;
        let known =
            |text: Option<&String>| Indexes::parse(text.map(String::as_str).unwrap_or_default(), completions);
        let uncounted = |matches: &dyn Fn(&Pod) -> bool| -> Vec<i32> {
            let pods = self.pods.iter().filter(|pod| is_tracked(pod) && self.is_valid(pod) && matches(pod));
            pods.filter_map(|pod| index(pod)).collect()
        };
        let mut succeeded = known(self.status.completed_indexes.as_ref());
        succeeded.extend(uncounted(&|pod| pod::phase(pod) == "Succeeded"));
        let failed = self.spec.backoff_limit_per_index.map(|limit| {
            let mut failed = known(self.status.failed_indexes.as_ref());
            failed.extend(uncounted(&|pod| self.is_index_failed(pod, limit)));
            failed
        });
        Some(Indexed { completions, succeeded, failed })
    }

    /// Whether with this pod its index has failed for good.
    fn is_index_failed(&self, pod: &Pod, limit: i32) -> bool {
        if !is_failed(self.spec, pod) {
            return false;
        }
        match failure_policy::verdict(self.spec, pod) {
            Some(Verdict::FailIndex) => true,
            Some(Verdict::Ignore) => false,
            _ => failures(pod) >= limit,
        }
    }
}
