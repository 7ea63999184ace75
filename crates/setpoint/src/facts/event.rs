//! What can happen in the loop.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Name;
use crate::reasons::{Cause, Reason, Reasons};
use crate::workqueue::Phase;
use crate::{ObjectKey, ResourceVersion, Scope};

/// Something that happened in the loop, stage by stage. Serialised, durations are nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum LoopEvent {
    /// Stage 1: the list and watch of a cache came into another state.
    Reflector {
        /// Whose list and watch.
        cache: CacheName,
        /// What it does now.
        state: ReflectorState,
    },
    /// Stage 1: a watch brought changes, which wait in the DeltaFifo to be applied.
    Received {
        /// Whose watch.
        cache: CacheName,
        /// The resourceVersion that they lead up to.
        version: Option<ResourceVersion>,
        /// The changes.
        changes: CacheChanges,
        /// How many objects wait in the DeltaFifo now: how far the cache is behind its watch.
        pending: usize,
    },
    /// Stage 3: a batch is in the cache.
    Applied {
        /// Which cache.
        cache: CacheName,
        /// Its watermark: the resourceVersion that it is at now.
        version: Option<ResourceVersion>,
        /// Whether the batch was a list.
        is_list: bool,
        /// What changed in the cache.
        changes: CacheChanges,
    },
    /// Stage 4: how many changes a handler has not been told.
    Handler {
        /// What the cache is of.
        resource: Name,
        /// The handler's name; that of a controller for its own.
        handler: Name,
        /// How many.
        backlog: usize,
    },
    /// Stage 5: a key was added to a queue. What follows from it is the next fact of the key; nothing, if it was
    /// coalesced with what is there.
    Added {
        /// The queue, which has the name of its controller.
        queue: Name,
        /// The key.
        key: ObjectKey,
        /// Why.
        reason: Reason,
        /// At which priority.
        priority: i32,
        /// Whether the key was there already, queued or dirty.
        is_coalesced: bool,
    },
    /// Stage 5: a key came into another phase.
    Phase {
        /// The queue.
        queue: Name,
        /// The key.
        key: ObjectKey,
        /// What it is now.
        phase: Phase,
        /// Its priority.
        priority: i32,
        /// All that it wants to be processed for; when it is taken, what it is processed for.
        reasons: Reasons,
    },
    /// Stage 5: a key will want to be processed after a time. It replaces a later time of the key.
    Delayed {
        /// The queue.
        queue: Name,
        /// The key.
        key: ObjectKey,
        /// After which time, from now.
        #[serde(with = "nanoseconds")]
        delay: Duration,
        /// Why: a retry that the rate limiter delays, or a requeue.
        cause: Cause,
    },
    /// Stage 5: a key will be held, once it is done, until caches show what it wrote.
    Held {
        /// The queue.
        queue: Name,
        /// The key.
        key: ObjectKey,
        /// What it waits for.
        until: Vec<Awaited>,
        /// How long at most.
        #[serde(with = "nanoseconds")]
        limit: Duration,
    },
    /// Stage 5: a key is held no more.
    Released {
        /// The queue.
        queue: Name,
        /// The key.
        key: ObjectKey,
        /// How long it was held.
        #[serde(with = "nanoseconds")]
        waited: Duration,
        /// Whether its limit was reached before the caches showed what it waited for.
        is_late: bool,
    },
    /// Stage 5: a queue takes no more keys, and forgets those that are held or wait for their time.
    QueueShutDown {
        /// The queue.
        queue: Name,
    },
    /// Stage 6: a reconcile began.
    ReconcileStarted {
        /// The controller.
        controller: Name,
        /// The key.
        key: ObjectKey,
        /// Its number, which no other reconcile of the process has. Logs have it as `reconcile`.
        id: u64,
        /// Why.
        reasons: Reasons,
        /// How often the key has failed since it last succeeded.
        retries: u32,
    },
    /// Stage 6: a reconcile ended.
    ReconcileEnded {
        /// The controller.
        controller: Name,
        /// The key.
        key: ObjectKey,
        /// Its number.
        id: u64,
        /// How.
        result: ReconcileResult,
        /// How long it took.
        #[serde(with = "nanoseconds")]
        took: Duration,
    },
    /// Stage 6: a write through [`Context::client`](crate::Context::client) came back.
    Write {
        /// The controller.
        controller: Name,
        /// The key that it reconciles.
        key: ObjectKey,
        /// The number of the reconcile.
        id: u64,
        /// The HTTP method.
        method: Name,
        /// What was written to, like `deployments.apps`.
        resource: Name,
        /// The subresource, if it was one.
        subresource: Option<Name>,
        /// The object; none if it was a collection, or got no name.
        object: Option<ObjectKey>,
        /// The field manager that the request named; without one, the server makes one up from the user agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        manager: Option<Name>,
        /// What came of it.
        result: WriteResult,
        /// The version that the cache had when the write was sent.
        before: Option<ResourceVersion>,
        /// What is different from the cached object, as far as its type knows; none if it was not cached.
        changed: Option<Vec<FieldChange>>,
    },
    /// The detector found something that is worth a look.
    Finding {
        /// The controller.
        controller: Name,
        /// The key.
        key: ObjectKey,
        /// What.
        finding: Finding,
    },
    /// A controller began or stopped to work.
    Work {
        /// The controller.
        controller: Name,
        /// What it does now.
        state: WorkState,
    },
    /// Who leads has changed, as this replica knows it.
    Leadership {
        /// The lease, `namespace/name`.
        lease: Name,
        /// This replica.
        identity: Name,
        /// What it knows now.
        state: LeadershipState,
    },
    /// This listener was too slow: so many facts before the next one are lost to it.
    Missed {
        /// How many.
        count: u64,
    },
}

/// One list and watch: a resource in one scope.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CacheName {
    /// Like `pods` or `deployments.apps`.
    pub resource: Name,
    /// None for the whole cluster.
    pub namespace: Option<Name>,
    /// The number of the cache among those of these facts, as in [`CacheState::id`](super::CacheState::id): a resource may
    /// have several caches.
    pub id: u64,
}

impl CacheName {
    pub(crate) fn new(id: u64, resource: &str, scope: &Scope) -> CacheName {
        CacheName { id, resource: resource.into(), namespace: scope.namespace().map(Name::from) }
    }
}

/// What a reflector does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum ReflectorState {
    /// It asks for a list, or the next page of one.
    Listing {
        /// Whether as the beginning of a watch.
        is_streaming: bool,
    },
    /// A list has come.
    Listed {
        /// How many objects it has.
        objects: usize,
        /// The resourceVersion that it is at.
        version: ResourceVersion,
    },
    /// It watches.
    Watching {
        /// From this resourceVersion on.
        from: Option<ResourceVersion>,
    },
    /// A list or watch failed.
    Failed {
        /// How.
        error: String,
        /// How long it waits before it tries again.
        #[serde(with = "nanoseconds")]
        pause: Duration,
        /// Whether it lists then; else it watches.
        lists_next: bool,
    },
    /// A task of the informer panicked; it begins again with a list after a pause.
    Panicked {
        /// What it said.
        error: String,
    },
    /// Its informer was stopped, or is gone. This is the last that is told of it.
    Stopped,
}

/// Changes of several objects: how many, and the first of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheChanges {
    /// How many there are.
    pub count: usize,
    /// The first ones, at most [`CacheChanges::MOST`].
    pub first: Vec<CacheChange>,
}

impl CacheChanges {
    /// How many are named.
    pub const MOST: usize = 16;

    pub(crate) fn new(changes: impl ExactSizeIterator<Item = CacheChange>) -> CacheChanges {
        CacheChanges { count: changes.len(), first: changes.take(CacheChanges::MOST).collect() }
    }
}

/// A change of one object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheChange {
    /// Which object.
    pub key: ObjectKey,
    /// What happened to it: [`Cause::Added`], [`Cause::Updated`], [`Cause::Deleted`] or [`Cause::Resync`].
    pub cause: Cause,
    /// Its version; of what is gone, the last one.
    pub version: Option<ResourceVersion>,
}

/// What a held key waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Awaited {
    /// The cache that has to get there.
    pub cache: CacheName,
    /// Its watermark must be at least this.
    pub version: ResourceVersion,
    /// This object must be gone from it too.
    pub object: Option<ObjectKey>,
}

/// How a reconcile ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum ReconcileResult {
    /// Well.
    Done,
    /// Well, and the key comes again after a time.
    RequeueAfter {
        /// After which time.
        #[serde(with = "nanoseconds")]
        delay: Duration,
    },
    /// It failed, also by a panic or its time limit, and is tried again.
    Failed {
        /// Why.
        error: String,
    },
    /// It failed, and is not tried again.
    FailedForGood {
        /// Why.
        error: String,
    },
    /// It was dropped before its end: the lease was lost, or the grace period was over.
    CutOff,
}

/// What came of a write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum WriteResult {
    /// The object has this version now.
    Written {
        /// The version of the answer.
        version: ResourceVersion,
        /// Whether it is the version that the object had before: nothing has changed.
        is_unchanged: bool,
    },
    /// The object is gone.
    Gone,
    /// The server refused.
    Refused {
        /// The HTTP status.
        code: u16,
        /// The machine-readable reason, if there is one.
        reason: String,
    },
    /// The answer was lost, or does not say what was written.
    Unknown,
}

/// A field that is different.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldChange {
    /// Where: `spec.replicas`, `status.conditions[0].message`.
    pub path: String,
    /// What the cache had, shortened; none if there was nothing, or if it is the content of a Secret.
    pub before: Option<String>,
    /// What there is now.
    pub after: Option<String>,
}

/// What the detector names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Finding {
    /// Nothing but what its own last reconcile wrote has caused a reconcile, again and again.
    SelfTriggered {
        /// How many times in a row.
        times: u32,
        /// What it wrote last, and was triggered by.
        resource: Name,
        /// Which object.
        object: ObjectKey,
    },
    /// A write changed nothing: it need not be sent.
    UnchangedWrite {
        /// What was written to.
        resource: Name,
        /// Which object.
        object: ObjectKey,
    },
}

/// What a controller does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum WorkState {
    /// A term began: it waits until its caches are as new as the server.
    CatchingUp,
    /// It reconciles.
    Working,
    /// It does not reconcile: it was shut down, or its term is over.
    Stopped,
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum LeadershipState {
    /// This replica.
    Leading,
    /// Another one, or nobody.
    Following {
        /// The holder of the lease, as it was last seen.
        leader: Option<Name>,
    },
}

/// Durations as nanoseconds.
pub(super) mod nanoseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(in crate::facts) fn serialize<S: Serializer>(
        time: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_nanos)
    }
}
