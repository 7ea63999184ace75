//! Reading history as it grows.

use std::sync::Arc;

use super::{Event, ReadError, Revision};

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

/// A place in the history of one collection. It holds no events: it reads the engine's history on demand.
pub(crate) struct Watch {
    feed: Arc<dyn Feed>,
    changed: tokio::sync::watch::Receiver<Revision>,
    position: Revision,
    behind: bool,
}

/// Bounds what one wake-up of a watcher copies.
const BATCH: usize = 256;

impl Watch {
    pub(crate) fn new(
        feed: Arc<dyn Feed>,
        changed: tokio::sync::watch::Receiver<Revision>,
        after: Revision,
    ) -> Watch {
        Watch { feed, changed, position: after, behind: true }
    }

    /// The revision that this watch has read up to.
    pub(crate) fn position(&self) -> Revision {
        self.position
    }

    /// What has happened since the last call, without waiting; perhaps nothing.
    pub(crate) fn ready(&mut self) -> Result<Batch, ReadError> {
        // Seen before it is read: what is committed after the read wakes the next `changed`.
        self.changed.borrow_and_update();
        let batch = self.feed.read(self.position, BATCH)?;
        self.position = batch.complete_to;
        self.behind = batch.more;
        Ok(batch)
    }

    /// Whether the collection has changed since the last [`Watch::ready`].
    pub(crate) fn has_changed(&self) -> bool {
        self.behind || self.changed.has_changed().unwrap_or(false)
    }

    /// Waits until the collection has changed since the last [`Watch::ready`]. Never returns when the store
    /// is gone.
    pub(crate) async fn changed(&mut self) {
        if !self.behind && self.changed.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
