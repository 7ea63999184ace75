//! Reading history as it grows.

use std::sync::Arc;

use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;

use super::{Event, ReadError, Revision};
use crate::extension::Failure;

/// What a watch reads from: an engine's shared history of one collection.
pub(crate) trait Feed: Send + Sync {
    /// The events after `after`, at most `limit`, and the revision up to which they are complete.
    fn read(&self, after: Revision, limit: usize) -> Result<Batch, ReadError>;
}

/// Some consecutive events.
#[derive(Debug)]
pub(crate) struct Batch {
    pub events: Vec<Arc<Event>>,
    /// Every event of the collection up to this revision has been given out, with this batch.
    pub complete_to: Revision,
    /// Whether more events are there already.
    pub more: bool,
}

/// What somebody else than an engine has to tell: a change, or only that there was none up to a revision.
#[derive(Debug)]
pub(crate) struct Told {
    pub revision: Revision,
    pub event: Option<Arc<Event>>,
}

/// What a source tells, in order.
pub(crate) type Telling = BoxStream<'static, Result<Told, Failure>>;

/// A place in the history of one collection. It holds no events: it reads the engine's history on demand, or what a source
/// tells.
pub(crate) struct Watch {
    origin: Origin,
    position: Revision,
}

enum Origin {
    History {
        feed: Arc<dyn Feed>,
        changed: setpoint_env::watch::Receiver<Revision>,
        behind: bool,
    },
    /// The lock is never taken: it lets threads share a watch, of which only the one that reads it gets at the stream.
    Source {
        telling: Mutex<Telling>,
        next: Option<Result<Told, Failure>>,
        has_ended: bool,
    },
}

/// Bounds what one wake-up of a watcher copies.
const BATCH: usize = 256;

impl Watch {
    pub(crate) fn new(
        feed: Arc<dyn Feed>,
        changed: setpoint_env::watch::Receiver<Revision>,
        after: Revision,
    ) -> Watch {
        Watch { origin: Origin::History { feed, changed, behind: true }, position: after }
    }

    /// One of what a source tells after a revision.
    pub(crate) fn told(telling: Telling, after: Revision) -> Watch {
        Watch {
            origin: Origin::Source { telling: Mutex::new(telling), next: None, has_ended: false },
            position: after,
        }
    }

    /// The revision that this watch has read up to.
    pub(crate) fn position(&self) -> Revision {
        self.position
    }

    /// What has happened since the last call, without waiting; perhaps nothing.
    pub(crate) fn ready(&mut self) -> Result<Batch, ReadError> {
        let batch = match &mut self.origin {
            Origin::History { feed, changed, behind } => {
                // Seen before it is read: what is committed after the read wakes the next `changed`.
                changed.borrow_and_update();
                let batch = feed.read(self.position, BATCH)?;
                *behind = batch.more;
                batch
            }
            Origin::Source { telling, next, has_ended } => {
                let mut batch = Batch { events: Vec::new(), complete_to: self.position, more: false };
                while batch.events.len() < BATCH && !*has_ended {
                    let told = match next.take() {
                        Some(told) => Some(told),
                        None => match telling.get_mut().next().now_or_never() {
                            None => break,
                            Some(told) => told,
                        },
                    };
                    match told {
                        None => *has_ended = true,
                        // What came before a failure is told first.
                        Some(Err(failure)) if !batch.events.is_empty() => {
                            *next = Some(Err(failure));
                            break;
                        }
                        Some(told) => {
                            let Told { revision, event } = told?;
                            batch.complete_to = revision;
                            batch.events.extend(event);
                        }
                    }
                }
                batch.more = next.is_some();
                batch
            }
        };
        self.position = batch.complete_to;
        Ok(batch)
    }

    /// Whether the collection has changed since the last [`Watch::ready`].
    pub(crate) fn has_changed(&self) -> bool {
        match &self.origin {
            Origin::History { changed, behind, .. } => *behind || changed.has_changed().unwrap_or(false),
            Origin::Source { next, .. } => next.is_some(),
        }
    }

    /// Whether nothing will ever be told any more.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.origin, Origin::Source { has_ended: true, .. })
    }

    /// Waits until the collection has changed since the last [`Watch::ready`], or has nothing more to tell. Never returns
    /// when the store is gone.
    pub(crate) async fn changed(&mut self) {
        match &mut self.origin {
            Origin::History { changed, behind, .. } => {
                if !*behind && changed.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
            Origin::Source { telling, next, has_ended } => {
                if next.is_none() && !*has_ended {
                    *next = telling.get_mut().next().await;
                    *has_ended = next.is_none();
                }
            }
        }
    }
}
