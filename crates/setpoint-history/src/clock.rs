//! The clock of a history.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use crate::object::Moment;

/// Gives each start and each end a moment of its own, in the order in which they happen.
///
/// It follows tokio's clock. Where time stands still it counts on, so that order is never lost.
#[derive(Debug)]
pub(crate) struct Clock {
    origin: Instant,
    last: AtomicU64,
}

impl Clock {
    /// A clock that begins now.
    #[must_use]
    pub(crate) fn start() -> Clock {
        Clock { origin: Instant::now(), last: AtomicU64::new(0) }
    }

    /// Later than every moment before.
    pub(crate) fn now(&self) -> Moment {
        let passed = u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let next = |last: Moment| passed.max(last.saturating_add(1));
        // One total order is what makes "ended before the other began" mean something.
        let update = self.last.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |last| Some(next(last)));
        update.map_or(passed, next)
    }
}
