//! Which time of the schedule is due, and when the next one is.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use setpoint::Event;
use setpoint_env::Later;

use super::Turn;
use super::schedule::Schedule;

/// Clocks differ a little: better a bit late than a bit early, which would be a turn for nothing.
const LATE: SignedDuration = SignedDuration::from_millis(100);
/// When a schedule without an end is looked at again.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// More missed times than these are worth a warning.
const MANY: i64 = 100;

/// What a look at the schedule says.
struct Missed {
    /// Where the look began.
    since: Timestamp,
    /// The last time that is not after now.
    last: Option<Timestamp>,
    /// About how many there were.
    number: i64,
}

impl Turn<'_> {
    /// The time that a Job shall be started for, if one is due: of several the last.
    pub(super) fn due(&self, schedule: &Schedule) -> Result<Option<Timestamp>, &'static str> {
        let missed = self.missed(schedule, true)?;
        if missed.last.is_some() && missed.number > MANY {
            let note = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            self.event(Event::warning("TooManyMissedTimes", note));
        }
        Ok(missed.last)
    }

    /// How long it is until the next time.
    pub(super) fn next(&self, schedule: &Schedule) -> SignedDuration {
        let from = match self.missed(schedule, false) {
            Err(_) => self.now,
            Ok(Missed { last: Some(last), .. }) => last,
            Ok(Missed { since, number: 0, .. }) => since,
            Ok(_) => self.now,
        };
        let next = schedule.next(from).unwrap_or(self.now.later(DAY));
        next.duration_since(self.now).saturating_add(LATE)
    }

    fn missed(&self, schedule: &Schedule, minds_deadline: bool) -> Result<Missed, &'static str> {
        let created = self.cron_job.metadata.creation_timestamp.as_ref().map_or(self.now, |time| time.0);
        let mut since = self.status.last_schedule_time.as_ref().map_or(created, |time| time.0);
        let deadline = self.cron_job.spec.starting_deadline_seconds.filter(|_| minds_deadline);
        if let Some(seconds) = deadline {
            // Nothing before that may be started any more.
            since = since.max(self.now.earlier(Duration::from_secs(seconds.max(0).unsigned_abs())));
        }
        let none = Missed { since, last: None, number: 0 };
        let Some(first) = schedule.next(since).filter(|first| *first <= self.now) else { return Ok(none) };
        let Some(second) = schedule.next(first).filter(|second| *second <= self.now) else {
            return Ok(Missed { last: Some(first), ..none });
        };
        let period = second.duration_since(first).as_secs();
        if period < 1 {
            return Err("time difference between two schedules is less than 1 second");
        }
        // An estimate, so that years of minutes are not counted one by one.
        let number = self.now.duration_since(first).as_secs() / period + 1;
        let mut last =
            first.later(Duration::from_secs((number - 2).max(0).saturating_mul(period).unsigned_abs()));
        let mut found = None;
        while let Some(next) = schedule.next(last).filter(|next| *next <= self.now) {
            (last, found) = (next, Some(next));
        }
        Ok(Missed { since, last: found, number })
    }
}
