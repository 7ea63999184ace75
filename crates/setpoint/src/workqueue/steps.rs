//! The steps of keys on their way through a queue, for those who listen.

use std::fmt;
use std::time::Duration;

use super::holds::Until;
use super::phase::Phase;
use super::reasons::{Cause, Reason, Reasons};

/// What happened to a key, or to the queue.
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

/// Tells the steps; nothing if nobody could listen.
pub(super) struct Steps<K>(pub(super) Option<TellFn<K>>);

impl<K> Steps<K> {
    #[cold]
    pub(super) fn tell(tell: &TellFn<K>, key: Option<&K>, step: Step<'_>) {
        if let Some(key) = key {
            tell(Some((key, step)));
        }
    }
}

impl<K> fmt::Debug for Steps<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Steps")
    }
}
