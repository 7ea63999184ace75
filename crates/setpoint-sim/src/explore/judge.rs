//! The oracles: what must be true of a run, given one without faults.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::fault::Fault;
use super::object::ObjectId;
use super::run::Outcome;
use super::scenario::Step;
use super::witness::{Change, Commit, NOBODY};
use crate::faults::{Act, Effect};

/// So many times as many writes as without faults are too many. Requests are not counted like this: whoever makes again what a
/// garbage collector takes away, or asks again whether something is there, sends as many as the fault lasts. Those who ask
/// without end are found at rest.
const TIMES: usize = 3;
/// if they are more by this, too.
const MORE: usize = 20;

/// What must be true of every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Oracle {
    /// The end state is that of a run without faults.
    EndState,
    /// No object is created or deleted more often than without faults.
    Counts,
    /// In the end nothing more is written, and no request is sent again and again.
    Rest,
    /// Nothing lives whose controlling owner is gone.
    Owners,
    /// No two writers undo each other's changes.
    PingPong,
    /// `observedGeneration` is never ahead of the generation, never goes back, and is the generation in the end.
    Generations,
    /// Nobody writes whose lease is another's.
    Leases,
    /// There is no panic, what must always hold does, and the goals are reached.
    Troubles,
    /// It does not take many times as many writes as without faults.
    Writes,
    /// What the user deleted goes, and nobody's finalizer is left behind.
    Deletions,
    /// A change and its opposite lead back to where it began.
    Rollback,
    /// What is created as B is what is created as A and changed to B.
    TwoWays,
    /// Each fault that [`replay`](crate::replay) was given takes place.
    Missed,
}

impl fmt::Display for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Oracle::EndState => "the end state is not that of a run without faults",
            Oracle::Counts => "objects were created or deleted too often",
            Oracle::Rest => "it does not come to rest",
            Oracle::Owners => "objects live whose owner is gone",
            Oracle::PingPong => "two writers undo each other's changes",
            Oracle::Generations => "observedGeneration is wrong",
            Oracle::Leases => "somebody wrote without the lease",
            Oracle::Troubles => "something went wrong on the way",
            Oracle::Writes => "it took too many writes",
            Oracle::Deletions => "what was deleted does not go",
            Oracle::Rollback => "a change and its opposite do not lead back",
            Oracle::TwoWays => "two ways to one state end differently",
            Oracle::Missed => {
                "a fault never took place: no request was as it says, or its object was not there; \
                 explore again, and paste anew what is found"
            }
        })
    }
}

/// An oracle that was not satisfied, and why.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Violation {
    /// Which one.
    pub oracle: Oracle,
    /// Why, a line each.
    pub why: Vec<String>,
}

/// What is wrong with a run by itself.
pub(crate) fn judge_alone(run: &Outcome) -> Vec<Violation> {
    let checks = [
        (Oracle::Troubles, run.troubles.clone()),
        (Oracle::Rest, run.unrest.clone()),
        (Oracle::Deletions, going(run)),
        (Oracle::Owners, dead_owners(run)),
        (Oracle::PingPong, ping_pong(&run.commits)),
        (Oracle::Generations, [generations(&run.commits), old_generations(run)].concat()),
        (Oracle::Leases, leases(&run.commits)),
    ];
    violations(checks)
}

/// What is wrong with a run, given one without faults.
pub(crate) fn judge(reference: &Outcome, run: &Outcome, faults: &[Fault]) -> Vec<Violation> {
    if let Some(Fault::Steps(steps)) = faults.iter().find(|fault| matches!(fault, Fault::Steps(_))) {
        return transition(reference, run, steps);
    }
    let mut found = violations([
        (Oracle::EndState, reference.state.difference(&run.state)),
        (Oracle::Counts, counts(reference, run, faults)),
        (Oracle::Writes, too_many_writes(reference, run)),
    ]);
    found.extend(judge_alone(run));
    found
}

/// Whether other steps lead to the state that their last one led to without faults.
fn transition(reference: &Outcome, run: &Outcome, steps: &[usize]) -> Vec<Violation> {
    let (last, before) = steps.split_last().map_or((None, steps), |(last, before)| (Some(*last), before));
    // Before the first step there is a state, too.
    let expected = reference.states.get(last.map_or(0, |last| last.saturating_add(1)));
    let is_back = last.is_some_and(|last| before.contains(&last));
    let oracle = if is_back { Oracle::Rollback } else { Oracle::TwoWays };
    let difference = expected.map(|expected| expected.difference(&run.state)).unwrap_or_default();
    let mut found = violations([(oracle, difference)]);
    found.extend(judge_alone(run));
    found
}

fn violations<const N: usize>(checks: [(Oracle, Vec<String>); N]) -> Vec<Violation> {
    let wrong = checks.into_iter().filter(|(_, why)| !why.is_empty());
    wrong.map(|(oracle, why)| Violation { oracle, why }).collect()
}

#[derive(Clone, Copy, Default)]
struct Count {
    created: usize,
    deleted: usize,
    /// By whoever is not a controller.
    created_aside: usize,
    deleted_aside: usize,
    /// Created without that another one had been deleted aside before. Of objects with generated names, which all have the same
    /// one here, one too many is not explained by its deletion afterwards, with its owner.
    unasked: usize,
    /// Deleted aside and not replaced so far.
    missing: usize,
}

fn count(commits: &[Commit]) -> BTreeMap<&Arc<str>, Count> {
    let mut counts: BTreeMap<_, Count> = BTreeMap::new();
    for commit in commits.iter().filter(|commit| commit.counts) {
        let count = counts.entry(&commit.called).or_default();
        let is_aside = *commit.client == *NOBODY;
        match commit.change {
            Change::Created if is_aside => count.created_aside += 1,
            Change::Created => {
                count.created += 1;
                match count.missing.checked_sub(1) {
                    Some(fewer) => count.missing = fewer,
                    None => count.unasked += 1,
                }
            }
            Change::Deleted if is_aside => {
                count.deleted_aside += 1;
                count.missing += 1;
            }
            Change::Deleted => count.deleted += 1,
            Change::Updated => {}
        }
    }
    counts
}

/// What controllers created or deleted more often than without faults, unless somebody else gave them a reason.
fn counts(reference: &Outcome, run: &Outcome, faults: &[Fault]) -> Vec<String> {
    let (before, after) = (count(&reference.commits), count(&run.commits));
    // Whatever hangs on an object that was made anew is made anew.
    let anew = faults.iter().filter(|fault| match fault {
        Fault::On(_, Effect::Interfere(interference)) => {
            !matches!(interference.act, Act::Touch | Act::Create)
        }
        Fault::AtRest(..) | Fault::Revert(..) => true,
        Fault::On(..)
        | Fault::Finalizer(_)
        | Fault::OldCache(..)
        | Fault::Order(_)
        | Fault::ClockRate(..)
        | Fault::Steps(_) => false,
    });
    let anew = anew.count();
    let mut why = Vec::new();
    for (called, now) in after {
        let then = before.get(called).copied().unwrap_or_default();
        let anew = anew * then.created.max(1);
        let allowed = then.created + anew + now.deleted_aside.saturating_sub(then.deleted_aside);
        if now.created > allowed || now.unasked > then.unasked + anew {
            why.push(format!("{called}: created {} times, without faults {}", now.created, then.created));
        }
        let allowed = then.deleted + anew + now.created_aside.saturating_sub(then.created_aside);
        if now.deleted > allowed {
            why.push(format!("{called}: deleted {} times, without faults {}", now.deleted, then.deleted));
        }
    }
    why
}

fn too_many_writes(reference: &Outcome, run: &Outcome) -> Vec<String> {
    let writes = |outcome: &Outcome| {
        outcome.commits.iter().filter(|commit| commit.counts && *commit.client != *NOBODY).count()
    };
    // Who makes again what somebody else takes away does what it should.
    let taken =
        |outcome: &Outcome| count(&outcome.commits).values().map(|count| count.deleted_aside).sum::<usize>();
    let (before, after) = (writes(reference), writes(run));
    let after = after.saturating_sub(taken(run).saturating_sub(taken(reference)));
    let is_too_many = after > before.saturating_mul(TIMES).max(before.saturating_add(MORE));
    is_too_many.then(|| format!("{after} writes, without faults {before}")).into_iter().collect()
}

/// What the user has deleted and is still there, and finalizers of controllers on what is going.
fn going(run: &Outcome) -> Vec<String> {
    let deleted: BTreeSet<&str> = run
        .scenario
        .steps
        .iter()
        .filter_map(|step| match step {
            Step::Delete(target) => Some(target.path.as_str()),
            Step::Apply(_) | Step::Act(..) => None,
        })
        .collect();
    // Those of Kubernetes belong to controllers that need not be in the scenario.
    let is_own = |finalizer: &&str| {
        finalizer.split_once('/').is_some_and(|(domain, _)| {
            domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io") && domain != "k8s.io"
        })
    };
    let mut why = Vec::new();
    for (id, value) in
        run.view.objects.iter().filter(|(_, value)| !value["metadata"]["deletionTimestamp"].is_null())
    {
        let all = value["metadata"]["finalizers"].as_array().into_iter().flatten();
        let finalizers: Vec<&str> = all.filter_map(Value::as_str).collect();
        if finalizers.iter().any(is_own) {
            why.push(format!("{id} was deleted, and keeps the finalizers {}", finalizers.join(", ")));
        } else if deleted.contains(id.api_path(value).as_str()) {
            why.push(format!("{id} was deleted, and is still there"));
        }
    }
    why
}

fn dead_owners(run: &Outcome) -> Vec<String> {
    let objects = || run.view.objects.iter();
    let uids: BTreeSet<&str> = objects().filter_map(|(_, value)| value["metadata"]["uid"].as_str()).collect();
    let dead = |value: &Value| {
        let owners = value["metadata"]["ownerReferences"].as_array()?;
        let owner = owners.iter().find(|owner| owner["controller"] == true)?;
        let uid = owner["uid"].as_str()?;
        (!uids.contains(uid)).then(|| format!("{} {}", owner["kind"], owner["name"]))
    };
    objects().filter_map(|(id, value)| Some(format!("{id} lives without {}", dead(value)?))).collect()
}

/// States of an object that come back and go again, by the hands of two.
fn ping_pong(commits: &[Commit]) -> Vec<String> {
    let mut writes: BTreeMap<_, Vec<&Commit>> = BTreeMap::new();
    for commit in commits.iter().filter(|commit| commit.counts && commit.change == Change::Updated) {
        writes.entry(&commit.id).or_default().push(commit);
    }
    let is_turn = |window: &[&Commit]| match window {
        [a, b, c, d, e, f] => {
            let states = a.hash == c.hash && c.hash == e.hash && b.hash == d.hash && d.hash == f.hash;
            let hands =
                a.client == c.client && c.client == e.client && b.client == d.client && d.client == f.client;
            states && hands && a.hash != b.hash && a.client != b.client
        }
        _ => false,
    };
    let turn = |(id, writes): (_, Vec<&Commit>)| {
        let window = writes.windows(6).find(|window| is_turn(window))?;
        Some(format!("{id}: {} and {}, again and again", window[0].client, window[1].client))
    };
    writes.into_iter().filter_map(turn).collect()
}

fn generations(commits: &[Commit]) -> Vec<String> {
    let mut why = BTreeSet::new();
    let mut last: BTreeMap<&str, i64> = BTreeMap::new();
    for commit in commits.iter().filter(|commit| commit.hash != 0) {
        let Some(observed) = commit.value["status"]["observedGeneration"].as_i64() else { continue };
        let Some(generation) = commit.value["metadata"]["generation"].as_i64() else { continue };
        let Some(uid) = commit.value["metadata"]["uid"].as_str() else { continue };
        if observed > generation {
            why.insert(format!("{}: observed {observed}, it is at {generation}", commit.called));
        }
        if let Some(before) = last.insert(uid, observed)
            && before > observed
        {
            why.insert(format!(
                "{}: observed {before}, and then {observed} ({})",
                commit.called, commit.client
            ));
        }
    }
    why.into_iter().collect()
}

/// Objects whose status is about an old generation in the end, by the hand of a controller: also if it is so without faults.
fn old_generations(run: &Outcome) -> Vec<String> {
    let observed = |value: &Value| value["status"]["observedGeneration"].as_i64();
    let mut last: BTreeMap<&ObjectId, (Option<i64>, &str)> = BTreeMap::new();
    for commit in &run.commits {
        let (generation, writer) = last.entry(&commit.id).or_default();
        if commit.change == Change::Created || *generation != observed(&commit.value) {
            (*generation, *writer) = (observed(&commit.value), &commit.client);
        }
    }
    let normal = &run.scenario.normal;
    let is_terminating = |value: &Value| !value["metadata"]["deletionTimestamp"].is_null();
    let is_judged = |id: &ObjectId| {
        let is_seats = last.get(id).is_some_and(|(_, writer)| *writer != NOBODY);
        is_seats && !normal.ignores(id)
    };
    let old = |(id, value): (&ObjectId, &Arc<Value>)| {
        let observed = observed(&normal.masked(id, value))?;
        let generation = value["metadata"]["generation"].as_i64()?;
        (observed < generation)
            .then(|| format!("{id}: observed {observed} in the end, it is at {generation}"))
    };
    let objects = run.view.objects.iter().filter(|(id, value)| is_judged(id) && !is_terminating(value));
    objects.filter_map(old).collect()
}

/// Writes of a client whose lease another one has.
fn leases(commits: &[Commit]) -> Vec<String> {
    let (mut identities, mut holders): (BTreeMap<_, _>, BTreeMap<_, _>) = Default::default();
    let mut why = BTreeSet::new();
    for commit in commits {
        if *commit.id.resource == *"leases" {
            let holder = commit.value["spec"]["holderIdentity"].as_str().unwrap_or_default();
            if *commit.client != *NOBODY && !holder.is_empty() {
                identities.insert(commit.client.clone(), (commit.id.clone(), holder.to_owned()));
            }
            holders.insert(commit.id.clone(), holder.to_owned());
        } else if commit.counts
            && let Some((lease, identity)) = identities.get(&commit.client)
            && let Some(holder) =
                holders.get(lease).filter(|holder| *holder != identity && !holder.is_empty())
        {
            let at = commit.at.as_secs_f64();
            why.insert(format!("{at:.3}s {identity} wrote {} while {holder} had {lease}", commit.called));
        }
    }
    why.into_iter().collect()
}
