//! A queue's steps as facts.

use std::sync::Arc;

use parking_lot::RwLock;

use super::holds::Until;
use super::steps::{Step, Steps};
use crate::facts::{Awaited, CacheName, Facts, LoopEvent, Name};
use crate::{ObjectKey, ResourceVersion};

/// The names of the sources that keys can be held for, by their numbers.
pub(crate) type SourceNames = Arc<RwLock<Vec<CacheName>>>;

/// Whom a queue tells what its keys do.
pub(super) struct Telling<K> {
    pub(super) facts: Facts,
    pub(super) queue: Name,
    pub(super) sources: SourceNames,
    pub(super) key: fn(&K) -> ObjectKey,
}

impl<K> Clone for Telling<K> {
    fn clone(&self) -> Telling<K> {
        let Telling { facts, queue, sources, key } = self;
        Telling { facts: facts.clone(), queue: queue.clone(), sources: sources.clone(), key: *key }
    }
}

impl<K: 'static> Telling<K> {
    /// Tells steps under the lock of the queue, in the order in which they happen. Who listens is woken later.
    pub(super) fn steps(&self) -> Steps<K> {
        let telling = self.clone();
        let tell = move |step: Option<(&K, Step<'_>)>| {
            let queue = telling.queue.clone();
            telling.facts.push(match step {
                Some((key, step)) => telling.event(queue, (telling.key)(key), step),
                None => LoopEvent::QueueShutDown { queue },
            });
        };
        Steps { listeners: self.facts.listeners(), tell: Box::new(tell) }
    }

    fn event(&self, queue: Name, key: ObjectKey, step: Step<'_>) -> LoopEvent {
        match step {
            Step::Added { reason, priority, is_coalesced } => {
                LoopEvent::Added { queue, key, reason: reason.clone(), priority, is_coalesced }
            }
            Step::Entered { phase, priority, reasons } => {
                LoopEvent::Phase { queue, key, phase, priority, reasons: reasons.clone() }
            }
            Step::Delayed { delay, cause } => LoopEvent::Delayed { queue, key, delay, cause },
            Step::Held { until, limit } => {
                let until = until.iter().map(|until| self.awaited(until)).collect();
                LoopEvent::Held { queue, key, until, limit }
            }
            Step::Released { waited, is_late } => LoopEvent::Released { queue, key, waited, is_late },
        }
    }

    pub(super) fn awaited(&self, until: &Until) -> Awaited {
        let (source, version, object) = match until {
            Until::Version { source, version, .. } => (*source, version, None),
            Until::Gone { source, what, after } => (*source, after, Some(ObjectKey::from(&*what.name))),
        };
        let cache = self.sources.read().get(source as usize).cloned();
        let cache = cache.unwrap_or_else(|| CacheName { resource: "unknown".into(), namespace: None, id: 0 });
        Awaited { cache, version: ResourceVersion::from(version.to_string().as_str()), object }
    }
}
