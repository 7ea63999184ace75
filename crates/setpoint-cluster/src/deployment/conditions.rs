//! Conditions of a Deployment, with the times that `kubectl rollout status` and people go by.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DeploymentCondition, ReplicaSet, ReplicaSetCondition};

use crate::time::time;

pub(super) const AVAILABLE: &str = "Available";
pub(super) const PROGRESSING: &str = "Progressing";
pub(super) const REPLICA_FAILURE: &str = "ReplicaFailure";

pub(super) const NEW_SET_AVAILABLE: &str = "NewReplicaSetAvailable";
pub(super) const TIMED_OUT: &str = "ProgressDeadlineExceeded";
pub(super) const PAUSED: &str = "DeploymentPaused";
pub(super) const RESUMED: &str = "DeploymentResumed";

type Conditions = Option<Vec<DeploymentCondition>>;

/// A condition as of now.
pub(super) fn new(
    type_: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> DeploymentCondition {
    DeploymentCondition {
        type_: Some(type_.to_owned()),
        status: Some(status.to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_update_time: Some(time(now)),
        last_transition_time: Some(time(now)),
    }
}

fn type_of(condition: &DeploymentCondition) -> &str {
    condition.type_.as_deref().unwrap_or_default()
}

/// The condition of this type.
pub(super) fn find<'a>(conditions: &'a Conditions, type_: &str) -> Option<&'a DeploymentCondition> {
    conditions.iter().flatten().find(|condition| condition.type_.as_deref() == Some(type_))
}

/// Sets a condition; one of the same status and reason stays as it is.
pub(super) fn set(conditions: &mut Conditions, condition: DeploymentCondition) {
    let is_known = find(conditions, type_of(&condition))
        .is_some_and(|known| known.status == condition.status && known.reason == condition.reason);
    if !is_known {
        renew(conditions, condition);
    }
}

/// Sets a condition also if only its message or time is new.
pub(super) fn renew(conditions: &mut Conditions, mut condition: DeploymentCondition) {
    if let Some(known) =
        find(conditions, type_of(&condition)).filter(|known| known.status == condition.status)
    {
        condition.last_transition_time = known.last_transition_time.clone();
    }
    remove(conditions, type_of(&condition));
    conditions.get_or_insert_default().push(condition);
}

/// Removes the condition of this type.
pub(super) fn remove(conditions: &mut Conditions, type_: &str) {
    if let Some(list) = conditions {
        list.retain(|condition| type_of(condition) != type_);
        if list.is_empty() {
            *conditions = None;
        }
    }
}

/// What a set complains about, as a condition of its Deployment.
pub(super) fn failure_of(set: &ReplicaSet) -> Option<DeploymentCondition> {
    let conditions = set.status.as_ref()?.conditions.iter().flatten();
    let failure =
        conditions.into_iter().find(|condition| condition.type_.as_deref() == Some(REPLICA_FAILURE))?;
    let ReplicaSetCondition { type_, status, reason, message, last_transition_time } = failure.clone();
    let last_update_time = last_transition_time.clone();
    Some(DeploymentCondition { type_, status, reason, message, last_update_time, last_transition_time })
}
