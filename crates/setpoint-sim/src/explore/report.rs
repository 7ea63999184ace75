//! What an exploration says: a line while it runs, a table, and a report of each finding.

use std::fmt::{self, Write as _};
use std::io::{IsTerminal, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::story::{Line, Pair, Story};
use super::{Exploration, Finding};

/// How wide a column of a timeline is.
const COLUMN: usize = 78;
/// How many rows of a timeline are shown before the first difference.
const BEFORE: usize = 6;
/// How many rows of a timeline are shown in all; a page has all of them.
const ROWS: usize = 60;
/// How often the line is written anew.
const EVERY: Duration = Duration::from_millis(200);

/// Real time: how long an exploration takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(std::time::Instant);

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "how long it takes is a matter of real time")]
    pub(crate) fn start() -> Clock {
        Clock(std::time::Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// The line that says how far it is, if there is a terminal.
pub(crate) struct Progress {
    name: String,
    points: usize,
    runs: AtomicUsize,
    failed: AtomicUsize,
    clock: Clock,
    last: Mutex<Duration>,
    is_shown: bool,
}

impl Progress {
    pub(crate) fn new(name: &str, points: usize) -> Progress {
        Progress {
            name: name.to_owned(),
            points,
            runs: AtomicUsize::new(0),
            failed: AtomicUsize::new(0),
            clock: Clock::start(),
            last: Mutex::default(),
            is_shown: std::io::stderr().is_terminal(),
        }
    }

    pub(crate) fn ran(&self, has_failed: bool) {
        let runs = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        let failed =
            self.failed.fetch_add(usize::from(has_failed), Ordering::Relaxed) + usize::from(has_failed);
        let now = self.clock.elapsed();
        let Some(mut last) =
            self.last.try_lock().filter(|last| self.is_shown && now.saturating_sub(**last) >= EVERY)
        else {
            return;
        };
        *last = now;
        let rate = runs as f64 / now.as_secs_f64();
        let what = if runs <= self.points {
            format!("{runs} of {} points", self.points)
        } else {
            format!("{} points, {} runs with several faults", self.points, runs - self.points)
        };
        let _broken =
            write!(std::io::stderr(), "\r\x1b[K{}: {what}, {failed} failed, {rate:.0} runs/s", self.name);
    }

    pub(crate) fn end(&self) {
        if self.is_shown {
            let _broken = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

#[expect(clippy::print_stdout, reason = "a test says what it tried")]
pub(crate) fn print(text: &str) {
    println!("{text}");
}

/// The table: what was tried.
impl fmt::Display for Exploration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.took.as_secs_f64();
        let rate = self.runs as f64 / seconds.max(0.001);
        writeln!(f, "{}: {} runs in {seconds:.1} s ({rate:.0}/s)", self.name, self.runs)?;
        writeln!(f, "  {}", self.targets)?;
        for (kind, tried) in &self.tried {
            writeln!(f, "  {kind:<24} {:>6} tried {:>6} failed", tried.runs, tried.failed)?;
        }
        if self.several.runs > 0 {
            let (name, tried) = ("several at once", self.several);
            writeln!(f, "  {name:<24} {:>6} tried {:>6} failed", tried.runs, tried.failed)?;
        }
        Ok(())
    }
}

/// The reports of all findings.
pub(crate) fn all(exploration: &Exploration) -> String {
    let mut text = format!("{} of {} runs went wrong\n", exploration.findings.len(), exploration.runs);
    for finding in &exploration.findings {
        text.push('\n');
        if finding.report.is_empty() {
            let what: Vec<_> =
                finding.violations.iter().map(|violation| violation.oracle.to_string()).collect();
            let faults: Vec<_> = finding.faults.iter().map(ToString::to_string).collect();
            let _never = write!(text, "{}: {}", faults.join("; "), what.join("; "));
        } else {
            text.push_str(&finding.report);
        }
    }
    text
}

/// The report of one finding.
pub(crate) fn text(name: &str, finding: &Finding, without: &Story, with: &Story) -> String {
    let mut text = String::new();
    let _never = report(&mut text, name, finding, without, with);
    text
}

fn report(f: &mut String, name: &str, finding: &Finding, without: &Story, with: &Story) -> fmt::Result {
    writeln!(f, "── {name} ──")?;
    match finding.faults.as_slice() {
        [] => writeln!(f, "Without any fault:")?,
        faults => {
            writeln!(f, "With {}:", if faults.len() == 1 { "this fault" } else { "these faults" })?;
            faults.iter().try_for_each(|fault| writeln!(f, "  {fault}"))?;
        }
    }
    for violation in &finding.violations {
        writeln!(f, "{}", violation.oracle)?;
        violation.why.iter().take(12).try_for_each(|why| writeln!(f, "  {why}"))?;
        if violation.why.len() > 12 {
            writeln!(f, "  and {} more", violation.why.len() - 12)?;
        }
    }
    writeln!(f, "\n{:COLUMN$}   with the faults", "without faults")?;
    let pairs = without.beside(with);
    let first = pairs.iter().position(|pair| !matches!(pair, Pair::Both(..))).unwrap_or(pairs.len());
    let from = first.saturating_sub(BEFORE);
    if from > 0 {
        writeln!(f, "  … {from} that are the same")?;
    }
    for pair in pairs.iter().skip(from).take(ROWS) {
        match pair {
            Pair::Both(left, right) => writeln!(f, "{}   {}", cell(Some(left)), cell(Some(right)))?,
            Pair::Left(left) => writeln!(f, "{} < {}", cell(Some(left)), cell(None))?,
            Pair::Right(right) => writeln!(f, "{} > {}", cell(None), cell(Some(right)))?,
        }
    }
    if pairs.len() > from + ROWS {
        writeln!(f, "  … {} more", pairs.len() - from - ROWS)?;
    }
    if let Some(point) = finding.point {
        let test = name.rsplit("::").next().unwrap_or(name);
        writeln!(f, "\nTo see it again: SETPOINT_SIM_POINT={point} cargo test {test} -- --nocapture")?;
    }
    if !finding.faults.is_empty() {
        writeln!(f, "\nTo keep it as a test:\n\n{}", code(name, finding))?;
    }
    Ok(())
}

fn cell(line: Option<&&Line>) -> String {
    let text = line.map_or_else(String::new, ToString::to_string);
    let text: String = if text.chars().count() > COLUMN {
        text.chars().take(COLUMN - 1).chain(['…']).collect()
    } else {
        text
    };
    format!("{text:COLUMN$}")
}

/// The finding as a test.
pub(crate) fn code(name: &str, finding: &Finding) -> String {
    let called: String = name
        .rsplit("::")
        .next()
        .unwrap_or(name)
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    let faults: String =
        finding.faults.iter().map(|fault| format!("            {},\n", fault.code())).collect();
    format!(
        "    #[test]\n    fn {called}_found() {{\n        use setpoint_sim::{{Act, Effect, Fault, Interference, Match, Refusal, \
         Verb, replay}};\n        replay(scenario, [\n{faults}        ]);\n    }}\n"
    )
}
