//! Pods that nobody will count: their Job is over, gone, or another one by now. They are let go.

use futures::future::join_all;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Resource, ResourceExt};
use setpoint::owner::controller_of;
use setpoint::{Context, IndexError, ObjectKey, ReconcileError, SharedInformerFactory};

use super::pods::is_tracked;
use super::{selects, tracking};

/// Pods with the finalizer, by the key of their Job.
const INDEX: &str = "tracking-job";
/// The name of a pod's Job.
const JOB_NAME: &str = "batch.kubernetes.io/job-name";

/// Adds the index to the cache of pods.
pub(super) fn index(informers: &SharedInformerFactory) {
    let by_job = |pod: &Pod| key(pod).iter().map(ToString::to_string).collect();
    match informers.informer::<Pod>().add_index(INDEX, by_job) {
        Ok(()) | Err(IndexError::Exists(_)) => {}
        Err(error) => tracing::error!(%error, "cannot index pods by their Jobs"),
    }
}

/// The Job that has, or had, to count a pod.
pub(super) fn key(pod: &Pod) -> Option<ObjectKey> {
    if !is_tracked(pod) {
        return None;
    }
    let name = match controller_of(pod) {
        Some(owner) if owner.kind == Job::kind(&()) && owner.api_version == Job::api_version(&()) => {
            &owner.name
        }
        Some(_) => return None,
        None => pod.labels().get(JOB_NAME)?,
    };
    Some(ObjectKey::namespaced(&pod.namespace().unwrap_or_default(), name))
}

/// Lets go of the pods that are not those of `open`, the Job of this key if it has not ended.
pub(super) async fn release(cx: &Context, key: &ObjectKey, open: Option<&Job>) -> Result<(), ReconcileError> {
    let tracked = cx.lister::<Pod>()?.by_index(INDEX, &key.to_string())?;
    let is_stray = |pod: &&std::sync::Arc<Pod>| match (open, controller_of(&***pod)) {
        (None, _) => true,
        (Some(job), Some(owner)) => Some(&owner.uid) != job.metadata.uid.as_ref(),
        // It may be adopted.
        (Some(job), None) => !selects(job, pod),
    };
    let pods: Api<Pod> = Api::namespaced(cx.client(), key.namespace().unwrap_or_default());
    let released = join_all(tracked.iter().filter(is_stray).map(|pod| tracking::release(&pods, pod))).await;
    released.into_iter().collect()
}
