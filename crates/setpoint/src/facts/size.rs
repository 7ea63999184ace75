//! How much memory a fact takes, about: what it shares with others is counted as its own.

use super::event::{Awaited, CacheChanges, CacheName, FieldChange};
use super::{Fact, LoopEvent, ReconcileResult, ReflectorState, WriteResult};
use crate::reasons::{Reason, Reasons};

impl LoopEvent {
    /// Its size in bytes.
    pub(super) fn size(&self) -> usize {
        let more = match self {
            LoopEvent::Reflector { cache, state } => cache.size() + state.size(),
            LoopEvent::Received { cache, changes, .. } | LoopEvent::Applied { cache, changes, .. } => {
                cache.size() + changes.size()
            }
            LoopEvent::Handler { resource, handler, .. } => resource.len() + handler.len(),
            LoopEvent::Added { queue, key, reason, .. } => queue.len() + key.as_str().len() + reason.size(),
            LoopEvent::Phase { queue, key, reasons, .. } => queue.len() + key.as_str().len() + reasons.size(),
            LoopEvent::Delayed { queue, key, .. } | LoopEvent::Released { queue, key, .. } => {
                queue.len() + key.as_str().len()
            }
            LoopEvent::Held { queue, key, until, .. } => {
                queue.len() + key.as_str().len() + until.iter().map(Awaited::size).sum::<usize>()
            }
            LoopEvent::QueueShutDown { queue } => queue.len(),
            LoopEvent::ReconcileStarted { controller, key, reasons, .. } => {
                controller.len() + key.as_str().len() + reasons.size()
            }
            LoopEvent::ReconcileEnded { controller, key, result, .. } => {
                controller.len() + key.as_str().len() + result.size()
            }
            LoopEvent::Write { controller, key, resource, object, manager, result, changed, .. } => {
                let changed: usize = changed.iter().flatten().map(FieldChange::size).sum();
                let object = object.as_ref().map_or(0, |object| object.as_str().len());
                let manager = manager.as_ref().map_or(0, |manager| manager.len());
                let names = controller.len() + key.as_str().len() + resource.len() + object + manager;
                names + result.size() + changed
            }
            LoopEvent::Finding { controller, key, .. } => {
                controller.len() + key.as_str().len() + size_of::<LoopEvent>()
            }
            LoopEvent::Work { controller, .. } => controller.len(),
            LoopEvent::Leadership { lease, identity, .. } => 2 * (lease.len() + identity.len()),
            LoopEvent::Missed { .. } => 0,
        };
        size_of::<Fact>() + more
    }
}

impl CacheName {
    fn size(&self) -> usize {
        self.resource.len() + self.namespace.as_ref().map_or(0, |namespace| namespace.len())
    }
}

impl CacheChanges {
    fn size(&self) -> usize {
        let one = |change: &super::CacheChange| size_of::<super::CacheChange>() + change.key.as_str().len();
        self.first.iter().map(one).sum()
    }
}

impl ReflectorState {
    fn size(&self) -> usize {
        match self {
            ReflectorState::Failed { error, .. } | ReflectorState::Panicked { error } => error.len(),
            _ => 0,
        }
    }
}

impl Awaited {
    fn size(&self) -> usize {
        size_of::<Awaited>()
            + self.cache.size()
            + self.object.as_ref().map_or(0, |object| object.as_str().len())
    }
}

impl ReconcileResult {
    fn size(&self) -> usize {
        match self {
            ReconcileResult::Failed { error } | ReconcileResult::FailedForGood { error } => error.len(),
            _ => 0,
        }
    }
}

impl WriteResult {
    fn size(&self) -> usize {
        match self {
            WriteResult::Refused { reason, .. } => reason.len(),
            _ => 0,
        }
    }
}

impl FieldChange {
    fn size(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        size_of::<FieldChange>() + self.path.len() + text(&self.before) + text(&self.after)
    }
}

impl Reason {
    fn size(&self) -> usize {
        let name = |name: &Option<super::Name>| name.as_ref().map_or(0, |name| name.len());
        let object = self.object.as_ref().map_or(0, |object| object.as_str().len());
        size_of::<Reason>() + name(&self.resource) + name(&self.manager) + object
    }
}

impl Reasons {
    fn size(&self) -> usize {
        self.detailed().iter().map(Reason::size).sum()
    }
}

impl Fact {
    /// How many bytes of memory it takes, about.
    pub fn size(&self) -> usize {
        self.event.size()
    }
}
