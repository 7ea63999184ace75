//! ReplicationControllers: ReplicaSets of the first days, with a selector of labels alone.

use k8s_openapi::api::apps::v1::{ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{
    PodTemplateSpec, ReplicationController, ReplicationControllerCondition, ReplicationControllerSpec,
    ReplicationControllerStatus,
};
use kube::core::Selector;
use setpoint::{Controller, SharedInformerFactory};

use crate::replica_set::{self, Replicated};

/// The controller of ReplicationControllers.
pub(crate) fn controller(informers: &SharedInformerFactory) -> Controller {
    replica_set::controller_for::<ReplicationController>("replication-controller", informers)
}

fn spec(controller: &ReplicationController) -> Option<&ReplicationControllerSpec> {
    controller.spec.as_ref()
}

impl Replicated for ReplicationController {
    type Status = ReplicationControllerStatus;

    fn replicas(&self) -> Option<i32> {
        spec(self).and_then(|spec| spec.replicas)
    }

    fn selector(&self) -> Option<Selector> {
        let labels =
            spec(self).and_then(|spec| spec.selector.as_ref()).filter(|labels| !labels.is_empty())?;
        Some(labels.iter().map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        spec(self).and_then(|spec| spec.template.as_ref())
    }

    fn min_ready_seconds(&self) -> i32 {
        spec(self).and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
    }

    fn status(&self) -> Option<ReplicaSetStatus> {
        let status = self.status.as_ref()?;
        let condition = |known: &ReplicationControllerCondition| ReplicaSetCondition {
            type_: Some(known.type_.clone()),
            status: Some(known.status.clone()),
            reason: known.reason.clone(),
            message: known.message.clone(),
            last_transition_time: known.last_transition_time.clone(),
        };
        Some(ReplicaSetStatus {
            replicas: status.replicas,
            fully_labeled_replicas: status.fully_labeled_replicas,
            ready_replicas: status.ready_replicas,
            available_replicas: status.available_replicas,
            terminating_replicas: None,
            observed_generation: status.observed_generation,
            conditions: status.conditions.as_ref().map(|all| all.iter().map(condition).collect()),
        })
    }

    fn own_status(status: ReplicaSetStatus) -> ReplicationControllerStatus {
        let condition = |known: ReplicaSetCondition| ReplicationControllerCondition {
            type_: known.type_.unwrap_or_default(),
            status: known.status.unwrap_or_default(),
            reason: known.reason,
            message: known.message,
            last_transition_time: known.last_transition_time,
        };
        ReplicationControllerStatus {
            replicas: status.replicas,
            fully_labeled_replicas: status.fully_labeled_replicas,
            ready_replicas: status.ready_replicas,
            available_replicas: status.available_replicas,
            observed_generation: status.observed_generation,
            conditions: status.conditions.map(|all| all.into_iter().map(condition).collect()),
        }
    }
}
