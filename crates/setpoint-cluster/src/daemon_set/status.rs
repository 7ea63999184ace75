//! What a DaemonSet says about itself, and how long its history is.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use setpoint::{Action, ReconcileError};

use super::{REVISION_LABEL, Run};
use crate::history::History;
use crate::number::unless_zero;
use crate::pod;

impl Run<'_> {
    /// Counts nodes and the pods on them.
    pub(super) fn status(&self) -> DaemonSetStatus {
        let mut status = DaemonSetStatus {
            observed_generation: self.set.metadata.generation,
            ..DaemonSetStatus::default()
        };
        let (mut available, mut updated) = (0, 0);
        for node in &self.nodes {
            let first = self.pods_on(&node.name_any()).first();
            if !self.demands.fit(node).should_run {
                status.number_misscheduled += i32::from(first.is_some());
                continue;
            }
            status.desired_number_scheduled += 1;
            let Some(first) = first else { continue };
            status.current_number_scheduled += 1;
            let is_ready = pod::is_ready(first);
            status.number_ready += i32::from(is_ready);
            available += i32::from(is_ready && self.is_available(first));
            updated += i32::from(self.is_updated(first));
        }
        status.number_available = unless_zero(available);
        status.number_unavailable = unless_zero(status.desired_number_scheduled.saturating_sub(available));
        status.updated_number_scheduled = unless_zero(updated);
        status
    }

    /// Deletes the oldest revisions that no pod has.
    pub(super) async fn forget_old(
        &self,
        history: &History<'_, DaemonSet>,
        current: &ControllerRevision,
        pods: &[Arc<Pod>],
    ) -> Result<(), ReconcileError> {
        let limit = usize::try_from(self.spec.revision_history_limit.unwrap_or(10)).unwrap_or(0);
        let surplus = history.others(current).count().saturating_sub(limit);
        let live: BTreeSet<&String> =
            pods.iter().filter_map(|pod| pod.labels().get(REVISION_LABEL)).collect();
        let unused = history.others(current).filter(|revision| {
            let hash = revision.labels().get(REVISION_LABEL);
            hash.is_none_or(|hash| !live.contains(hash))
        });
        history.forget(unused, surplus).await
    }

    /// When a pod that is ready has been so for long enough, or one that failed may be replaced.
    pub(super) fn next_check(&self, retry: Option<Duration>) -> Action {
        let (now, seconds) = (self.cx.env().now(), self.min_ready_seconds());
        let pods = self.pods.values().flatten();
        let waiting = pods.filter_map(|pod| pod::available_at(pod, seconds)).filter(|at| *at > now).min();
        let waiting = waiting.map(|at| now.duration_until(at).max(SignedDuration::ZERO).unsigned_abs());
        match waiting.into_iter().chain(retry).min() {
            Some(wait) => Action::requeue_after(wait),
            None => Action::done(),
        }
    }
}
