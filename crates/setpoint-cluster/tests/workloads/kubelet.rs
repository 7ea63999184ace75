//! The least that pods need to come and go: everything becomes ready a second after it was created, and ends a
//! second after its deletion.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;
use setpoint::controller::Runtime;
use setpoint::{Action, Context, Controller, Metrics, ObjectKey, ReconcileError};
use setpoint_env::Task;
use setpoint_sim::World;

const DELAY: Duration = Duration::from_secs(1);

/// Pods with this annotation never become ready.
pub(crate) const BROKEN: &str = "test/broken";
/// Pods with this annotation end by themselves, with its value as the exit code.
pub(crate) const EXIT_CODE: &str = "test/exit-code";

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(pod) = cx.lister::<Pod>()?.get(&key) else { return Ok(Action::done()) };
    let pods: Api<Pod> = Api::namespaced(cx.client(), key.namespace().unwrap());
    let now = cx.env().now();
    let due = |since: jiff::Timestamp| {
        let left = DELAY.checked_sub(now.duration_since(since).unsigned_abs()).unwrap_or_default();
        (!left.is_zero()).then(|| Action::requeue_after(left))
    };
    if let Some(deleted) = &pod.metadata.deletion_timestamp {
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
        let since = deleted.0 - jiff::SignedDuration::from_secs(grace);
        if let Some(later) = due(since) {
            return Ok(later);
        }
        let now = DeleteParams::default().grace_period(0);
        let gone = pods.delete(key.name(), &now).await;
        return match gone {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Action::done()),
            other => other.map(|_| Action::done()).map_err(Into::into),
        };
    }
    if let Some(later) = due(pod.metadata.creation_timestamp.as_ref().unwrap().0) {
        return Ok(later);
    }
    let exit_code = pod.annotations().get(EXIT_CODE);
    let phase = match exit_code.map(String::as_str) {
        None => "Running",
        Some("0") => "Succeeded",
        Some(_) => "Failed",
    };
    if pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some(phase) {
        return Ok(Action::done());
    }
    let is_ready = phase == "Running" && !pod.annotations().contains_key(BROKEN);
    let mut status = json!({"phase": phase, "conditions": [
        {"type": "Ready", "status": if is_ready { "True" } else { "False" }, "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()},
    ]});
    if let Some(code) = exit_code {
        let state = json!({"terminated": {"exitCode": code.parse::<i32>().unwrap(),
            "finishedAt": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()}});
        let name = &pod.spec.as_ref().unwrap().containers[0].name;
        status["containerStatuses"] = json!([{"name": name, "image": "i", "imageID": "", "ready": false,
            "restartCount": 0, "state": state}]);
    }
    let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
    pods.patch_status(key.name(), &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Ok(Action::done())
}

/// Runs it, around the faults.
pub(crate) fn run(world: &World) -> Task<()> {
    let runtime = Runtime::with(world.direct(), world.env().clone(), Metrics::default());
    let controller = Controller::of::<Pod>(.., "kubelet", reconcile).workers(50);
    world.env().spawn(async move { controller.run(&runtime).await.unwrap() })
}
