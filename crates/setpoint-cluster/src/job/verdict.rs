//! Whether a Job has failed or succeeded.

use jiff::SignedDuration;
use setpoint::Event;

use super::conditions::{self, FAILED, FAILURE_TARGET, SUCCESS_CRITERIA_MET, SUSPENDED};
use super::failure_policy::{self, Verdict};
use super::pods::is_failed;
use super::{Run, success_policy};
use crate::pod;

impl Run<'_> {
    fn end_with(&mut self, type_: &str, reason: &str, message: &str) {
        self.end = Some(conditions::new(type_, "True", reason, message, self.now));
    }

    /// Decides whether the Job ends: what was decided before stays decided, failures come before success.
    pub(super) fn judge(&mut self) {
        self.end = conditions::find(&self.status.conditions, SUCCESS_CRITERIA_MET).cloned();
        if self.end.is_some() {
            return;
        }
        if let Some(target) = conditions::find(&self.status.conditions, FAILURE_TARGET).cloned() {
            let words = |text: Option<String>| text.unwrap_or_default();
            self.end_with(FAILED, &words(target.reason), &words(target.message));
        } else if let Some(why) = self.policy_failure() {
            self.end_with(FAILURE_TARGET, "PodFailurePolicy", &why);
        } else if self.failed > self.spec.backoff_limit.unwrap_or(6) || self.has_restarted_too_often() {
            let message = "Job has reached the specified backoff limit";
            self.end_with(FAILURE_TARGET, "BackoffLimitExceeded", message);
        } else {
            self.judge_deadline();
        }
        if self.end.is_none() {
            self.judge_indexes();
        }
    }

    fn policy_failure(&self) -> Option<String> {
        let failed = self.pods.iter().filter(|pod| is_failed(self.spec, pod));
        failed.filter_map(|pod| failure_policy::verdict(self.spec, pod)).find_map(|verdict| match verdict {
            Verdict::FailJob(why) => Some(why),
            _ => None,
        })
    }

    /// Pods that are restarted in their places fail without ever ending.
    fn has_restarted_too_often(&self) -> bool {
        let template = self.spec.template.spec.as_ref();
        if template.and_then(|spec| spec.restart_policy.as_deref()) != Some("OnFailure") {
            return false;
        }
        let alive = self.pods.iter().filter(|pod| matches!(pod::phase(pod), "Running" | "Pending"));
        let statuses = alive.filter_map(|pod| pod.status.as_ref()).flat_map(|status| {
            status.init_container_statuses.iter().chain(&status.container_statuses).flatten()
        });
        let restarts = statuses.map(|status| status.restart_count).fold(0, i32::saturating_add);
        restarts > 0 && restarts >= self.spec.backoff_limit.unwrap_or(6)
    }

    fn judge_deadline(&mut self) {
        let (Some(seconds), false) = (self.spec.active_deadline_seconds, self.is_suspended()) else { return };
        let Some(start) = self.status.start_time.as_ref() else { return };
        let left = SignedDuration::from_secs(seconds).saturating_sub(self.now.duration_since(start.0));
        if left <= SignedDuration::ZERO {
            let message = "Job was active longer than specified deadline";
            self.end_with(FAILURE_TARGET, "DeadlineExceeded", message);
        } else {
            self.look_again(left);
        }
    }

    fn judge_indexes(&mut self) {
        let Some(indexes) = &self.indexes else { return };
        let failed = indexes.failed.as_ref().map_or(0, super::indexes::Indexes::len);
        if self.spec.max_failed_indexes.is_some_and(|most| failed > most) {
            let message = "Job has exceeded the specified maximal number of failed indexes";
            self.end_with(FAILURE_TARGET, "MaxFailedIndexesExceeded", message);
        } else if failed > 0 && failed + indexes.succeeded.len() >= indexes.completions {
            self.end_with(FAILURE_TARGET, "FailedIndexes", "Job has failed indexes");
        } else if let Some(why) =
            success_policy::met(self.spec.success_policy.as_ref(), indexes.completions, &indexes.succeeded)
        {
            self.end_with(SUCCESS_CRITERIA_MET, "SuccessPolicy", &why);
        }
    }

    /// Decides whether enough pods have succeeded, and says whether the Job is suspended.
    pub(super) fn judge_completions(&mut self) {
        let is_enough = match self.spec.completions {
            Some(completions) => self.succeeded >= completions,
            None => self.succeeded > 0,
        };
        if is_enough && self.active == 0 {
            let message = "Reached expected number of succeeded pods";
            self.end_with(SUCCESS_CRITERIA_MET, "CompletionsReached", message);
        } else if self.job.metadata.deletion_timestamp.is_none() {
            self.note_suspension();
        }
    }

    fn note_suspension(&mut self) {
        let (status, reason, event, message) = if self.is_suspended() {
            ("True", "JobSuspended", "Suspended", "Job suspended")
        } else {
            ("False", "JobResumed", "Resumed", "Job resumed")
        };
        let condition = conditions::new(SUSPENDED, status, reason, message, self.now);
        if conditions::set(&mut self.status.conditions, condition) {
            self.event(Event::normal(event, message));
            // A deadline counts from the last start.
            self.status.start_time = (!self.is_suspended()).then(|| crate::time::time(self.now));
        }
    }
}
