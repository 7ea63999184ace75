//! What an exploration says: a line while it runs, a table, and a report of each finding.

use std::fmt::{self, Write as _};
use std::io::{IsTerminal, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;

use super::settings::Settings;
use super::story::{Line, Pair, Story};
use super::{Exploration, Fault, Finding, Tried, Unreached};

/// How wide a column of a timeline is.
pub(crate) const COLUMN: usize = 78;
/// How many rows of a timeline are shown before the first difference.
const BEFORE: usize = 6;
/// How many rows of a timeline are shown in all; a page has all of them.
const ROWS: usize = 60;
/// How many points that were not reached are named; more are counted.
const NAMED: usize = 5;
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
            write!(f, "  {kind:<24} {:>6} tried {:>6} failed", tried.runs, tried.failed)?;
            match tried.unreached {
                0 => writeln!(f)?,
                n => writeln!(f, " {n:>6} not reached")?,
            }
        }
        if self.several.runs > 0 {
            let (name, tried) = ("several at once", self.several);
            let seed = self.seed;
            writeln!(f, "  {name:<24} {:>6} tried {:>6} failed (seed {seed})", tried.runs, tried.failed)?;
        }
        for Unreached { point, faults } in self.unreached.iter().take(NAMED) {
            let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
            writeln!(f, "  point {point} was not reached: {}", faults.join("; "))?;
        }
        if self.unreached.len() > NAMED {
            writeln!(f, "  and {} more points were not reached", self.unreached.len() - NAMED)?;
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
    let has_other_steps = finding.faults.iter().any(|fault| matches!(fault, Fault::Steps(_)));
    let (left, right) = if has_other_steps {
        ("as the scenario says", "the other way")
    } else {
        ("without faults", "with the faults")
    };
    writeln!(f, "\n{left:COLUMN$}   {right}")?;
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
        writeln!(f, "\nTo see it again: SETPOINT_SIM_POINT={point} {}", command(name))?;
    }
    if !finding.test.is_empty() {
        writeln!(f, "\nTo keep it as a test, beside this one:\n\n{}", finding.test)?;
    }
    Ok(())
}

/// How to search again as the seed has chosen.
pub(crate) fn again_with_several(name: &str, settings: &Settings) -> String {
    let (seed, budget) = (settings.seed, settings.budget.as_secs_f64());
    format!(
        "\nTo search again in the same way: SETPOINT_SIM_SEED={seed} SETPOINT_SIM_BUDGET={budget}s {}\n",
        command(name)
    )
}

/// The command that runs this test, and no other.
fn command(name: &str) -> String {
    let package = std::env::var("CARGO_PKG_NAME").ok();
    let program = std::env::current_exe().ok();
    let program = program.as_ref().and_then(|path| path.file_stem()?.to_str());
    command_of(name, package.as_deref(), program, std::thread::current().name())
}

/// `program` is what cargo has built: the name of a test target, or of a library, and a hash.
fn command_of(name: &str, package: Option<&str>, program: Option<&str>, thread: Option<&str>) -> String {
    let mut command = "cargo test".to_owned();
    package.iter().for_each(|package| command.push_str(&format!(" -p {package}")));
    if let Some((target, _hash)) = program.and_then(|program| program.rsplit_once('-')) {
        let is_library = package.is_some_and(|package| package.replace('-', "_") == target);
        command.push_str(&if is_library { " --lib".to_owned() } else { format!(" --test {target}") });
    }
    // An explorer may be called otherwise than its test.
    let test = thread.filter(|thread| *thread != "main").unwrap_or(name);
    command.push_str(&format!(" -- {test} --exact --include-ignored --nocapture"));
    command
}

/// A line of a table that others read: what was tried, as JSON.
pub(crate) fn row(file: &Path, exploration: &Exploration) {
    let kinds: Vec<_> = exploration
        .tried
        .iter()
        .map(|(kind, tried)| {
            let Tried { runs, failed, unreached } = tried;
            json!({"kind": kind.to_string(), "tried": runs, "failed": failed, "unreached": unreached})
        })
        .collect();
    let row = json!({
        "name": exploration.name,
        "points": exploration.tried.values().map(|tried| tried.runs).sum::<usize>(),
        "runs": exploration.runs,
        "several": exploration.several.runs,
        "unreached": exploration.unreached.len(),
        "seed": exploration.seed,
        "seconds": exploration.took.as_secs_f64(),
        "found": exploration.findings.len(),
        "kinds": kinds,
    });
    let file = std::fs::OpenOptions::new().create(true).append(true).open(file);
    let _written = file.and_then(|mut file| writeln!(file, "{row}"));
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

/// The finding as a test: one to paste, which imports what it names. `scenario` is the name of the function that was explored.
pub(crate) fn code(name: &str, scenario: &str, finding: &Finding) -> String {
    let called = as_identifier(name.rsplit("::").next().unwrap_or(name));
    let function = scenario.rsplit("::").next().unwrap_or(scenario);
    let (function, hint) = if as_identifier(function) == function {
        (function, "")
    } else {
        (
            "scenario",
            "        // Make a function `scenario` of the closure that `explore` gets, so that both can use it.\n",
        )
    };
    let faults: String =
        finding.faults.iter().map(|fault| format!("            {},\n", fault.code())).collect();
    let names = ["Act", "Effect", "Fault", "Interference", "Match", "Refusal", "Verb"];
    let used = |name: &&str| faults.contains(&format!("{name}::")) || faults.contains(&format!("{name} {{"));
    let imports: Vec<_> = names.into_iter().filter(used).chain(["replay"]).collect();
    format!(
        "    #[test]\n    fn {called}_found() {{\n        use setpoint_sim::{{{}}};\n{hint}        replay({function}, [\n{faults}        ]);\n    }}\n",
        imports.join(", ")
    )
}

fn as_identifier(text: &str) -> String {
    let mut name: String = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        name.insert(0, '_');
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_runs_one_test_of_one_program_also_if_it_is_ignored() {
        let command = command_of("a", Some("setpoint-cluster"), Some("explore-0a1b2c"), Some("order::set"));
        let wanted = "cargo test -p setpoint-cluster --test explore -- order::set --exact --include-ignored --nocapture";
        assert_eq!(command, wanted);
        let command =
            command_of("a", Some("widget-operator"), Some("widget_operator-0a1b2c"), Some("tests::a"));
        assert_eq!(
            command,
            "cargo test -p widget-operator --lib -- tests::a --exact --include-ignored --nocapture"
        );
    }
}
