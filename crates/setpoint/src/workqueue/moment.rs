//! Time as the queue's state keeps it: small, and without a clock.

use std::num::NonZeroU64;
use std::time::Duration;

use setpoint_env::Later;
use tokio::time::Instant;

/// Nanoseconds since an instant that the queue was made at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(NonZeroU64);

impl Moment {
    /// The moment of `instant`. Five centuries from `origin` is the latest one.
    #[inline]
    pub(super) fn new(origin: Instant, instant: Instant) -> Moment {
        let nanos = instant.saturating_duration_since(origin).as_nanos();
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        Moment(NonZeroU64::MIN.saturating_add(nanos))
    }

    pub(super) fn instant(self, origin: Instant) -> Instant {
        origin.later(Duration::from_nanos(self.0.get() - 1))
    }

    /// The time from `earlier` to this moment.
    pub(super) fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }

    pub(super) fn nanos_since(self, earlier: Moment) -> u64 {
        self.0.get().saturating_sub(earlier.0.get())
    }
}
