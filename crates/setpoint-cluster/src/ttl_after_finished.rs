//! Jobs that have ended are deleted when their time is over.

use jiff::SignedDuration;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, DeleteParams, Preconditions, PropagationPolicy};
use setpoint::{Action, Context, Controller, ObjectKey, ReconcileError};

use crate::{failure, job};

/// The controller that deletes Jobs some time after they ended.
pub(crate) fn controller() -> Controller {
    Controller::of::<Job>(.., "ttl-after-finished-controller", reconcile).workers(5)
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(job) = cx.lister::<Job>()?.get(&key) else { return Ok(Action::done()) };
    if job.metadata.deletion_timestamp.is_some() {
        return Ok(Action::done());
    }
    let Some(left) = time_left(&job, &cx) else { return Ok(Action::done()) };
    if left > SignedDuration::ZERO {
        return Ok(Action::requeue_after(left.unsigned_abs()));
    }
    // The cache may be behind: somebody may just have given it more time.
    let jobs: Api<Job> = Api::namespaced(cx.client(), key.namespace().unwrap_or_default());
    let Some(live) = jobs.get_opt(key.name()).await? else { return Ok(Action::done()) };
    match time_left(&live, &cx) {
        Some(left) if left <= SignedDuration::ZERO => {}
        Some(left) => return Ok(Action::requeue_after(left.unsigned_abs())),
        None => return Ok(Action::done()),
    }
    let this = Preconditions { uid: live.metadata.uid, resource_version: None };
    let parameters =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Foreground), ..DeleteParams::default() };
    match jobs.delete(key.name(), &parameters.preconditions(this)).await {
        Err(error) if !failure::is_not_found(&error) => Err(error.into()),
        _ => Ok(Action::done()),
    }
}

/// How long a Job may stay; none if it may for ever, or has not ended.
fn time_left(job: &Job, cx: &Context) -> Option<SignedDuration> {
    let seconds = job.spec.as_ref()?.ttl_seconds_after_finished?;
    let ended = job::finished(job)?.last_transition_time.as_ref()?.0;
    Some(SignedDuration::from_secs(seconds.into()).saturating_sub(cx.env().now().duration_since(ended)))
}
