//! The bounded history of a store: what watchers read, and what makes lists at past revisions possible.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::{Record, Revision};

/// How much history a store keeps at most. Older events go first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub events: usize,
    pub bytes: usize,
}

impl Default for Limits {
    /// Minutes of history for a busy server, and never more than 64 MiB of values.
    fn default() -> Limits {
        Limits { events: 100_000, bytes: 64 << 20 }
    }
}

/// One committed change.
#[derive(Debug)]
pub(crate) struct Event {
    /// The record as it is now; for a delete, its last state at the revision of the delete.
    pub record: Arc<Record>,
    /// The record as it was before.
    pub previous: Option<Arc<Record>>,
    /// Whether the record was removed.
    pub deleted: bool,
    /// The record in protobuf, worked out when a watcher first asks; none if it has no such form.
    pub protobuf: OnceLock<Option<Bytes>>,
}

impl Event {
    pub(crate) fn revision(&self) -> Revision {
        self.record.revision
    }

    /// What the event adds to the bytes that history holds.
    fn weight(&self) -> usize {
        // The previous value is either another event's record or was live until now.
        self.record.value.len() + self.record.path.len()
    }
}

/// The events of one collection, oldest first.
#[derive(Debug, Default)]
pub(super) struct Log {
    events: VecDeque<Arc<Event>>,
    /// The newest event that is forgotten: whoever has seen this collection up to here misses nothing.
    forgotten: Revision,
}

impl Log {
    /// The events after `revision`, oldest first.
    pub(super) fn after(&self, revision: Revision) -> impl ExactSizeIterator<Item = &Arc<Event>> {
        let start = self.events.partition_point(|event| event.revision() <= revision);
        self.events.range(start..)
    }

    pub(super) fn forgotten(&self) -> Revision {
        self.forgotten
    }

    /// Takes over what an earlier run had forgotten.
    pub(super) fn restore_forgotten(&mut self, revision: Revision) {
        self.forgotten = revision;
    }

    pub(super) fn first_revision(&self) -> Option<Revision> {
        self.events.front().map(|event| event.revision())
    }
}

/// The order of all events over all collections, and the bounds on them.
#[derive(Debug)]
pub(super) struct Bounds {
    limits: Limits,
    /// Which collection each remembered event belongs to, oldest first.
    order: VecDeque<Arc<str>>,
    bytes: usize,
}

impl Bounds {
    pub(super) fn new(limits: Limits) -> Bounds {
        Bounds { limits, order: VecDeque::new(), bytes: 0 }
    }

    pub(super) fn events(&self) -> usize {
        self.order.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends an event to its collection's log.
    pub(super) fn push(&mut self, collection: &Arc<str>, log: &mut Log, event: Event) {
        self.bytes += event.weight();
        self.order.push_back(Arc::clone(collection));
        log.events.push_back(Arc::new(event));
    }

    /// The collection whose oldest event must go for the limits to hold.
    pub(super) fn excess(&self) -> Option<Arc<str>> {
        let over = self.order.len() > self.limits.events || self.bytes > self.limits.bytes;
        self.order.front().filter(|_| over).cloned()
    }

    /// The collection of the oldest event.
    pub(super) fn oldest(&self) -> Option<Arc<str>> {
        self.order.front().cloned()
    }

    /// Forgets the oldest event of all, which is the oldest of `log`.
    pub(super) fn forget_oldest(&mut self, log: &mut Log) -> Arc<Event> {
        let event = log.events.pop_front().expect("each entry of the order has an event in its log");
        self.order.pop_front();
        self.bytes -= event.weight();
        log.forgotten = event.revision();
        event
    }
}
