//! Conditions of a Job.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition};

use crate::time::time;

pub(super) const COMPLETE: &str = "Complete";
pub(super) const FAILED: &str = "Failed";
pub(super) const SUSPENDED: &str = "Suspended";
/// It will have failed when its pods have ended.
pub(super) const FAILURE_TARGET: &str = "FailureTarget";
/// It will be complete when its pods have ended.
pub(super) const SUCCESS_CRITERIA_MET: &str = "SuccessCriteriaMet";

/// A condition as of now.
pub(super) fn new(type_: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> JobCondition {
    JobCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(time(now)),
        last_transition_time: Some(time(now)),
    }
}

/// The condition of this type, if it is true.
pub(super) fn find<'a>(conditions: &'a Option<Vec<JobCondition>>, type_: &str) -> Option<&'a JobCondition> {
    let mut conditions = conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == type_ && condition.status == "True")
}

/// Sets a condition. Says whether that is news; that something never was is none.
pub(super) fn set(conditions: &mut Option<Vec<JobCondition>>, condition: JobCondition) -> bool {
    let known = conditions.iter_mut().flatten().find(|known| known.type_ == condition.type_);
    match known {
        Some(known) => {
            let is_news = known.status != condition.status
                || known.reason != condition.reason
                || known.message != condition.message;
            if is_news {
                *known = condition;
            }
            is_news
        }
        None if condition.status == "False" => false,
        None => {
            conditions.get_or_insert_default().push(condition);
            true
        }
    }
}

/// The condition that says how a Job ended, if it has.
pub(crate) fn finished(job: &Job) -> Option<&JobCondition> {
    let conditions = &job.status.as_ref()?.conditions;
    find(conditions, COMPLETE).or_else(|| find(conditions, FAILED))
}

/// Whether a Job has ended.
pub(crate) fn is_finished(job: &Job) -> bool {
    finished(job).is_some()
}
