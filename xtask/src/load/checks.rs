//! Figures beside the most that they may be.

use anyhow::{Result, ensure};

/// What a run has measured. A debug build is only reported on: it is many times slower.
pub(super) struct Checks {
    is_debug: bool,
    broken: Vec<String>,
}

impl Checks {
    pub(super) fn new(is_debug: bool) -> Self {
        Self { is_debug, broken: Vec::new() }
    }

    /// Prints a figure and its limit.
    pub(super) fn at_most(&mut self, what: &str, figure: f64, limit: f64, unit: &str) {
        // A figure that is no number breaks it, too.
        let holds = figure <= limit;
        let word = if holds { "" } else { "  TOO MUCH" };
        println!("{what:48} {figure:8.2} {unit}, at most {limit:.0}{word}");
        if !holds {
            self.broken.push(format!("{what}: {figure:.2} {unit}, and not at most {limit:.0}"));
        }
    }

    /// Fails if a limit was broken.
    pub(super) fn finish(self) -> Result<()> {
        ensure!(self.is_debug || self.broken.is_empty(), "{}", self.broken.join("; "));
        Ok(())
    }
}
