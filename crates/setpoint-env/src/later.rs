//! Time arithmetic that cannot panic.
//!
//! The operators of times panic when they leave the range of their type, and the number of seconds is often a user's.
//! `clippy.toml` bans them.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Thirty years: as good as never for a deadline, and in the range of every clock.
const NEVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// A point in time that saturates: beyond the range of its type it is the last, or the first, that the type has.
///
/// ```
/// use std::time::Duration;
///
/// use jiff::Timestamp;
/// use setpoint_env::Later;
///
/// assert_eq!(Timestamp::UNIX_EPOCH.later(Duration::from_secs(1)).as_second(), 1);
/// assert_eq!(Timestamp::UNIX_EPOCH.later(Duration::MAX), Timestamp::MAX);
/// assert_eq!(Timestamp::UNIX_EPOCH.earlier(Duration::MAX), Timestamp::MIN);
/// ```
pub trait Later: Sized {
    /// The moment that is so much later.
    #[must_use]
    fn later(self, by: Duration) -> Self;

    /// The moment that is so much earlier.
    #[must_use]
    fn earlier(self, by: Duration) -> Self;
}

impl Later for Timestamp {
    #[inline]
    fn later(self, by: Duration) -> Timestamp {
        let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
        self.checked_add(by).unwrap_or(Timestamp::MAX)
    }

    fn earlier(self, by: Duration) -> Timestamp {
        let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
        self.checked_sub(by).unwrap_or(Timestamp::MIN)
    }
}

/// A monotonic clock says nothing about the time before it started: the earliest moment is the moment itself.
impl Later for Instant {
    #[inline]
    fn later(self, by: Duration) -> Instant {
        self.checked_add(by).or_else(|| self.checked_add(NEVER)).unwrap_or(self)
    }

    fn earlier(self, by: Duration) -> Instant {
        self.checked_sub(by).unwrap_or(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_duration_leads_out_of_the_range_of_a_clock() {
        let now = Instant::now();
        assert_eq!(now.later(Duration::from_secs(1)).duration_since(now), Duration::from_secs(1));
        assert_eq!(now.later(Duration::MAX).duration_since(now), NEVER);
        assert!(now.later(Duration::MAX).later(Duration::MAX) > now);
        assert!(now.earlier(Duration::MAX) <= now);
        assert_eq!(Timestamp::MAX.later(Duration::from_nanos(1)), Timestamp::MAX);
        assert_eq!(Timestamp::MIN.earlier(Duration::from_nanos(1)), Timestamp::MIN);
    }
}
