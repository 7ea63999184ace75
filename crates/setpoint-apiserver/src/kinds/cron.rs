//! The schedules of cron jobs: five fields, or a word such as `@daily`. Errors read as those of the Go library
//! that kube-apiserver parses them with.

/// What is wrong with a schedule, if anything.
pub(super) fn check(schedule: &str) -> Result<(), String> {
    if schedule.is_empty() {
        return Err("empty spec string".to_owned());
    }
    let mut rest = schedule;
    if let Some(zone) = rest.strip_prefix("TZ=").or_else(|| rest.strip_prefix("CRON_TZ=")) {
        let Some((zone, after)) = zone.split_once(' ') else {
            return Err("invalid schedule format: runtime error: slice bounds out of range [:-1]".to_owned());
        };
        if !super::cron_job::is_time_zone(zone) {
            return Err(format!("provided bad location {zone}: unknown time zone {zone}"));
        }
        rest = after.trim();
    }
    if rest.starts_with('@') {
        return check_word(rest);
    }
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let found = fields.len();
        return Err(format!("expected exactly 5 fields, found {found}: [{}]", fields.join(" ")));
    }
    for (text, field) in fields.iter().zip(&FIELDS) {
        for range in text.split(',').filter(|range| !range.is_empty()) {
            field.check(range)?;
        }
    }
    Ok(())
}

struct Field {
    min: u64,
    max: u64,
    /// Names of values, the first for `min`.
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field { min: 0, max: 59, names: &[] },
    Field { min: 0, max: 23, names: &[] },
    Field { min: 1, max: 31, names: &[] },
    Field {
        min: 1,
        max: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    Field { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

impl Field {
    /// `*`, `5`, `1-5`, `*/2`, `1-5/2`.
    fn check(&self, range: &str) -> Result<(), String> {
        let parts: Vec<&str> = range.split('/').collect();
        let ends: Vec<&str> = parts[0].split('-').collect();
        let (start, mut end) = match ends.as_slice() {
            ["*" | "?", ..] => (self.min, self.max),
            [one] => (self.value(one)?, self.value(one)?),
            [low, high] => (self.value(low)?, self.value(high)?),
            _ => {
                self.value(ends[0])?;
                return Err(format!("too many hyphens: {range}"));
            }
        };
        let step = match parts.as_slice() {
            [_] => 1,
            [_, step] => {
                let step = number(step)?;
                if ends.len() == 1 {
                    end = self.max;
                }
                step
            }
            _ => return Err(format!("too many slashes: {range}")),
        };
        let Field { min, max, .. } = self;
        if start < *min {
            return Err(format!("beginning of range ({start}) below minimum ({min}): {range}"));
        }
        if end > *max {
            return Err(format!("end of range ({end}) above maximum ({max}): {range}"));
        }
        if start > end {
            return Err(format!("beginning of range ({start}) beyond end of range ({end}): {range}"));
        }
        if step == 0 {
            return Err(format!("step of range should be a positive number: {range}"));
        }
        Ok(())
    }

    fn value(&self, text: &str) -> Result<u64, String> {
        let named = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        named.map_or_else(|| number(text), |at| Ok(at as u64 + self.min))
    }
}

fn number(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"
        ));
    }
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Err(format!("negative number ({number}) not allowed: {text}")),
        Ok(number) => Ok(number.unsigned_abs()),
        Err(_) => Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {text:?}: value out of range"
        )),
    }
}

fn check_word(word: &str) -> Result<(), String> {
    match word {
        "@yearly" | "@annually" | "@monthly" | "@weekly" | "@daily" | "@midnight" | "@hourly" => Ok(()),
        _ => match word.strip_prefix("@every ") {
            Some(duration) => {
                check_duration(duration).map_err(|error| format!("failed to parse duration {word}: {error}"))
            }
            None => Err(format!("unrecognized descriptor: {word}")),
        },
    }
}

/// A duration as Go writes it: `1h30m`.
fn check_duration(text: &str) -> Result<(), String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Ok(());
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        if number.matches('.').count() > 1 || !number.bytes().any(|byte| byte.is_ascii_digit()) {
            return Err(invalid());
        }
        let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        match unit {
            "" => return Err(format!("time: missing unit in duration {text:?}")),
            "ns" | "us" | "µs" | "μs" | "ms" | "s" | "m" | "h" => {}
            unit => return Err(format!("time: unknown unit {unit:?} in duration {text:?}")),
        }
        rest = after;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_as_people_write_them() {
        for good in [
            "* * * * *",
            "*/5 0-23/2 1,15 jan-MAR mon",
            "0 0 ? * 0",
            "@daily",
            "@every 1h30m",
            "5/15 * * * *",
            "CRON_TZ=Europe/Berlin 0 0 * * *",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn errors_read_as_those_of_the_go_library() {
        let check = |schedule: &str, error: &str| assert_eq!(super::check(schedule), Err(error.to_owned()));
        check("* * * *", "expected exactly 5 fields, found 4: [* * * *]");
        check("60 * * * *", "end of range (60) above maximum (59): 60");
        check("* * 0 * *", "beginning of range (0) below minimum (1): 0");
        check("* * * * 7", "end of range (7) above maximum (6): 7");
        check("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1");
        check("1-2-3 * * * *", "too many hyphens: 1-2-3");
        check("*/0 * * * *", "step of range should be a positive number: */0");
        check("a * * * *", "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax");
        check("@often", "unrecognized descriptor: @often");
        check("@every 5", "failed to parse duration @every 5: time: missing unit in duration \"5\"");
        check("TZ=Mars/Phobos * * * * *", "provided bad location Mars/Phobos: unknown time zone Mars/Phobos");
    }

    proptest::proptest! {
        #[test]
        fn no_schedule_makes_it_panic(schedule in "\\PC{0,40}") {
            let _ = check(&schedule);
        }
    }
}
