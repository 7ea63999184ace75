//! Beyond single faults: several at once, changes and their opposites, and the least faults that show a finding.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use super::fault::Fault;
use super::judge::{Violation, judge};
use super::plan::{Plan, Point, PointKind};
use super::report::{Clock, Progress};
use super::run::Outcome;
use super::{Exploration, Explorer, Finding, joined};
use crate::faults::Effect;
use crate::hash::Fnv;

/// More faults at once say little about why.
const MOST_FAULTS: u64 = 4;

/// What has been seen in runs with several faults.
#[derive(Default)]
struct Coverage {
    /// States of objects, each with the faults that had happened before.
    seen: BTreeSet<u64>,
    /// Faults that led to something new: others are added to them.
    corpus: Vec<Vec<usize>>,
}

impl Coverage {
    /// Whether the run came somewhere new.
    fn add(&mut self, outcome: &Outcome, kinds: &BTreeSet<usize>) -> bool {
        let mut is_new = false;
        for commit in outcome.commits.iter().filter(|commit| commit.counts) {
            let mut hash = Fnv::default();
            hash.text(&commit.called);
            hash.number(commit.hash);
            kinds.iter().for_each(|kind| hash.number(*kind as u64));
            is_new |= self.seen.insert(hash.finish());
        }
        is_new
    }
}

impl Explorer {
    /// Tries several faults at once, in an order of tasks that each seed chooses, until the time is over or something is
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
        let coverage = Mutex::new(Coverage::default());
        let found = Mutex::new(None::<(u64, Vec<Fault>, Vec<Violation>)>);
        let runs = Mutex::new(0usize);
        thread::scope(|scope| {
            let work = || {
                while clock.elapsed() < self.settings.budget && found.lock().is_none() {
                    let number = {
                        let mut runs = runs.lock();
                        *runs += 1;
                        *runs as u64
                    };
                    let chosen = choose(number, points.len(), &coverage.lock().corpus);
                    let mut faults: Vec<_> =
                        chosen.iter().flat_map(|at| points[*at].faults.clone()).collect();
                    faults.push(Fault::Order(number));
                    let outcome = self.run_beside(reference, &faults);
                    let violations = judge(reference, &outcome, &faults);
                    progress.ran(!violations.is_empty());
                    let kinds = chosen.iter().map(|at| points[*at].kind as usize).collect();
                    let mut coverage = coverage.lock();
                    if coverage.add(&outcome, &kinds) && (chosen.len() as u64) < MOST_FAULTS {
                        coverage.corpus.push(chosen);
                    }
                    drop(coverage);
                    if !violations.is_empty() {
                        found.lock().get_or_insert((number, faults, violations));
                    }
                }
            };
            let workers: Vec<_> = (0..self.settings.threads).map(|_| scope.spawn(work)).collect();
            workers.into_iter().for_each(joined);
        });
        let runs = runs.into_inner();
        exploration.runs += runs;
        exploration.several.runs = runs;
        if let Some((_, faults, violations)) = found.into_inner() {
            exploration.several.failed = 1;
            self.find(exploration, reference, &faults, violations, None);
        }
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

/// The faults of the nth run: some that led to something new and one more, or two.
fn choose(number: u64, points: usize, corpus: &[Vec<usize>]) -> Vec<usize> {
    let mut draw = 0;
    let mut below = |limit: usize| {
        draw += 1;
        let mut hash = Fnv::default();
        hash.number(number);
        hash.number(draw);
        // The low bits of FNV are the best ones after another multiplication.
        (hash.finish().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as usize % limit
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
