//! Schedules: `*/5 9-17 * * mon-fri`, `@daily`, `@every 1h30m`, in a time zone.

use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan, Zoned};

/// A schedule that was understood.
#[derive(Clone, Debug)]
pub(super) enum Schedule {
    /// Whenever the clock shows a time that all fields have.
    Fields(Fields),
    /// Again and again after this time.
    Every(SignedDuration),
}

/// Sets of numbers, as bits.
#[derive(Clone, Debug)]
pub(super) struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// A day must be in both sets of days; otherwise one is enough.
    needs_both_days: bool,
    zone: TimeZone,
}

/// No schedule has a longer gap that ends: leap days on a certain weekday come at least so often.
const LONGEST_GAP_YEARS: i16 = 40;

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

impl Schedule {
    /// Reads a schedule; without a zone of its own it is in `zone`.
    pub(super) fn parse(text: &str, zone: &TimeZone) -> Result<Schedule, String> {
        let (mut text, mut zone) = (text, zone.clone());
        if let Some(own) = text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) {
            let (name, rest) = own.split_once(' ').ok_or("invalid schedule format")?;
            zone = super::find_zone(name)
                .ok_or_else(|| format!("provided bad location {name}: unknown time zone {name}"))?;
            text = rest.trim();
        }
        let fields = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            word if word.starts_with('@') => return every(word),
            fields => fields,
        };
        Fields::parse(fields, zone).map(Schedule::Fields)
    }

    /// The first time after this one; none if there is none for decades.
    pub(super) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Schedule::Every(period) => {
                Timestamp::from_second(after.as_second()).ok()?.checked_add(*period).ok()
            }
            Schedule::Fields(fields) => fields.next(after),
        }
    }
}

fn every(word: &str) -> Result<Schedule, String> {
    let text = word.strip_prefix("@every ").ok_or_else(|| format!("unrecognized descriptor: {word}"))?;
    let invalid = |error| format!("failed to parse duration {word}: {error}");
    let duration: SignedDuration = text.parse().map_err(|error: jiff::Error| invalid(error.to_string()))?;
    Ok(Schedule::Every(SignedDuration::from_secs(duration.as_secs().max(1))))
}

/// The numbers of a field, and whether it is a plain star.
fn field(text: &str, min: u64, max: u64, names: &[&str]) -> Result<(u64, bool), String> {
    let number = |text: &str| {
        let name = names.iter().position(|name| name.eq_ignore_ascii_case(text));
        match name {
            Some(place) => Ok(place as u64 + min),
            None => text.parse::<u64>().map_err(|_| format!("failed to parse int from {text}")),
        }
    };
    let (mut bits, mut is_star) = (0, false);
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(number(step)?)),
            None => (part, None),
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" || range == "?" => (min, max),
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(range)?, if step.is_some() { max } else { number(range)? }),
        };
        let step = step.unwrap_or(1);
        if first < min || last > max || first > last || step == 0 {
            return Err(format!("bad range: {part}"));
        }
        is_star |= matches!(range, "*" | "?") && step == 1;
        bits |= (first..=last)
            .step_by(usize::try_from(step).unwrap_or(usize::MAX))
            .fold(0, |bits, n| bits | 1 << n);
    }
    Ok((bits, is_star))
}

impl Fields {
    fn parse(text: &str, zone: TimeZone) -> Result<Fields, String> {
        let parts: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = parts.as_slice() else {
            let found = parts.len();
            return Err(format!("expected exactly 5 fields, found {found}: [{}]", parts.join(" ")));
        };
        let (days, any_day) = field(days, 1, 31, &[])?;
        let (weekdays, any_weekday) = field(weekdays, 0, 6, &WEEKDAYS)?;
        Ok(Fields {
            minutes: field(minutes, 0, 59, &[])?.0,
            hours: field(hours, 0, 23, &[])?.0,
            days,
            months: field(months, 1, 12, &MONTHS)?.0,
            weekdays,
            needs_both_days: any_day || any_weekday,
            zone,
        })
    }

    fn has_day(&self, date: Date) -> bool {
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        if self.needs_both_days { day && weekday } else { day || weekday }
    }

    /// Times that the clock skips, when summer begins, are skipped; those that it shows twice come twice.
    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let minute = after.as_second().div_euclid(60) + 1;
        let mut at = Timestamp::from_second(minute * 60).ok()?.to_zoned(self.zone.clone());
        let last_year = at.year().saturating_add(LONGEST_GAP_YEARS);
        while at.year() <= last_year {
            if !has(self.months, at.month()) {
                at = self.midnight(at.date().first_of_month().checked_add(1.month()).ok()?)?;
            } else if !self.has_day(at.date()) {
                at = self.midnight(at.date().tomorrow().ok()?)?;
            } else if !has(self.hours, at.hour()) {
                let into = SignedDuration::from_mins(at.minute().into());
                at = at.checked_add(SignedDuration::from_hours(1).saturating_sub(into)).ok()?;
            } else if !has(self.minutes, at.minute()) {
                at = at.checked_add(SignedDuration::from_mins(1)).ok()?;
            } else {
                return Some(at.timestamp());
            }
        }
        None
    }

    fn midnight(&self, date: Date) -> Option<Zoned> {
        date.to_datetime(Time::midnight()).to_zoned(self.zone.clone()).ok()
    }
}

fn has(bits: u64, number: i8) -> bool {
    u32::try_from(number).is_ok_and(|number| bits & (1 << number) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schedule: &str, zone: &str, after: &str, expected: &[&str]) {
        let zone = super::super::find_zone(zone).unwrap();
        let schedule = Schedule::parse(schedule, &zone).unwrap();
        let mut at: Timestamp = after.parse().unwrap();
        for expected in expected {
            at = schedule.next(at).unwrap();
            assert_eq!(at, expected.parse::<Timestamp>().unwrap());
        }
    }

    #[test]
    fn the_next_time_is_the_first_that_all_fields_have() {
        let start = "2026-01-01T00:00:30Z";
        check("* * * * *", "UTC", start, &["2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"]);
        check("*/20 9-10 * * *", "UTC", start, &["2026-01-01T09:00:00Z", "2026-01-01T09:20:00Z"]);
        check("30 8 * * mon-fri", "UTC", "2026-01-02T10:00:00Z", &["2026-01-05T08:30:00Z"]);
        check("0 0 29 2 *", "UTC", start, &["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]);
        check("@hourly", "UTC", start, &["2026-01-01T01:00:00Z"]);
        check("@weekly", "UTC", start, &["2026-01-04T00:00:00Z"]);
        check("@yearly", "UTC", start, &["2027-01-01T00:00:00Z"]);
        check("@every 90s", "UTC", start, &["2026-01-01T00:02:00Z"]);
    }

    #[test]
    fn with_two_sets_of_days_one_is_enough() {
        check(
            "0 0 13 * fri",
            "UTC",
            "2026-01-01T00:00:00Z",
            &["2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z", "2026-01-13T00:00:00Z"],
        );
    }

    #[test]
    fn zones_and_their_summers_are_minded() {
        check("0 9 * * *", "Europe/Berlin", "2026-01-01T00:00:00Z", &["2026-01-01T08:00:00Z"]);
        check("0 9 * * *", "Europe/Berlin", "2026-07-01T00:00:00Z", &["2026-07-01T07:00:00Z"]);
        check("TZ=Asia/Tokyo 0 9 * * *", "UTC", "2026-01-01T01:00:00Z", &["2026-01-02T00:00:00Z"]);
        // The clock goes from 2:00 to 3:00 on March 29.
        check("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", &["2026-03-30T00:30:00Z"]);
    }

    #[test]
    fn what_never_comes_is_told() {
        let never = Schedule::parse("0 0 31 2 *", &TimeZone::UTC).unwrap();
        assert_eq!(never.next("2026-01-01T00:00:00Z".parse().unwrap()), None);
    }

    #[test]
    fn bad_schedules_are_refused() {
        for bad in [
            "* * * *",
            "60 * * * *",
            "* * * * 7",
            "5-1 * * * *",
            "*/0 * * * *",
            "@often",
            "TZ=Mars/Phobos * * * * *",
        ] {
            assert!(Schedule::parse(bad, &TimeZone::UTC).is_err(), "{bad}");
        }
    }
}
