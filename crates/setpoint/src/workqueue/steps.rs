//! The steps of keys on their way through a queue, for those who listen.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::holds::Until;
use super::phase::Phase;
use super::reasons::{Cause, Reason, Reasons};

/// What happened to a key.
#[derive(Debug)]
pub(super) enum Step<'a> {
    Added { reason: &'a Reason, priority: i32, is_coalesced: bool },
    Entered { phase: Phase, priority: i32, reasons: &'a Reasons },
    Delayed { delay: Duration, cause: Cause },
    Held { until: &'a [Until], limit: Duration },
    Released { waited: Duration, is_late: bool },
}

/// Called under the lock of the queue. Without a key, the queue was shut down.
pub(super) type TellFn<K> = Box<dyn Fn(Option<(&K, Step<'_>)>) + Send + Sync>;

/// Where steps are told.
pub(super) struct Steps<K> {
    /// How many listen.
    pub(super) listeners: Arc<AtomicUsize>,
    pub(super) tell: TellFn<K>,
}

impl<K> Steps<K> {
    #[inline]
    pub(super) fn are_heard(&self) -> bool {
        self.listeners.load(Ordering::Relaxed) > 0
    }

    #[cold]
    pub(super) fn tell(&self, key: Option<&K>, step: Step<'_>) {
        if let Some(key) = key {
            (self.tell)(Some((key, step)));
        }
    }
}

impl<K> fmt::Debug for Steps<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Steps")
    }
}
