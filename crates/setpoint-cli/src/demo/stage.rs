//! The stages of the path, and what is seen at each.

use tokio::time::Instant;

/// Where a change is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// What you do.
    Object,
    /// The controller's list and watch brought it.
    Reflector,
    /// Its key waits for a worker.
    Queue,
    /// A worker looks at it.
    Reconcile,
    /// What the controller has made.
    Deployment,
    /// What the built-in controllers have made of that.
    ReplicaSet,
    /// What the nodes run.
    Pod,
    /// What the object says at the end.
    Status,
}

impl Stage {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Stage::Object => "object",
            Stage::Reflector => "reflector",
            Stage::Queue => "queue",
            Stage::Reconcile => "reconcile",
            Stage::Deployment => "deployment",
            Stage::ReplicaSet => "replica set",
            Stage::Pod => "pod",
            Stage::Status => "status",
        }
    }
}

/// Something that was seen.
#[derive(Clone, Debug)]
pub(crate) struct Notice {
    pub(crate) stage: Stage,
    pub(crate) text: String,
    pub(crate) at: Instant,
}
