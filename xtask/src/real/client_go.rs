//! The suites of Go programs of ours, which print a line a check: `client-go` and `controller-runtime`.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

use super::process;
use super::report::Report;

/// A client of client-go.
pub(crate) const SUITE: &str = "client-go";
/// An operator on controller-runtime.
pub(crate) const OPERATOR: &str = "controller-runtime";

/// A program bounds each of its checks by 30 s, most take milliseconds.
const LIMIT: Duration = Duration::from_secs(600);

/// Runs the program of a suite and repeats its lines.
pub(crate) fn run(report: &mut Report, suite: &str, program: &Path, kubeconfig: &Path) {
    let begun = Instant::now();
    let verdicts = verdicts(program, kubeconfig, &[]);
    if let Err(error) = verdicts.and_then(|verdicts| repeat(report, suite, &verdicts)) {
        report.record(suite, "the program runs to its end", begun.elapsed(), Err(error));
    }
}

fn repeat(report: &mut Report, suite: &str, verdicts: &str) -> Result<()> {
    for line in verdicts.lines() {
        let Some(verdict) = Verdict::parse(line) else { bail!("not a verdict: {line:?}") };
        let outcome = verdict.failure.map_or(Ok(()), |why| Err(anyhow!("{why}")));
        if report.filter().takes(suite, verdict.name) {
            report.record(suite, verdict.name, verdict.took, outcome);
        }
    }
    Ok(())
}

/// What a program says to a server: a verdict a line, and one at least.
pub(crate) fn verdicts(program: &Path, kubeconfig: &Path, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    command.arg("--kubeconfig").arg(kubeconfig).args(arguments);
    let finished = process::run(command, None, LIMIT)?;
    if finished.stdout.trim().is_empty() {
        bail!("it checked nothing, ended with {}: {}", finished.status, finished.stderr.trim());
    }
    if !matches!(finished.status.code(), Some(0 | 1)) {
        bail!("it ended with {}: {}", finished.status, finished.stderr.trim());
    }
    Ok(finished.stdout)
}

/// `ok NAME (N ms)` or `FAIL NAME (N ms): why`.
struct Verdict<'a> {
    name: &'a str,
    took: Duration,
    failure: Option<&'a str>,
}

impl<'a> Verdict<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (word, rest) = line.split_once(' ')?;
        let (name, rest) = rest.split_once(" (")?;
        let (took, rest) = rest.split_once(" ms)")?;
        let took = Duration::from_millis(took.parse().ok()?);
        let failure = match word {
            "ok" => None,
            "FAIL" => Some(rest.trim_start_matches(": ")),
            _ => return None,
        };
        Some(Self { name, took, failure })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_read() {
        let good = Verdict::parse("ok pod get (12 ms)").unwrap();
        assert_eq!((good.name, good.took.as_millis(), good.failure), ("pod get", 12, None));
        let bad = Verdict::parse("FAIL pod get (3 ms): image: got a (b), want c").unwrap();
        assert_eq!((bad.name, bad.failure), ("pod get", Some("image: got a (b), want c")));
        assert!(Verdict::parse("panic: oh (1 ms)").is_none());
    }
}
