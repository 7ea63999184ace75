//! What is counted about etcd.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::super::{RemoteStats, Requests, Revision};
use super::lease::Leases;

/// What a request does, in kube-apiserver's words where it has some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Get,
    Create,
    Update,
    Delete,
    List,
    Watch,
    Revision,
    Lease,
    Compact,
}

const OPERATIONS: [(Operation, &str); 9] = [
    (Operation::Get, "get"),
    (Operation::Create, "create"),
    (Operation::Update, "update"),
    (Operation::Delete, "delete"),
    (Operation::List, "list"),
    (Operation::Watch, "watch"),
    (Operation::Revision, "getCurrentResourceVersion"),
    (Operation::Lease, "lease"),
    (Operation::Compact, "compact"),
];

impl Operation {
    /// Whether doing it twice is as good as once.
    pub(super) fn is_read(self) -> bool {
        !matches!(self, Operation::Create | Operation::Update | Operation::Delete | Operation::Compact)
    }
}

#[derive(Debug, Default)]
pub(super) struct Measured {
    requests: [Counted; OPERATIONS.len()],
    restarts: AtomicU64,
    compactions: AtomicU64,
    place: Mutex<Place>,
}

#[derive(Debug, Default)]
struct Counted {
    count: AtomicU64,
    errors: AtomicU64,
    micros: AtomicU64,
}

/// How far etcd was heard to be, and how far the copy is.
#[derive(Debug, Default)]
struct Place {
    heard: Revision,
    applied: Revision,
    /// Since when the copy is behind.
    behind: Option<Instant>,
    lag: Duration,
}

impl Measured {
    pub(super) fn request(&self, operation: Operation, took: Duration, is_ok: bool) {
        let at = OPERATIONS.iter().position(|(known, _)| *known == operation).unwrap_or(0);
        let counted = &self.requests[at];
        counted.count.fetch_add(1, Relaxed);
        counted.errors.fetch_add(u64::from(!is_ok), Relaxed);
        counted.micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Relaxed);
    }

    pub(super) fn lost(&self) {
        self.restarts.fetch_add(1, Relaxed);
    }

    pub(super) fn compacted(&self) {
        self.compactions.fetch_add(1, Relaxed);
    }

    /// etcd was at a revision.
    pub(super) fn heard(&self, revision: Revision, now: Instant) {
        let mut place = self.place.lock();
        place.heard = place.heard.max(revision);
        if place.heard > place.applied && place.behind.is_none() {
            place.behind = Some(now);
        }
    }

    /// The copy is at a revision.
    pub(super) fn applied(&self, revision: Revision, now: Instant) {
        let mut place = self.place.lock();
        place.applied = place.applied.max(revision);
        let since = place.behind.map_or(Duration::ZERO, |since| now.duration_since(since));
        place.lag = since;
        if place.applied >= place.heard {
            place.behind = None;
        }
    }

    pub(super) fn stats(&self, leases: &Leases) -> RemoteStats {
        let requests = OPERATIONS.iter().zip(&self.requests).map(|((_, operation), counted)| Requests {
            operation,
            count: counted.count.load(Relaxed),
            errors: counted.errors.load(Relaxed),
            seconds: Duration::from_micros(counted.micros.load(Relaxed)).as_secs_f64(),
        });
        let place = self.place.lock();
        RemoteStats {
            requests: requests.collect(),
            watch_restarts: self.restarts.load(Relaxed),
            compactions: self.compactions.load(Relaxed),
            leases: leases.granted.load(Relaxed),
            leased_objects: leases.attached.load(Relaxed),
            lag_revisions: place.heard.saturating_sub(place.applied),
            lag_seconds: place.lag.as_secs_f64(),
        }
    }
}
