//! What a StatefulSet says about itself, and how long its history is.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use setpoint::{Action, ReconcileError};

use super::identity::ordinal;
use super::{Run, is_running_and_ready, revision_of};
use crate::history::History;
use crate::number::{count, unless_zero};
use crate::pod;

impl Run<'_> {
    /// Counts the pods that have a place.
    pub(super) fn count(&self, status: &mut StatefulSetStatus) {
        let placed = || self.pods.iter().filter(|pod| ordinal(pod).is_some());
        let number = |is_it: &dyn Fn(&Pod) -> bool| count(placed().filter(|pod| is_it(pod)).count());
        let lives = |pod: &Pod| pod.metadata.deletion_timestamp.is_none();
        let of = |revision: &ControllerRevision| {
            let name = revision.name_any();
            number(&|pod| lives(pod) && revision_of(pod) == name)
        };
        status.replicas = number(&|_| true);
        status.ready_replicas = unless_zero(number(&is_running_and_ready));
        status.available_replicas = Some(number(&|pod| is_running_and_ready(pod) && self.is_available(pod)));
        status.current_replicas = unless_zero(of(self.current));
        status.updated_replicas = unless_zero(of(self.update));
    }

    /// When all pods are of the template, what was new is what is.
    pub(super) fn complete(&self, status: &mut StatefulSetStatus) {
        let replicas = self.set.spec.replicas.unwrap_or(1);
        let is_complete = status.updated_replicas.unwrap_or(0) == replicas
            && status.ready_replicas.unwrap_or(0) == replicas
            && status.replicas == replicas;
        if is_complete {
            status.current_replicas = status.updated_replicas;
            status.current_revision = status.update_revision.clone();
        }
    }

    /// Deletes the oldest revisions that no pod has.
    pub(super) async fn forget_old(&self, history: &History<'_, StatefulSet>) -> Result<(), ReconcileError> {
        let limit = self.set.spec.revision_history_limit.unwrap_or(10);
        let Ok(limit) = usize::try_from(limit) else { return Ok(()) };
        let mut live: BTreeSet<String> = self.pods.iter().map(|pod| revision_of(pod).to_owned()).collect();
        live.insert(self.current.name_any());
        let unused = |revision: &&Arc<ControllerRevision>| !live.contains(&revision.name_any());
        let surplus = history.others(self.update).filter(unused).count().saturating_sub(limit);
        history.forget(history.others(self.update).filter(unused), surplus).await
    }

    /// When the next pod that is ready has been so for long enough.
    pub(super) fn next_check(&self) -> Action {
        let (now, seconds) = (self.cx.env().now(), self.min_ready_seconds());
        let waiting =
            self.pods.iter().filter_map(|pod| pod::available_at(pod, seconds)).filter(|at| *at > now);
        match waiting.min() {
            Some(at) => {
                Action::requeue_after(now.duration_until(at).max(SignedDuration::ZERO).unsigned_abs())
            }
            None => Action::done(),
        }
    }
}
