//! What a run says: one line a check, one line a skip, a summary.

use std::time::{Duration, Instant};

use anyhow::Result;

/// Which checks the user asked for.
#[derive(Default)]
pub(crate) struct Filter {
    only: Vec<String>,
}

impl Filter {
    pub(crate) fn new(only: &[String]) -> Self {
        Self { only: only.iter().map(|word| word.to_lowercase()).collect() }
    }

    /// `kubectl` takes every suite that starts so, `kubectl-1.37/scale` the
    /// checks of it whose name contains the rest.
    pub(crate) fn takes(&self, suite: &str, check: &str) -> bool {
        let taken = |word: &String| {
            let (suite_part, check_part) = word.split_once('/').unwrap_or((word, ""));
            suite.starts_with(suite_part) && check.to_lowercase().contains(check_part)
        };
        self.only.is_empty() || self.only.iter().any(taken)
    }

    /// Whether any check of this suite can be taken.
    pub(crate) fn takes_suite(&self, suite: &str) -> bool {
        let taken = |word: &String| suite.starts_with(word.split('/').next().unwrap_or(word));
        self.only.is_empty() || self.only.iter().any(taken)
    }

    /// Whether nothing but this suite is wanted: then nothing else has to be built.
    pub(crate) fn is_only(&self, suite: &str) -> bool {
        !self.only.is_empty() && self.only.iter().all(|word| word.split('/').next() == Some(suite))
    }
}

/// Counts and prints.
#[derive(Default)]
pub(crate) struct Report {
    filter: Filter,
    passed: usize,
    failures: Vec<String>,
    skipped: usize,
}

impl Report {
    pub(crate) fn new(filter: Filter) -> Self {
        Self { filter, ..Self::default() }
    }

    pub(crate) fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Runs one check and says how it went.
    pub(crate) fn check(&mut self, suite: &str, name: &str, run: impl FnOnce() -> Result<()>) {
        if !self.filter.takes(suite, name) {
            return;
        }
        let begun = Instant::now();
        let outcome = run();
        self.record(suite, name, begun.elapsed(), outcome);
    }

    pub(crate) fn record(&mut self, suite: &str, name: &str, took: Duration, outcome: Result<()>) {
        let took = took.as_millis();
        match outcome {
            Ok(()) => {
                self.passed += 1;
                println!("ok    {suite}: {name} ({took} ms)");
            }
            Err(error) => {
                println!("FAIL  {suite}: {name} ({took} ms)");
                for line in format!("{error:#}").lines() {
                    println!("      {line}");
                }
                self.failures.push(format!("{suite}: {name}"));
            }
        }
    }

    /// Says that a whole suite or one check cannot run here, and why.
    pub(crate) fn skip(&mut self, what: &str, why: &str) {
        self.skipped += 1;
        println!("skip  {what}: {why}");
    }

    /// A measurement, which neither passes nor fails.
    pub(crate) fn note(&self, suite: &str, text: &str) {
        println!("      {suite}: {text}");
    }

    /// Prints the summary; true if something was tried and nothing failed.
    pub(crate) fn finish(&self) -> bool {
        println!();
        if self.passed + self.failures.len() + self.skipped == 0 {
            println!("nothing has such a name: see --list");
            return false;
        }
        for failure in &self.failures {
            println!("failed: {failure}");
        }
        println!("{} passed, {} failed, {} skipped", self.passed, self.failures.len(), self.skipped);
        self.failures.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_names_a_suite_or_a_check_of_it() {
        let filter = Filter::new(&["kubectl-1.37/Scale".to_owned(), "startup".to_owned()]);
        assert!(filter.takes("kubectl-1.37.1", "scale a deployment"));
        assert!(!filter.takes("kubectl-1.37.1", "delete"));
        assert!(!filter.takes("kubectl-1.34.4", "scale a deployment"));
        assert!(filter.takes("startup", "anything"));
        assert!(!filter.is_only("startup") && Filter::new(&["Guides/go".to_owned()]).is_only("guides"));
        assert!(filter.takes_suite("kubectl-1.37.1") && !filter.takes_suite("client-go"));
    }

    #[test]
    fn without_words_everything_is_taken() {
        assert!(Filter::default().takes("kinds", "plain"));
    }

    #[test]
    fn one_failure_fails_the_run_and_so_does_nothing_at_all() {
        let mut report = Report::default();
        assert!(!report.finish());
        report.check("suite", "good", || Ok(()));
        assert!(report.finish());
        report.check("suite", "bad", || anyhow::bail!("no"));
        assert!(!report.finish());
    }
}
