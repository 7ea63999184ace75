//! Beyond single faults: several at once, changes and their opposites, and the least faults that show a finding.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use super::fault::Fault;
use super::judge::{Violation, judge};
use super::plan::{Plan, Point, PointKind};
use super::report::{Clock, Progress};
use super::run::Outcome;
use super::witness::Commit;
use super::{Exploration, Explorer, Finding, joined};
use crate::faults::Effect;
use crate::hash::Fnv;

/// More faults at once say little about why.
const MOST_FAULTS: u64 = 4;

/// So many runs are chosen at once, from what was seen before them: what is chosen depends on no thread.
const ROUND: u64 = 32;

/// What has been seen in runs with several faults.
#[derive(Default)]
struct Coverage {
    /// States of objects, each with the faults that had happened before.
    seen: BTreeSet<u64>,
    /// Faults that led to something new: others are added to them.
    corpus: Vec<Vec<usize>>,
}

impl Coverage {
    fn add(&mut self, run: Seen) {
        let before = self.seen.len();
        self.seen.extend(run.states);
        if self.seen.len() > before && (run.chosen.len() as u64) < MOST_FAULTS {
            self.corpus.push(run.chosen);
        }
    }
}

/// What a run with several faults has seen.
struct Seen {
    chosen: Vec<usize>,
    states: BTreeSet<u64>,
    faults: Vec<Fault>,
    violations: Vec<Violation>,
}

/// The states of objects, each with the kinds of faults that were chosen.
fn states(outcome: &Outcome, kinds: &BTreeSet<usize>) -> BTreeSet<u64> {
    let state = |commit: &Commit| {
        let mut hash = Fnv::default();
        hash.text(&commit.called);
        hash.number(commit.hash);
        kinds.iter().for_each(|kind| hash.number(*kind as u64));
        hash.finish()
    };
    outcome.commits.iter().filter(|commit| commit.counts).map(state).collect()
}

impl Explorer {
    /// Tries several faults at once, in an order of tasks that each run chooses, until the time is over or something is
    /// found. What led to something new is tried again with one fault more.
    pub(super) fn several(
        &self,
        plan: &Plan,
        reference: &Outcome,
        progress: &Progress,
        exploration: &mut Exploration,
    ) {
        // Where other steps lead is known without faults alone.
        let is_fault = |point: &&Point| !matches!(point.kind, PointKind::Rollback | PointKind::TwoWays);
        let points: Vec<&Point> = plan.points.iter().filter(is_fault).collect();
        if points.is_empty() {
            return;
        }
        let clock = Clock::start();
        let mut coverage = Coverage::default();
        let mut before = 0;
        let found = loop {
            let round: Vec<_> = (before + 1..=before + ROUND)
                .map(|number| (number, choose(self.settings.seed, number, points.len(), &coverage.corpus)))
                .collect();
            let runs = self.round(round, &points, reference, progress, clock);
            let is_over = (runs.len() as u64) < ROUND;
            before += ROUND;
            let mut failed = None;
            for run in runs {
                exploration.runs += 1;
                exploration.several.runs += 1;
                if run.violations.is_empty() {
                    coverage.add(run);
                } else {
                    exploration.several.failed += 1;
                    failed.get_or_insert((exploration.runs, run));
                }
            }
            if failed.is_some() || is_over {
                break failed;
            }
        };
        if let Some((runs, run)) = found {
            let finding = Finding::new(&run.faults, run.violations, runs);
            self.find(exploration, reference, Finding { is_of_several: true, ..finding });
        }
    }

    /// Makes these runs, in the order of their numbers, as long as there is time.
    fn round(
        &self,
        round: Vec<(u64, Vec<usize>)>,
        points: &[&Point],
        reference: &Outcome,
        progress: &Progress,
        clock: Clock,
    ) -> Vec<Seen> {
        let (next, made) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
        thread::scope(|scope| {
            let work = || {
                while clock.elapsed() < self.settings.budget {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    let Some((number, chosen)) = round.get(nth) else { return };
                    let mut faults: Vec<_> =
                        chosen.iter().flat_map(|at| points[*at].faults.clone()).collect();
                    faults.push(Fault::Order(draw(self.settings.seed, *number, 0)));
                    let outcome = self.run_beside(reference, &faults);
                    let violations = judge(reference, &outcome, &faults);
                    progress.ran(!violations.is_empty());
                    let kinds = chosen.iter().map(|at| points[*at].kind as usize).collect();
                    let (chosen, states) = (chosen.clone(), states(&outcome, &kinds));
                    made.lock().insert(nth, Seen { chosen, states, faults, violations });
                }
            };
            let workers: Vec<_> = (0..self.settings.threads).map(|_| scope.spawn(work)).collect();
            workers.into_iter().for_each(joined);
        });
        made.into_inner().into_values().collect()
    }

    /// Leaves out faults, and shortens delays, as long as it still goes wrong in the same way.
    pub(super) fn shrink(&self, reference: &Outcome, finding: &mut Finding) {
        let oracles: BTreeSet<_> = finding.violations.iter().map(|violation| violation.oracle).collect();
        let fails = |faults: &[Fault]| {
            let outcome = self.run_beside(reference, faults);
            let violations = judge(reference, &outcome, faults);
            violations.iter().any(|violation| oracles.contains(&violation.oracle)).then_some(violations)
        };
        let mut at = 0;
        while at < finding.faults.len() && finding.faults.len() > 1 {
            let mut fewer = finding.faults.clone();
            fewer.remove(at);
            match fails(&fewer) {
                Some(violations) => (finding.faults, finding.violations) = (fewer, violations),
                None => at += 1,
            }
        }
        for at in 0..finding.faults.len() {
            while let Some(shorter) = shorter(&finding.faults[at]) {
                let mut faults = finding.faults.clone();
                faults[at] = shorter;
                let Some(violations) = fails(&faults) else { break };
                (finding.faults, finding.violations) = (faults, violations);
            }
        }
    }
}

/// The same fault with half of its delay.
fn shorter(fault: &Fault) -> Option<Fault> {
    const LEAST: Duration = Duration::from_millis(100);
    let Fault::On(matching, effect) = fault else { return None };
    let half = |time: Duration| time.checked_div(2).unwrap_or_default();
    let effect = match effect {
        Effect::StallAfterEvents(n, time) if *time > LEAST => Effect::StallAfterEvents(*n, half(*time)),
        Effect::LagAfterEvents(n, k) if *k > 1 => Effect::LagAfterEvents(*n, k / 2),
        Effect::PauseAfterAnswer(time) if *time > LEAST => Effect::PauseAfterAnswer(half(*time)),
        _ => return None,
    };
    Some(Fault::On(matching.clone(), effect))
}

/// A number that depends on the seed, the number of the run, and which draw of this run it is. Reports and pasted tests show
/// some of them: 31 bits are enough.
fn draw(seed: u64, number: u64, nth: u64) -> u64 {
    let mut hash = Fnv::default();
    hash.number(seed);
    hash.number(number);
    hash.number(nth);
    // The low bits of FNV are the best ones after another multiplication.
    hash.finish().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33
}

/// The faults of the nth run: some that led to something new and one more, or two.
fn choose(seed: u64, number: u64, points: usize, corpus: &[Vec<usize>]) -> Vec<usize> {
    let mut nth = 0;
    let mut below = |limit: usize| {
        nth += 1;
        draw(seed, number, nth) as usize % limit
    };
    let mut chosen = match corpus.len() {
        0 => Vec::new(),
        // Every other run begins anew.
        n if number.is_multiple_of(2) => corpus[below(n)].clone(),
        _ => Vec::new(),
    };
    let wanted = (chosen.len() + 1).max(2).min(points);
    while chosen.len() < wanted {
        let point = below(points);
        if !chosen.contains(&point) {
            chosen.push(point);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_chooses_the_same_again_and_another_seed_something_else() {
        let corpus = [vec![1, 2], vec![3, 4, 5]];
        let all = |seed| (1..100).map(|number| choose(seed, number, 50, &corpus)).collect::<Vec<_>>();
        assert_eq!(all(7), all(7));
        assert_ne!(all(7), all(8));
        assert!(all(7).iter().all(|chosen| chosen.iter().collect::<BTreeSet<_>>().len() == chosen.len()));
        assert_eq!(choose(7, 1, 1, &[]), [0], "there is no second one");
    }
}
