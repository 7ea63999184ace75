//! What a ReplicaSet says about itself.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use setpoint::{Action, ReconcileError};

use super::Replicated;
use crate::number::count;
use crate::time::time;
use crate::{number, pod};

/// The one condition that a set has.
const FAILURE: &str = "ReplicaFailure";

/// The status of a set whose active pods are these, after what `failure` says.
pub(super) fn of<K: Replicated>(
    set: &K,
    active: &[Arc<Pod>],
    terminating: usize,
    failure: Option<&ReconcileError>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let seconds = set.min_ready_seconds();
    let number = |matches: &dyn Fn(&Pod) -> bool| count(active.iter().filter(|pod| matches(pod)).count());
    ReplicaSetStatus {
        replicas: count(active.len()),
        fully_labeled_replicas: number::unless_zero(number(&|pod| has_template_labels(set, pod))),
        ready_replicas: number::unless_zero(number(&pod::is_ready)),
        available_replicas: number::unless_zero(number(&|pod| pod::is_available(pod, seconds, now))),
        terminating_replicas: Some(count(terminating)),
        observed_generation: set.meta().generation,
        conditions: conditions(set, active.len(), failure, now),
    }
}

/// Whether all that is new is that more pods are ready or available, and others are still to come.
pub(super) fn only_readiness_grows<K: Replicated>(set: &K, new: &ReplicaSetStatus) -> bool {
    let Some(old) = set.status() else { return false };
    let as_before = ReplicaSetStatus {
        ready_replicas: old.ready_replicas,
        available_replicas: old.available_replicas,
        ..new.clone()
    };
    let is_complete = new.available_replicas.unwrap_or(0) >= count(set.wanted());
    as_before == old
        && !is_complete
        && new.ready_replicas >= old.ready_replicas
        && new.available_replicas >= old.available_replicas
        && (new.ready_replicas > old.ready_replicas || new.available_replicas > old.available_replicas)
}

fn has_template_labels<K: Replicated>(set: &K, pod: &Pod) -> bool {
    let labels = set.template().and_then(|template| template.metadata.as_ref()?.labels.as_ref());
    labels.into_iter().flatten().all(|(key, value)| pod.labels().get(key) == Some(value))
}

fn conditions<K: Replicated>(
    set: &K,
    active: usize,
    failure: Option<&ReconcileError>,
    now: Timestamp,
) -> Option<Vec<ReplicaSetCondition>> {
    let known = set.status().and_then(|status| status.conditions).unwrap_or_default();
    let has_failed = known.iter().any(|condition| condition.type_.as_deref() == Some(FAILURE));
    let mut conditions = known;
    match failure {
        // The first failure stays, with its time, until all is well.
        Some(error) if !has_failed => conditions.push(ReplicaSetCondition {
            type_: Some(FAILURE.to_owned()),
            status: Some("True".to_owned()),
            reason: Some(if active < set.wanted() { "FailedCreate" } else { "FailedDelete" }.to_owned()),
            message: Some(words(error)),
            last_transition_time: Some(time(now)),
        }),
        Some(_) => {}
        None => conditions.retain(|condition| condition.type_.as_deref() != Some(FAILURE)),
    }
    (!conditions.is_empty()).then_some(conditions)
}

fn words(error: &ReconcileError) -> String {
    match error.source().downcast_ref::<kube::Error>() {
        Some(error) => crate::failure::message(error),
        None => error.to_string(),
    }
}

/// When the next pod that is ready has been so for long enough.
pub(super) fn next_check<K: Replicated>(set: &K, active: &[Arc<Pod>], now: Timestamp) -> Action {
    let seconds = set.min_ready_seconds();
    let waiting = active.iter().filter_map(|pod| pod::available_at(pod, seconds)).filter(|at| *at > now);
    match waiting.min() {
        Some(at) => Action::requeue_after(now.duration_until(at).max(SignedDuration::ZERO).unsigned_abs()),
        None => Action::done(),
    }
}
