//! How the loop is right now: what a stream of facts cannot tell those who come late.
//!
//! Caches, queues and controllers are known to the [`Facts`] that they tell through, and are asked when somebody looks.
//! Until then it costs them nothing.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;

use super::event::{Awaited, nanoseconds};
use super::{Facts, Name};
use crate::workqueue::Phase;
use crate::{ObjectKey, Reasons, ResourceVersion};

/// Everything that tells through one [`Facts`], as it is now. Each part is true in itself; between two parts time passes.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoopState {
    /// Stages 1 to 4, by resource.
    pub caches: Vec<CacheState>,
    /// Stage 5, by name.
    pub queues: Vec<QueueState>,
    /// Stage 6, by name.
    pub controllers: Vec<ControllerState>,
}

/// A cache, the lists and watches that feed it, and the handlers that it tells.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CacheState {
    /// Its number among the caches of these facts: a resource may have several caches.
    pub id: u64,
    /// Like `pods` or `deployments.apps`.
    pub resource: Name,
    /// Its lists and watches.
    pub scopes: Vec<ScopeState>,
    /// How many objects it holds.
    pub objects: usize,
    /// Whether the first lists are in it.
    pub has_synced: bool,
    /// Whether its tasks run; false after a panic until the next list.
    pub is_healthy: bool,
    /// Who is told of its changes.
    pub handlers: Vec<HandlerState>,
}

/// One list and watch of a cache.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScopeState {
    /// None for the whole cluster.
    pub namespace: Option<Name>,
    /// The watermark of the cache in this scope.
    pub version: Option<ResourceVersion>,
    /// How many objects wait in the DeltaFifo.
    pub pending: usize,
    /// The last failure, if nothing has worked since.
    pub trouble: Option<String>,
}

/// A handler of a cache.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HandlerState {
    /// Its name.
    pub handler: Name,
    /// How many changes it has not been told.
    pub backlog: usize,
}

/// A queue, by what its keys do.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueState {
    /// Its name; that of its controller, if it has one.
    pub queue: Name,
    /// How many keys are ready to be taken.
    pub ready: usize,
    /// How many are being processed.
    pub processing: usize,
    /// How many wait for their time.
    pub waiting: usize,
    /// How many are held until caches show what they wrote, or will be when they are done.
    pub held: usize,
    /// How many of those that are processed or held want to be processed again.
    pub dirty: usize,
    /// Whether it takes no more keys.
    pub is_shutting_down: bool,
    /// Some of its keys, as many of each kind as were asked for, in no order.
    pub keys: Vec<KeyState>,
}

/// A key of a queue.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyState {
    /// The key.
    pub key: ObjectKey,
    /// What it does.
    pub phase: Phase,
    /// Its priority.
    pub priority: i32,
    /// Why it wants to be processed.
    pub reasons: Reasons,
    /// When it will want to be processed, from now.
    #[serde(with = "optional_nanoseconds")]
    pub due_in: Option<Duration>,
    /// Since when it is held.
    #[serde(with = "optional_nanoseconds")]
    pub held_for: Option<Duration>,
    /// For how long at most it is held from now.
    #[serde(with = "optional_nanoseconds")]
    pub held_at_most: Option<Duration>,
    /// What it is held for.
    pub until: Vec<Awaited>,
}

/// A controller.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerState {
    /// Its name.
    pub controller: Name,
    /// How many keys it may reconcile at the same time.
    pub workers: usize,
}

/// Some of the objects of a cache.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cached {
    /// The object's key.
    pub key: String,
    /// Its version.
    pub version: Option<ResourceVersion>,
}

pub(crate) trait CacheProbe: Send + Sync {
    fn state(&self, id: u64) -> CacheState;
    fn keys(&self) -> Vec<ObjectKey>;
    fn version(&self, key: &ObjectKey) -> Option<ResourceVersion>;
}

pub(crate) trait QueueProbe: Send + Sync {
    /// Somebody may have begun to listen to the facts, or ceased.
    fn heed(&self);

    fn state(&self, most: usize) -> QueueState;
}

pub(crate) trait ControllerProbe: Send + Sync {
    fn state(&self) -> ControllerState;
}

/// Whom to ask.
#[derive(Default)]
pub(super) struct Probes(Mutex<All>);

#[derive(Default)]
struct All {
    next_id: u64,
    caches: Vec<(u64, Weak<dyn CacheProbe>)>,
    queues: Vec<Weak<dyn QueueProbe>>,
    controllers: Vec<Weak<dyn ControllerProbe>>,
}

impl Probes {
    fn caches(&self) -> Vec<(u64, Arc<dyn CacheProbe>)> {
        let mut all = self.0.lock();
        all.caches.retain(|(_, cache)| cache.strong_count() > 0);
        all.caches.iter().filter_map(|(id, cache)| Some((*id, cache.upgrade()?))).collect()
    }

    pub(super) fn queues(&self) -> Vec<Arc<dyn QueueProbe>> {
        let mut all = self.0.lock();
        all.queues.retain(|queue| queue.strong_count() > 0);
        all.queues.iter().filter_map(Weak::upgrade).collect()
    }

    fn controllers(&self) -> Vec<Arc<dyn ControllerProbe>> {
        let mut all = self.0.lock();
        all.controllers.retain(|controller| controller.strong_count() > 0);
        all.controllers.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Facts {
    /// How everything that tells through these facts is now, with at most `most` keys of each kind of each queue: those
    /// that are ready, processed, waiting, held.
    ///
    /// It asks each part under that part's lock; with keys it looks at all of a queue. So ask now and then, not in a loop.
    pub fn state(&self, most: usize) -> LoopState {
        self.teller.hub.env.within(|| self.state_now(most))
    }

    fn state_now(&self, most: usize) -> LoopState {
        let probes = &self.teller.hub.probes;
        let mut caches: Vec<_> = probes.caches().iter().map(|(id, cache)| cache.state(*id)).collect();
        caches.sort_by(|a, b| (&a.resource, a.id).cmp(&(&b.resource, b.id)));
        let mut queues: Vec<_> = probes.queues().iter().map(|queue| queue.state(most)).collect();
        queues.sort_by(|a, b| a.queue.cmp(&b.queue));
        let mut controllers: Vec<_> =
            probes.controllers().iter().map(|controller| controller.state()).collect();
        controllers.sort_by(|a, b| a.controller.cmp(&b.controller));
        LoopState { caches, queues, controllers }
    }

    /// The keys of the objects in a cache ([`CacheState::id`]), in no order; none if there is no such cache.
    pub fn cached_keys(&self, id: u64) -> Option<Vec<ObjectKey>> {
        self.cache(id).map(|cache| cache.keys())
    }

    /// Objects of a cache, those that are still there.
    pub fn cached(&self, id: u64, keys: &[ObjectKey]) -> Vec<Cached> {
        let Some(cache) = self.cache(id) else { return Vec::new() };
        keys.iter().map(|key| Cached { key: key.to_string(), version: cache.version(key) }).collect()
    }

    fn cache(&self, id: u64) -> Option<Arc<dyn CacheProbe>> {
        let caches = self.teller.hub.probes.caches();
        caches.into_iter().find(|(other, _)| *other == id).map(|(_, cache)| cache)
    }

    /// A number for a cache, another one each time.
    pub(crate) fn next_cache(&self) -> u64 {
        let mut all = self.teller.hub.probes.0.lock();
        all.next_id += 1;
        all.next_id
    }

    pub(crate) fn add_cache(&self, id: u64, cache: Weak<dyn CacheProbe>) {
        let mut all = self.teller.hub.probes.0.lock();
        all.caches.retain(|(_, cache)| cache.strong_count() > 0);
        all.caches.push((id, cache));
    }

    pub(crate) fn add_queue(&self, queue: Weak<dyn QueueProbe>) {
        let mut all = self.teller.hub.probes.0.lock();
        all.queues.retain(|queue| queue.strong_count() > 0);
        all.queues.push(queue);
    }

    pub(crate) fn add_controller(&self, controller: Weak<dyn ControllerProbe>) {
        let mut all = self.teller.hub.probes.0.lock();
        all.controllers.retain(|controller| controller.strong_count() > 0);
        all.controllers.push(controller);
    }
}

mod optional_nanoseconds {
    use std::time::Duration;

    use serde::Serializer;

    pub(super) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => super::nanoseconds::serialize(time, serializer),
            None => serializer.serialize_none(),
        }
    }
}
