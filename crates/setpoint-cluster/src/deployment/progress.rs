//! Whether a rollout moves: the condition `Progressing`, its deadline, and pauses.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::DeploymentStatus;
use setpoint::Action;

use super::Rollout;
use super::conditions::{
    self, NEW_SET_AVAILABLE, PAUSED, PROGRESSING, REPLICA_FAILURE, RESUMED, TIMED_OUT, failure_of,
};
use kube::ResourceExt;

/// A deadline that nobody means: the default of old API versions.
const NO_DEADLINE: i32 = i32::MAX;

impl Rollout<'_> {
    /// How long a rollout may stand still; none if it may for ever.
    pub(super) fn deadline(&self) -> Option<SignedDuration> {
        let seconds = self.spec.progress_deadline_seconds.filter(|seconds| *seconds != NO_DEADLINE)?;
        Some(SignedDuration::from_secs(seconds.into()))
    }

    pub(super) fn set_progressing(&mut self, status: &str, reason: &str, message: &str) {
        let condition = conditions::new(PROGRESSING, status, reason, message, self.cx.env().now());
        conditions::set(&mut self.status.conditions, condition);
    }

    fn progress_reason(&self) -> Option<&str> {
        conditions::find(&self.status.conditions, PROGRESSING)?.reason.as_deref()
    }

    /// The time that a Deployment is paused does not count towards its deadline.
    pub(super) fn note_pause(&mut self) {
        let reason = self.progress_reason();
        if self.deadline().is_none() || reason == Some(TIMED_OUT) {
            return;
        }
        match (self.spec.paused == Some(true), reason == Some(PAUSED)) {
            (true, false) => self.set_progressing("Unknown", PAUSED, "Deployment is paused"),
            (false, true) => self.set_progressing("Unknown", RESUMED, "Deployment is resumed"),
            _ => {}
        }
    }

    /// Says how the rollout goes, once the status has been counted.
    pub(super) fn estimate_progress(&mut self) {
        let known = self.deployment.status.as_ref();
        let was_done = known
            .and_then(|status| conditions::find(&status.conditions, PROGRESSING)?.reason.as_deref())
            == Some(NEW_SET_AVAILABLE);
        // A Deployment that is done does not roll out, whatever its pods do.
        let is_done = was_done
            && self.progress_reason() == Some(NEW_SET_AVAILABLE)
            && self.status.replicas == self.status.updated_replicas;
        if self.deadline().is_none() {
            conditions::remove(&mut self.status.conditions, PROGRESSING);
        } else if !is_done {
            self.judge();
        }
        let failure = self.sets.new.iter().chain(&self.sets.old).find_map(|set| failure_of(set));
        match failure {
            Some(failure) => conditions::set(&mut self.status.conditions, failure),
            None => conditions::remove(&mut self.status.conditions, REPLICA_FAILURE),
        }
    }

    fn judge(&mut self) {
        let now = self.cx.env().now();
        let who = match &self.sets.new {
            Some(set) => format!("ReplicaSet {:?}", set.name_any()),
            None => format!("Deployment {:?}", self.name()),
        };
        if self.is_complete(&self.status) {
            self.set_progressing("True", NEW_SET_AVAILABLE, &format!("{who} has successfully progressed."));
        } else if self.has_moved() {
            // The time of the last step is what the deadline is counted from.
            let message = format!("{who} is progressing.");
            let condition = conditions::new(PROGRESSING, "True", "ReplicaSetUpdated", &message, now);
            conditions::renew(&mut self.status.conditions, condition);
        } else if self.has_timed_out(now) {
            self.set_progressing("False", TIMED_OUT, &format!("{who} has timed out progressing."));
        }
    }

    /// Whether there are more new pods, fewer old ones, or more that work than when the status was written.
    fn has_moved(&self) -> bool {
        let none = DeploymentStatus::default();
        let (before, after) = (self.deployment.status.as_ref().unwrap_or(&none), &self.status);
        let grew = |number: fn(&DeploymentStatus) -> Option<i32>| number(after) > number(before);
        let old = |status: &DeploymentStatus| {
            status.replicas.unwrap_or(0).saturating_sub(status.updated_replicas.unwrap_or(0))
        };
        grew(|status| status.updated_replicas)
            || old(after) < old(before)
            || grew(|status| status.ready_replicas)
            || grew(|status| status.available_replicas)
    }

    /// When the rollout has stood still for too long; none if it does not matter.
    fn times_out_at(&self) -> Option<Timestamp> {
        let condition = conditions::find(&self.status.conditions, PROGRESSING)?;
        if matches!(condition.reason.as_deref(), Some(NEW_SET_AVAILABLE | TIMED_OUT)) {
            return None;
        }
        condition.last_update_time.as_ref()?.0.checked_add(self.deadline()?).ok()
    }

    fn has_timed_out(&self, now: Timestamp) -> bool {
        self.progress_reason() == Some(TIMED_OUT) || self.times_out_at().is_some_and(|at| at < now)
    }

    /// When to look whether the rollout stands still.
    pub(super) fn next_check(&self) -> Action {
        let is_over = self.is_complete(&self.status) || self.spec.paused == Some(true);
        match self.times_out_at().filter(|_| !is_over) {
            Some(at) => {
                let left = self.cx.env().now().duration_until(at).max(SignedDuration::ZERO);
                Action::requeue_after(left.unsigned_abs().saturating_add(Duration::from_secs(1)))
            }
            None => Action::done(),
        }
    }
}
