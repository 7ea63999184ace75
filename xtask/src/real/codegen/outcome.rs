//! What became of the types for one version of a CRD, and of many of them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;

/// What `check.rs` says of a sample and a schema there and back.
#[derive(Default, Deserialize)]
pub(super) struct Trip {
    pub(super) values: usize,
    /// Paths of values.
    pub(super) lost: Vec<String>,
    pub(super) added: Vec<String>,
    pub(super) errors: Vec<String>,
    /// How often each keyword was in the schema.
    before: BTreeMap<String, usize>,
    /// `default left out`, and the paths where.
    changes: BTreeMap<String, Vec<String>>,
}

impl Trip {
    pub(super) fn read(said: &str) -> Result<Trip> {
        let line = said.lines().last().context("it says nothing")?;
        serde_json::from_str(line).with_context(|| line.to_owned())
    }
}

/// One version: how many lines of types, and what came of them.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) lines: usize,
    pub(super) compiled_in: Option<Duration>,
    pub(super) trip: Trip,
    /// Why there is no trip.
    pub(super) problem: Option<String>,
}

impl Outcome {
    pub(super) fn told(&self) -> String {
        let compiled = self.compiled_in.map(|took| format!(", compiled in {:.1} s", took.as_secs_f64()));
        let lines = format!("{} lines{}", self.lines, compiled.unwrap_or_default());
        let Trip { values, lost, added, errors, .. } = &self.trip;
        match &self.problem {
            Some(problem) => format!("{lines}: {problem}"),
            None => {
                let kept = format!("{lines}, {} of {values} values lost, {} added", lost.len(), added.len());
                let first = lost.iter().chain(added).take(3).cloned().collect::<Vec<_>>().join(" ");
                [kept, errors.join("; "), first].join(" ").trim_end().to_owned()
            }
        }
    }
}

/// Sums over versions.
#[derive(Default)]
pub(super) struct Sum {
    versions: usize,
    compiled: usize,
    lines: usize,
    took: Duration,
    values: usize,
    lost: usize,
    added: usize,
    before: BTreeMap<String, usize>,
    changes: BTreeMap<String, Vec<String>>,
}

impl Sum {
    pub(super) fn add(&mut self, place: &str, outcome: &Outcome) {
        self.versions += 1;
        self.lines += outcome.lines;
        self.compiled += usize::from(outcome.problem.is_none());
        self.took += outcome.compiled_in.unwrap_or_default();
        let trip = &outcome.trip;
        self.values += trip.values;
        self.lost += trip.lost.len();
        self.added += trip.added.len();
        for (keyword, count) in &trip.before {
            *self.before.entry(keyword.clone()).or_default() += count;
        }
        for (what, paths) in &trip.changes {
            let all = self.changes.entry(what.clone()).or_default();
            all.extend(paths.iter().map(|path| format!("{place}{path}")));
        }
    }

    /// One line for each thing worth saying.
    pub(super) fn told(&self) -> Vec<String> {
        let Sum { versions, compiled, lines, values, lost, added, .. } = self;
        let took = self.took.as_secs_f64();
        let mut told = vec![
            format!("{compiled} of {versions} versions compile; {lines} lines, {took:.0} s"),
            format!("{lost} of {values} values lost, {added} added"),
        ];
        for (class, (before, left_out, changed)) in self.classes() {
            told.push(format!("{class}: {before}, of which {left_out} left out and {changed} changed"));
        }
        told
    }

    /// What differs between the CRDs, and where.
    pub(super) fn changes_told(&self) -> Vec<String> {
        let told = |(what, paths): (&String, &Vec<String>)| {
            let first = paths.iter().take(2).cloned().collect::<Vec<_>>().join(" ");
            format!("{what}: {} times, as at {first}", paths.len())
        };
        self.changes.iter().map(told).collect()
    }

    /// How many keywords of each sort there were, were left out, and were changed.
    fn classes(&self) -> BTreeMap<&str, (usize, usize, usize)> {
        let mut classes: BTreeMap<&str, (usize, usize, usize)> = BTreeMap::new();
        for (keyword, count) in &self.before {
            let times = |what: &str| self.changes.get(&format!("{keyword} {what}")).map_or(0, Vec::len);
            let class = classes.entry(class(keyword)).or_default();
            *class = (class.0 + count, class.1 + times("left out"), class.2 + times("changed"));
        }
        classes
    }
}

/// What a keyword is about.
fn class(keyword: &str) -> &str {
    match keyword {
        "maxLength" | "minLength" | "pattern" | "maximum" | "minimum" | "exclusiveMaximum"
        | "exclusiveMinimum" | "multipleOf" | "maxItems" | "minItems" | "uniqueItems" | "maxProperties"
        | "minProperties" => "limits and patterns",
        "oneOf" | "anyOf" | "allOf" | "not" => "oneOf, anyOf, allOf, not",
        "x-kubernetes-list-type" | "x-kubernetes-list-map-keys" | "x-kubernetes-map-type" => {
            "list and map types"
        }
        keyword => keyword,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_are_summed_by_what_they_are_about() {
        let said = r#"{"values": 3, "lost": [".a"], "added": [], "errors": [],
            "before": {"maxLength": 2, "pattern": 1, "default": 1},
            "changes": {"maxLength left out": [".a"], "pattern changed": [".b"], "title added": [""]}}"#;
        let trip = Trip::read(&said.replace('\n', " ")).unwrap();
        let mut sum = Sum::default();
        sum.add("Foo v1", &Outcome { trip, ..Outcome::default() });
        let classes = sum.classes();
        assert_eq!(classes["limits and patterns"], (3, 1, 1));
        assert_eq!(classes["default"], (1, 0, 0));
        assert!(sum.changes_told().contains(&"title added: 1 times, as at Foo v1".to_owned()));
    }
}
