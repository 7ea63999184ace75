//! Times in the form that Go gives them.

use std::fmt::Write as _;

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime, date};

/// The two time types of the API.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Precision {
    /// `meta.v1.Time`.
    Seconds,
    /// `meta.v1.MicroTime`, which insists on six digits.
    Micros,
}

impl Precision {
    /// The layout in Go's notation, which its errors quote.
    fn layout(self) -> &'static str {
        match self {
            Self::Seconds => "2006-01-02T15:04:05Z07:00",
            Self::Micros => "2006-01-02T15:04:05.000000Z07:00",
        }
    }
}

const EPOCH: DateTime = date(1970, 1, 1).at(0, 0, 0, 0);
/// Go's zero time, which JSON has as null.
const ZERO: DateTime = date(1, 1, 1).at(0, 0, 0, 0);
pub(crate) const ZERO_SECONDS: i64 = -62_135_596_800;

/// Parses a time as Go's `time.Parse` does and writes it in UTC; `None` for Go's zero time.
/// The error is Go's message.
pub(crate) fn normalize(text: &str, precision: Precision) -> Result<Option<String>, String> {
    let time = Parser { text, rest: text, precision }.time()?;
    Ok((time != ZERO).then(|| format(time, precision)))
}

/// Writes a protobuf timestamp; `None` for Go's zero time. An error is a time outside the calendar.
pub(crate) fn from_unix(seconds: i64, nanos: i32, precision: Precision) -> Result<Option<String>, ()> {
    let nanos = match precision {
        Precision::Seconds => 0,
        Precision::Micros => i64::from(nanos) / 1000 * 1000,
    };
    let since = SignedDuration::from_secs(seconds).checked_add(SignedDuration::from_nanos(nanos)).ok_or(())?;
    let time = EPOCH.checked_add(since).map_err(|_| ())?;
    Ok((time != ZERO).then(|| format(time, precision)))
}

/// A time as JSON has it, without memory of its own.
#[derive(Clone, Copy)]
pub(crate) struct Text {
    bytes: [u8; 27],
    length: u8,
}

impl Text {
    /// The same as [`from_unix`].
    pub(crate) fn from_unix(seconds: i64, nanos: i32, precision: Precision) -> Result<Option<Text>, ()> {
        if !RANGE.contains(&seconds) || !(0..1_000_000_000).contains(&nanos) {
            let text = from_unix(seconds, nanos, precision)?;
            return text.map(|text| Text::copy(text.as_bytes()).ok_or(())).transpose();
        }
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        let mut text = *b"0000-00-00T00:00:00.000000Z";
        digits(&mut text[0..4], year);
        digits(&mut text[5..7], month);
        digits(&mut text[8..10], day);
        digits(&mut text[11..13], second / 3600);
        digits(&mut text[14..16], second / 60 % 60);
        digits(&mut text[17..19], second % 60);
        if precision == Precision::Micros {
            digits(&mut text[20..26], i64::from(nanos) / 1000);
            return Ok(Some(Text { bytes: text, length: 27 }));
        }
        text[19] = b'Z';
        Ok(Some(Text { bytes: text, length: 20 }))
    }

    fn copy(text: &[u8]) -> Option<Text> {
        let mut bytes = [0; 27];
        bytes.get_mut(..text.len())?.copy_from_slice(text);
        Some(Text { bytes, length: text.len() as u8 })
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or_default()
    }
}

/// From the year 2 to the end of the year 9998: whatever reads times reads these, and none is Go's zero time.
pub(crate) const RANGE: std::ops::RangeInclusive<i64> = -62_104_060_800..=253_370_764_799;

/// Writes a number that has at most as many digits as there is room for.
fn digits(room: &mut [u8], mut number: i64) {
    for digit in room.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// The year, month and day so many days after 1970-01-01, for times in [`RANGE`].
///
/// Years are counted from March on, so that a leap day is the last day of its year.
fn civil(days: i64) -> (i64, i64, i64) {
    // Days since 0000-03-01, in cycles of 400 years.
    let days = days + 719_468;
    let (cycle, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    (cycle * 400 + year, month, day)
}

/// The protobuf timestamp of a time that [`normalize`] wrote.
pub(crate) fn to_unix(text: &str, precision: Precision) -> Result<(i64, i32), String> {
    if precision == Precision::Seconds
        && let Some(seconds) = seconds_of(text.as_bytes())
    {
        return Ok((seconds, 0));
    }
    let time = Parser { text, rest: text, precision }.time()?;
    let since = time.duration_since(EPOCH);
    let nanos = i64::from(time.subsec_nanosecond());
    Ok((since.as_secs() - i64::from(since.subsec_nanos() < 0), nanos as i32))
}

/// The seconds since 1970 of a time that is written as [`Text`] writes it. `None` if it is another form, or perhaps no time.
fn seconds_of(text: &[u8]) -> Option<i64> {
    let text: &[u8; 20] = text.try_into().ok()?;
    let number = |range: std::ops::Range<usize>| {
        text[range]
            .iter()
            .try_fold(0, |number, byte| byte.is_ascii_digit().then(|| number * 10 + i64::from(byte - b'0')))
    };
    let punctuation = [text[4], text[7], text[10], text[13], text[16], text[19]];
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    // The last days of the months are left to who knows them.
    let is_time = punctuation == *b"--T::Z"
        && (1..=12).contains(&month)
        && (1..=28).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    is_time.then(|| days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// How many days after 1970-01-01 a day is: [`civil`] turned round.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (cycle, year) = (year.div_euclid(400), year.rem_euclid(400));
    cycle * 146_097 + 365 * year + year / 4 - year / 100 + (153 * month + 2) / 5 + day - 1 - 719_468
}

fn format(time: DateTime, precision: Precision) -> String {
    let mut text = String::with_capacity(27);
    let (year, month, day) = (time.year(), time.month(), time.day());
    let (hour, minute, second) = (time.hour(), time.minute(), time.second());
    let written = write!(text, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    let written = written.and_then(|()| match precision {
        Precision::Seconds => Ok(()),
        Precision::Micros => write!(text, ".{:06}", time.subsec_nanosecond() / 1000),
    });
    debug_assert!(written.is_ok(), "writing to a string succeeds");
    text.push('Z');
    text
}

/// Reads one of the two layouts. Each step names the piece of the layout that it expects, since
/// Go's errors do.
struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    precision: Precision,
}

impl Parser<'_> {
    fn time(mut self) -> Result<DateTime, String> {
        let year = self.year()?;
        self.literal("-")?;
        let month = self.two_digits("01")?;
        self.in_range((1..=12).contains(&month), "month")?;
        self.literal("-")?;
        let day = self.two_digits("02")?;
        self.literal("T")?;
        let hour = self.hour()?;
        self.literal(":")?;
        let minute = self.two_digits("04")?;
        self.in_range(minute < 60, "minute")?;
        self.literal(":")?;
        let second = self.two_digits("05")?;
        self.in_range(second < 60, "second")?;
        let nanos = self.fraction()?;
        let offset = self.zone()?;
        if !self.rest.is_empty() {
            return Err(format!("parsing time {:?}: extra text: {:?}", self.text, self.rest));
        }
        let date = Date::new(year, month, day);
        self.in_range(date.is_ok(), "day")?;
        date.and_then(|date| {
            date.at(hour, minute, second, nanos).checked_sub(SignedDuration::from_secs(offset))
        })
        .map_err(|_| format!("parsing time {:?}: year out of range", self.text))
    }

    fn bad(&self, expected: &str) -> String {
        let (text, layout, rest) = (self.text, self.precision.layout(), self.rest);
        format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {expected:?}")
    }

    fn in_range(&self, holds: bool, what: &str) -> Result<(), String> {
        if holds { Ok(()) } else { Err(format!("parsing time {:?}: {what} out of range", self.text)) }
    }

    fn literal(&mut self, literal: &str) -> Result<(), String> {
        self.rest = self.rest.strip_prefix(literal).ok_or_else(|| self.bad(literal))?;
        Ok(())
    }

    /// The number that the first `length` characters are, if all of them are digits.
    fn digits(&self, length: usize) -> Option<u32> {
        let digits = self.rest.get(..length)?;
        if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
    }

    fn take(&mut self, length: usize, expected: &str) -> Result<u32, String> {
        let number = self.digits(length).ok_or_else(|| self.bad(expected))?;
        self.rest = &self.rest[length..];
        Ok(number)
    }

    fn year(&mut self) -> Result<i16, String> {
        // Four digits always fit.
        self.take(4, "2006").map(|year| year as i16)
    }

    fn two_digits(&mut self, expected: &str) -> Result<i8, String> {
        self.take(2, expected).map(|number| number as i8)
    }

    /// Go takes an hour of one digit.
    fn hour(&mut self) -> Result<i8, String> {
        let length = if self.digits(2).is_some() { 2 } else { 1 };
        let hour = self.take(length, "15")? as i8;
        self.in_range(hour < 24, "hour")?;
        Ok(hour)
    }

    /// The fraction in nanoseconds: exactly six digits of a MicroTime, any number of a Time.
    fn fraction(&mut self) -> Result<i32, String> {
        let fraction = self.rest.strip_prefix(['.', ',']);
        let digits = fraction.map_or(0, |rest| rest.bytes().take_while(u8::is_ascii_digit).count());
        let length = match self.precision {
            Precision::Micros if digits < 6 => return Err(self.bad(".000000")),
            Precision::Micros => 6,
            Precision::Seconds if digits == 0 => return Ok(0),
            Precision::Seconds => digits,
        };
        let nanos = self.rest[1..=length].bytes().chain(std::iter::repeat(b'0')).take(9);
        self.rest = &self.rest[1 + length..];
        Ok(nanos.fold(0, |nanos, digit| nanos * 10 + i32::from(digit - b'0')))
    }

    /// The offset from UTC in seconds.
    fn zone(&mut self) -> Result<i64, String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let bad = self.bad("Z07:00");
        let (sign, rest) = match self.rest.split_at_checked(1) {
            Some(("+", rest)) => (1, rest),
            Some(("-", rest)) => (-1, rest),
            _ => return Err(bad),
        };
        self.rest = rest;
        let hours = self.two_digits("").map_err(|_| bad.clone())?;
        self.literal(":").map_err(|_| bad.clone())?;
        let minutes = self.two_digits("").map_err(|_| bad)?;
        self.in_range(hours <= 24, "time zone offset hour")?;
        self.in_range(minutes <= 60, "time zone offset minute")?;
        Ok(sign * (i64::from(hours) * 3600 + i64::from(minutes) * 60))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_survives_the_way_through_protobuf() {
        for text in ["2024-02-29T12:34:56Z", "1969-12-31T23:59:59Z", "9999-12-31T23:59:59Z"] {
            let (seconds, nanos) = to_unix(text, Precision::Seconds).unwrap();
            assert_eq!(from_unix(seconds, nanos, Precision::Seconds).unwrap().as_deref(), Some(text));
        }
        for text in ["2024-02-29T12:34:56.123456Z", "1969-12-31T23:59:59.999999Z"] {
            let (seconds, nanos) = to_unix(text, Precision::Micros).unwrap();
            assert!(nanos >= 0, "nanoseconds count forward");
            assert_eq!(from_unix(seconds, nanos, Precision::Micros).unwrap().as_deref(), Some(text));
        }
    }

    #[test]
    fn the_short_way_to_seconds_is_as_good_as_the_long_one() {
        let mut short = 0;
        for seconds in (0..40_000).map(|n| n * 86_400 * 91 + n * 7919 - 62_167_219_200) {
            let Ok(Some(text)) = from_unix(seconds, 0, Precision::Seconds) else { continue };
            assert_eq!(to_unix(&text, Precision::Seconds), Ok((seconds, 0)), "{text}");
            short += usize::from(seconds_of(text.as_bytes()) == Some(seconds));
        }
        assert!(short > 30_000, "{short}");
        for text in
            ["2024-01-01T24:00:00Z", "2024-13-01T00:00:00Z", "2024-02-30T00:00:00Z", "2024-01-01 00:00:00Z"]
        {
            assert!(to_unix(text, Precision::Seconds).is_err(), "{text}");
        }
        assert_eq!(to_unix("2024-02-29T00:00:00.5Z", Precision::Seconds), Ok((1_709_164_800, 500_000_000)));
    }

    #[test]
    fn a_time_without_memory_is_the_same_time() {
        let edges = [*RANGE.start(), *RANGE.end(), ZERO_SECONDS, -62_167_219_200, 253_402_300_799, i64::MAX];
        let days = (0..20_000).map(|n| n * 86_400 * 179 + n - 62_104_060_800);
        for seconds in edges.into_iter().flat_map(|edge| [edge.saturating_sub(1), edge]).chain(days) {
            for (nanos, precision) in
                [(0, Precision::Seconds), (123_456_789, Precision::Micros), (-1, Precision::Micros)]
            {
                let text = Text::from_unix(seconds, nanos, precision);
                let text = text.map(|text| text.map(|text| text.as_str().to_owned()));
                assert_eq!(text, from_unix(seconds, nanos, precision), "{seconds}");
            }
        }
    }

    #[test]
    fn a_time_outside_the_calendar_is_an_error() {
        assert!(from_unix(i64::MAX, 0, Precision::Seconds).is_err());
        assert!(from_unix(i64::MIN, i32::MIN, Precision::Micros).is_err());
    }
}
