//! The checker: can a correct server have shown this to its clients?
//!
//! It needs no search. Whatever names a resourceVersion puts itself into one order, the [`Timeline`]; what is left to
//! decide is whether that order fits the moments at which operations began and ended (`order.rs`), and that takes
//! about as long as sorting. Each part is a pass over the history:
//!
//! 1. `timeline.rs`: which version is which state of which object, and which write made it.
//! 2. `transitions.rs`: each version follows from the one before it.
//! 3. `order.rs`: versions, reads and refusals fit real time.
//! 4. `snapshots.rs`: lists are the state at their version.
//! 5. `watches.rs`: the guarantees of watch; `selection.rs`: what enters and leaves the selection of one.
//! 6. `served.rs`: what is always valid is not refused.
//!
//! It never blames a correct server. What nobody has seen (a write without an answer, in a stretch of versions that no
//! watch covered) may have happened or not, and is held against nobody.

mod order;
mod selection;
mod served;
mod snapshots;
mod timeline;
mod transitions;
mod watches;

use std::collections::BTreeMap;
use std::fmt;

use crate::history::History;
use crate::operation::Outcome;
use crate::tally::Tally;
use crate::violation::{Promise, Violation};
use timeline::Timeline;

/// How many violations of one promise are kept: the first ones say it all.
const KEPT: usize = 5;

/// A kind of call that was asked for so often and was never done is no chance.
const OFTEN: usize = 20;

/// What the checker has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdict {
    /// Reads and writes.
    pub operations: usize,
    /// Those of them without an answer that says what came of them.
    pub unknown: usize,
    /// Of these, writes that turned out to have been done.
    pub done_after_all: usize,
    /// Watches.
    pub watches: usize,
    /// What these told.
    pub events: usize,
    /// Versions that somebody has seen.
    pub versions: usize,
    /// What came of each kind of call, and of each kind of watch.
    pub calls: BTreeMap<&'static str, Tally>,
    /// The first violations of each promise.
    pub violations: Vec<Violation>,
    /// How many there are in all. One fault is often seen by many.
    pub total: usize,
}

impl Verdict {
    /// The kinds of calls that were asked for often and were never done: nothing is known of them.
    #[must_use]
    pub fn never_done(&self) -> Vec<&'static str> {
        let never = self.calls.iter().filter(|(_, tally)| tally.done == 0 && tally.total() >= OFTEN);
        never.map(|(kind, _)| *kind).collect()
    }

    /// How many calls and watches failed or got no answer.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.calls.values().map(Tally::unknown).sum()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} operations ({} without an answer, {} of them done after all), {} watches with {} events, {} versions: \
             {} violations",
            self.operations,
            self.unknown,
            self.done_after_all,
            self.watches,
            self.events,
            self.versions,
            self.total
        )?;
        self.calls.iter().try_for_each(|(kind, tally)| write!(f, "\n  {kind}: {tally}"))?;
        self.violations.iter().try_for_each(|violation| write!(f, "\n\n{violation}"))?;
        match self.total - self.violations.len() {
            0 => Ok(()),
            more => write!(f, "\n\nand {more} more"),
        }
    }
}

/// Holds a history against everything that the API promises.
#[must_use]
pub fn check(history: &History) -> Verdict {
    let mut found = Found::default();
    for operation in &history.operations {
        if matches!(operation.outcome, Outcome::Unreadable(_)) {
            found.add(Promise::Readable, "no server answers so", [operation.to_string()]);
        }
    }
    let timeline = Timeline::build(history, &mut found);
    transitions::check(&timeline, &mut found);
    order::check(&timeline, &mut found);
    snapshots::check(&timeline, &mut found);
    watches::check(&timeline, &mut found);
    served::check(history, &mut found);
    Verdict {
        operations: history.operations.len(),
        unknown: history.operations.iter().filter(|operation| has_no_answer(&operation.outcome)).count(),
        done_after_all: timeline.done_after_all(),
        watches: history.watches.len(),
        events: history.watches.iter().map(|watch| watch.told.len()).sum(),
        versions: timeline.points.len(),
        calls: calls(history),
        violations: found.violations,
        total: found.total,
    }
}

fn has_no_answer(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Unknown | Outcome::Failed(_))
}

fn calls(history: &History) -> BTreeMap<&'static str, Tally> {
    let mut calls: BTreeMap<_, Tally> = BTreeMap::new();
    for operation in &history.operations {
        calls.entry(operation.call.kind()).or_default().count(&operation.outcome);
    }
    for watch in &history.watches {
        calls.entry(watch.select.kind()).or_default().count_watch(watch);
    }
    calls
}

/// Collects violations.
#[derive(Default)]
struct Found {
    violations: Vec<Violation>,
    total: usize,
}

impl Found {
    fn add(&mut self, promise: Promise, why: impl Into<String>, evidence: impl IntoIterator<Item = String>) {
        self.total += 1;
        if self.violations.iter().filter(|known| known.promise == promise).count() < KEPT {
            let evidence = evidence.into_iter().collect();
            self.violations.push(Violation { promise, why: why.into(), evidence });
        }
    }
}
