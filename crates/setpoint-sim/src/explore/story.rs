//! What happened in a run, in the order in which it happened.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use setpoint::facts::{ReconcileResult, Subscription};
use setpoint::{Cause, LoopEvent};

use super::witness::{Change, Commit, NOBODY};
use crate::faults::Fired;
use crate::trace::{Trace, What};

/// How many lines of two stories are compared after the first difference: it takes the square of it.
const MOST_COMPARED: usize = 2000;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) at: Duration,
    pub(crate) who: Arc<str>,
    pub(crate) what: String,
    pub(crate) is_fault: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Story {
    pub(crate) lines: Vec<Line>,
}

/// A line of two stories: what both tell, or what one of them tells.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Pair<'a> {
    Both(&'a Line, &'a Line),
    Left(&'a Line),
    Right(&'a Line),
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.is_fault { "✗ " } else { "" };
        write!(f, "{:9.3}s {}: {mark}{}", self.at.as_secs_f64(), self.who, self.what)
    }
}

impl Story {
    /// Writes that changed something, and requests that failed.
    pub(crate) fn add_requests(&mut self, trace: &Trace, commits: &[Commit]) {
        for commit in commits.iter().filter(|commit| commit.counts && *commit.client != *NOBODY) {
            let verb = match commit.change {
                Change::Created => "creates",
                Change::Updated => "changes",
                Change::Deleted => "deletes",
            };
            self.push(commit.at, &commit.client, format!("{verb} {}", commit.called));
        }
        for entry in trace.entries() {
            let what = match &entry.what {
                What::Answered { status, .. } if *status >= 400 => {
                    format!("is told {status}: {}", entry.request)
                }
                What::Broken(error) => format!("{}: {error}", entry.request),
                _ => continue,
            };
            self.push(entry.at, &entry.client, what);
        }
    }

    pub(crate) fn add_faults(&mut self, fired: &[Fired]) {
        for fault in fired {
            let what = fault.to_string();
            self.lines.push(Line { at: fault.at, who: fault.client.clone(), what, is_fault: true });
        }
    }

    /// Reconciles, with their reasons and ends.
    pub(crate) fn add_facts(&mut self, who: &Arc<str>, facts: &mut Subscription) {
        let start = setpoint_env::EPOCH;
        while let Some(fact) = facts.try_next() {
            let at = Duration::try_from(fact.at.duration_since(start)).unwrap_or_default();
            match &fact.event {
                LoopEvent::ReconcileStarted { reasons, .. }
                    if reasons.iter().all(|reason| reason.cause == Cause::Resync) => {}
                LoopEvent::ReconcileStarted { key, reasons, retries, .. } => {
                    let again = if *retries > 0 { format!(", try {}", retries + 1) } else { String::new() };
                    self.push(at, who, format!("reconciles {key}{again}, because: {reasons}"));
                }
                LoopEvent::ReconcileEnded { key, result, .. } => {
                    let how = match result {
                        ReconcileResult::Failed { error } | ReconcileResult::FailedForGood { error } => {
                            format!("fails: {error}")
                        }
                        ReconcileResult::RequeueAfter { delay } => format!("is done, again in {delay:?}"),
                        ReconcileResult::CutOff => "is cut off".to_owned(),
                        _ => continue,
                    };
                    self.push(at, who, format!("reconcile of {key} {how}"));
                }
                _ => {}
            }
        }
    }

    fn push(&mut self, at: Duration, who: &Arc<str>, what: String) {
        self.lines.push(Line { at, who: who.clone(), what, is_fault: false });
    }

    pub(crate) fn sort(&mut self) {
        self.lines.sort_by_key(|line| line.at);
    }

    /// Both stories side by side: the longest that they have in common in one row. Where both are very long, only their
    /// beginnings are compared.
    pub(crate) fn beside<'a>(&'a self, other: &'a Story) -> Vec<Pair<'a>> {
        let (left, right) = (&self.lines, &other.lines);
        let same = |a: &Line, b: &Line| a.who == b.who && a.what == b.what;
        let start = left.iter().zip(right).take_while(|(a, b)| same(a, b)).count();
        let (a, more_left) = left[start..].split_at(MOST_COMPARED.min(left.len() - start));
        let (b, more_right) = right[start..].split_at(MOST_COMPARED.min(right.len() - start));
        // How much the rests have in common, from each pair of places on.
        let mut common = vec![vec![0u32; b.len() + 1]; a.len() + 1];
        for i in (0..a.len()).rev() {
            for j in (0..b.len()).rev() {
                common[i][j] = if same(&a[i], &b[j]) {
                    common[i + 1][j + 1] + 1
                } else {
                    common[i + 1][j].max(common[i][j + 1])
                };
            }
        }
        let mut pairs: Vec<_> = left.iter().zip(right).take(start).map(|(a, b)| Pair::Both(a, b)).collect();
        let (mut i, mut j) = (0, 0);
        while i < a.len() || j < b.len() {
            if i < a.len() && j < b.len() && same(&a[i], &b[j]) {
                pairs.push(Pair::Both(&a[i], &b[j]));
                (i, j) = (i + 1, j + 1);
            } else if j == b.len() || (i < a.len() && common[i + 1][j] >= common[i][j + 1]) {
                pairs.push(Pair::Left(&a[i]));
                i += 1;
            } else {
                pairs.push(Pair::Right(&b[j]));
                j += 1;
            }
        }
        pairs.extend(more_left.iter().map(Pair::Left));
        pairs.extend(more_right.iter().map(Pair::Right));
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn story(lines: &[&str]) -> Story {
        let line = |what: &&str| Line {
            at: Duration::ZERO,
            who: "a".into(),
            what: (*what).to_owned(),
            is_fault: false,
        };
        Story { lines: lines.iter().map(line).collect() }
    }

    #[test]
    fn of_very_long_stories_all_lines_are_kept() {
        let lines = |what: &'static str| story(&vec![what; 50 * MOST_COMPARED]);
        let (left, right) = (lines("a"), lines("b"));
        let pairs = left.beside(&right);
        let lefts = pairs.iter().filter(|pair| matches!(pair, Pair::Left(_))).count();
        assert_eq!((lefts, pairs.len()), (left.lines.len(), left.lines.len() + right.lines.len()));
    }

    #[test]
    fn two_stories_meet_again_where_they_can() {
        let (left, right) = (story(&["a", "b", "c", "d"]), story(&["a", "x", "c", "d", "e"]));
        let shape: String = left
            .beside(&right)
            .iter()
            .map(|pair| match pair {
                Pair::Both(..) => '=',
                Pair::Left(_) => '<',
                Pair::Right(_) => '>',
            })
            .collect();
        assert_eq!(shape, "=<>==>");
    }
}
