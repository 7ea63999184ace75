//! Pods of an old template make way for new ones, from the last place to the first.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSetStatus;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use setpoint::ReconcileError;

use super::Run;
use super::manage::Slot;
use crate::number::{Round, count, scaled};

impl Run<'_> {
    /// Deletes as many pods of an old template as may be unavailable, down to the partition.
    pub(super) async fn roll(
        &self,
        replicas: &[Slot],
        status: &mut StatefulSetStatus,
    ) -> Result<(), ReconcileError> {
        let strategy = self.set.spec.update_strategy.as_ref();
        let type_ = strategy.and_then(|strategy| strategy.type_.as_deref()).unwrap_or("RollingUpdate");
        if type_ != "RollingUpdate" {
            return Ok(());
        }
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let partition = rolling.and_then(|rolling| rolling.partition).unwrap_or(0);
        let most =
            rolling.and_then(|rolling| rolling.max_unavailable.as_ref()).unwrap_or(&IntOrString::Int(1));
        let most = scaled(most, count(replicas.len()), Round::Down).max(1);
        let is_missing = |slot: &&Slot| slot.pod().is_none_or(|pod| self.is_unavailable(pod));
        let unavailable = count(replicas.iter().filter(is_missing).count());
        let room = usize::try_from(most.saturating_sub(unavailable)).unwrap_or(0);
        let partition = usize::try_from(partition).unwrap_or(0);
        for pod in self.outdated(replicas, partition, room) {
            self.delete(&pod).await?;
            status.current_replicas = status.current_replicas.map(|current| current.saturating_sub(1));
        }
        Ok(())
    }

    /// The pods that go now. Without an order, those that serve nobody go whatever the limit is.
    fn outdated(&self, replicas: &[Slot], partition: usize, room: usize) -> Vec<Arc<Pod>> {
        let places = replicas.iter().skip(partition).rev().filter_map(Slot::pod);
        let is_old = |pod: &&Arc<Pod>| !self.is_updated(pod) && pod.metadata.deletion_timestamp.is_none();
        let old = places.filter(is_old).cloned();
        if self.is_ordered() {
            return old.take(room).collect();
        }
        let (mut going, well): (Vec<_>, Vec<_>) = old.partition(|pod| !self.is_available(pod));
        going.extend(well.into_iter().take(room));
        going
    }
}
