//! The counters of a Deployment, and its condition `Available`.

use k8s_openapi::api::apps::v1::{DeploymentStatus, ReplicaSet};

use super::Rollout;
use super::conditions::{self, AVAILABLE};
use super::limits;
use super::sets::{self, sum};
use crate::number::unless_zero;

impl Rollout<'_> {
    /// Counts what the sets say into the status.
    pub(super) fn summarize(&mut self) {
        let (sets, now) = (&self.sets, self.cx.env().now());
        let available = sum(sets.all(), sets::available);
        let unavailable = sum(sets.all(), sets::replicas).saturating_sub(available).max(0);
        let mut conditions = self.status.conditions.take();
        let condition = if available >= self.replicas().saturating_sub(limits::max_unavailable(self.spec)) {
            let message = "Deployment has minimum availability.";
            conditions::new(AVAILABLE, "True", "MinimumReplicasAvailable", message, now)
        } else {
            let message = "Deployment does not have minimum availability.";
            conditions::new(AVAILABLE, "False", "MinimumReplicasUnavailable", message, now)
        };
        conditions::set(&mut conditions, condition);
        self.status = DeploymentStatus {
            observed_generation: self.deployment.metadata.generation,
            replicas: unless_zero(sum(sets.all(), sets::actual)),
            updated_replicas: unless_zero(sum(&sets.new, sets::actual)),
            ready_replicas: unless_zero(sum(sets.all(), sets::ready)),
            available_replicas: unless_zero(available),
            unavailable_replicas: unless_zero(unavailable),
            terminating_replicas: terminating(sets.all().map(|set| &**set)),
            collision_count: self.status.collision_count,
            conditions,
        };
    }

    /// Whether all replicas are new and available, and nothing else is there.
    pub(super) fn is_complete(&self, status: &DeploymentStatus) -> bool {
        let replicas = Some(self.replicas());
        let is_all = |number: Option<i32>| Some(number.unwrap_or(0)) == replicas;
        is_all(status.updated_replicas)
            && is_all(status.replicas)
            && is_all(status.available_replicas)
            && status.observed_generation >= self.deployment.metadata.generation
    }
}

/// How many pods are on their way out. Nobody knows if one set does not say.
fn terminating<'a>(sets: impl Iterator<Item = &'a ReplicaSet>) -> Option<i32> {
    let mut total = 0i32;
    for status in sets.filter_map(|set| set.status.as_ref()) {
        match status.terminating_replicas {
            Some(number) => total = total.saturating_add(number),
            None if status.observed_generation.unwrap_or(0) == 0 => {}
            None => return None,
        }
    }
    Some(total)
}
