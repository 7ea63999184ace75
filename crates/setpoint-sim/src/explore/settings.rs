//! What the environment says about an exploration.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use super::plan::PointKind;

const BUDGET: &str = "SETPOINT_SIM_BUDGET";
const SEED: &str = "SETPOINT_SIM_SEED";
const POINT: &str = "SETPOINT_SIM_POINT";
const KIND: &str = "SETPOINT_SIM_KIND";
const THREADS: &str = "SETPOINT_SIM_THREADS";
const REPORT: &str = "SETPOINT_SIM_REPORT";
const TABLE: &str = "SETPOINT_SIM_TABLE";

/// How an exploration is made, beside its scenario.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) budget: Duration,
    /// What the choice of several faults at once follows.
    pub(crate) seed: u64,
    pub(crate) threads: usize,
    /// The points that are tried, if it is not all.
    pub(crate) points: Option<Vec<usize>>,
    /// The one kind of points that is tried, if it is not all.
    pub(crate) kind: Option<PointKind>,
    /// Where pages go.
    pub(crate) reports: Option<PathBuf>,
    /// The file that gets a line for each exploration.
    pub(crate) table: Option<PathBuf>,
}

impl Settings {
    pub(crate) fn from_environment() -> Result<Settings, String> {
        Settings::new(|name| std::env::var(name).ok())
    }

    /// A value that says nothing would try nothing, and be green.
    fn new(variable: impl Fn(&str) -> Option<String>) -> Result<Settings, String> {
        let path = |name: &str| variable(name).map(PathBuf::from);
        let points = variable(POINT).map(|text| {
            let points: Result<Vec<usize>, String> =
                text.split(',').map(|point| number(POINT, point)).collect();
            points
        });
        let threads = variable(THREADS).map(|text| number::<usize>(THREADS, &text)).transpose()?;
        Ok(Settings {
            budget: variable(BUDGET).map_or(Ok(Duration::ZERO), |text| time(&text))?,
            seed: variable(SEED).map_or(Ok(1), |text| number(SEED, &text))?,
            threads: threads.unwrap_or_else(cores).max(1),
            points: points.transpose()?,
            kind: variable(KIND).map(|text| kind(&text)).transpose()?,
            reports: path(REPORT),
            table: path(TABLE),
        })
    }

    /// Whether this point is to be tried.
    pub(crate) fn wants(&self, index: usize, kind: PointKind) -> bool {
        self.points.as_ref().is_none_or(|points| points.contains(&index))
            && self.kind.is_none_or(|wanted| wanted == kind)
    }

    /// Whether some points are left out.
    pub(crate) fn is_part(&self) -> bool {
        self.points.is_some() || self.kind.is_some()
    }
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn number<T: FromStr<Err: Display>>(name: &str, text: &str) -> Result<T, String> {
    let text = text.trim();
    text.parse().map_err(|error| format!("{name}: {text:?} is no number: {error}"))
}

fn kind(text: &str) -> Result<PointKind, String> {
    let kinds = PointKind::ALL;
    kinds.into_iter().find(|kind| kind.to_string() == text).ok_or_else(|| {
        let known: Vec<_> = kinds.iter().map(|kind| format!("{:?}", kind.to_string())).collect();
        format!("{KIND}: there are no points of the kind {text:?}; write one of {}", known.join(", "))
    })
}

/// `500ms`, `60s`, `2m`, `1h` or, in seconds, `90`.
fn time(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => 0.001,
        "s" | "" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => f64::NAN,
    };
    let seconds = digits.parse::<f64>().unwrap_or(f64::NAN) * unit;
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| format!("{BUDGET}: {text:?} is no time; write it as 60s, 2m or 1h"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(name: &str, value: &str) -> Result<Settings, String> {
        Settings::new(|asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn a_value_that_says_nothing_is_refused_and_not_green() {
        let refused = [
            (POINT, "x", "\"x\" is no number"),
            (POINT, "3,", "\"\" is no number"),
            (KIND, "stale", "write one of \"crash before a write\""),
            (BUDGET, "1w", "60s, 2m or 1h"),
            (BUDGET, "", "60s, 2m or 1h"),
            (BUDGET, "-1s", "60s, 2m or 1h"),
            (THREADS, "many", "is no number"),
            (SEED, "", "is no number"),
            (SEED, "-7", "is no number"),
        ];
        for (name, value, why) in refused {
            let error = settings(name, value).expect_err(value);
            assert!(error.starts_with(name) && error.contains(why), "{name}={value}: {error}");
        }
    }

    #[test]
    fn a_seed_is_one_unless_it_is_set() {
        assert_eq!(settings(SEED, "7").expect("a seed").seed, 7);
        assert_eq!(settings(BUDGET, "1s").expect("a budget").seed, 1);
    }

    #[test]
    fn times_have_units() {
        let budget = |text: &str| settings(BUDGET, text).expect(text).budget;
        assert_eq!(budget("500ms"), Duration::from_millis(500));
        assert_eq!(budget("60s"), budget("60"));
        assert_eq!(budget("1.5m"), Duration::from_secs(90));
        assert_eq!(budget("1h"), Duration::from_secs(3600));
    }

    #[test]
    fn a_kind_is_called_as_the_table_calls_it() {
        for kind in PointKind::ALL {
            let settings = settings(KIND, &kind.to_string()).expect("a kind");
            assert!(settings.wants(0, kind) && settings.is_part());
        }
        let some = settings(POINT, "3, 5").expect("points");
        assert!(some.wants(5, PointKind::Conflict) && !some.wants(4, PointKind::Conflict));
    }
}
