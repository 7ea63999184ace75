//! Every single fault that can happen to a scenario, found in a run without faults.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::fault::Fault;
use super::run::Outcome;
use super::scenario::Step;
use super::witness::{Change, Commit};
use crate::faults::{Act, Effect, Interference, Match, Refusal};
use crate::request::{RequestInfo, Verb};
use crate::trace::{Entry, What};

/// Longer than a lease lives.
const PAUSE: Duration = Duration::from_secs(40);
/// How fast a slow clock runs, and a fast one, in percent. Less than a lease allows for, which is 1.5.
const SLOW: u32 = 80;
const FAST: u32 = 125;
const STALL: Duration = Duration::from_secs(1);
/// By how many events a watch lags at most.
const MOST_LAG: u64 = 2;
const BUSY: Refusal = Refusal::TooManyRequests { retry_after: Duration::from_secs(1) };

/// The kinds of single faults, in the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum PointKind {
    /// The controller crashes before a write.
    CrashBefore,
    /// The controller crashes after the commit of a write and before its answer.
    CrashAfterCommit,
    /// The controller crashes after the answer to a write.
    CrashAfterAnswer,
    /// The answer to a write is lost.
    AnswerLost,
    /// A change is refused with 409, though nobody else has written.
    Conflict,
    /// Somebody else writes to the object just before a write.
    Touched,
    /// Somebody else creates the same object just before a create.
    CreatedFirst,
    /// A write is refused with 429.
    TooManyRequests,
    /// A write fails with 500.
    ServerError,
    /// A read fails with 500.
    ReadError,
    /// The answer to a read is lost.
    ReadLost,
    /// A read is refused with 429.
    ReadBusy,
    /// A watch is refused with 429.
    WatchBusy,
    /// A watch is refused with 500.
    WatchError,
    /// A watch breaks after an event.
    WatchCut,
    /// A watch expires after an event, and the controller lists again.
    WatchExpired,
    /// A watch is silent for a second after an event.
    WatchStalled,
    /// The events of a watch arrive late by one or two others, from one of them on.
    WatchLags,
    /// A watch is silent after an event until all faults end: this kind is stale, others are not.
    WatchHeld,
    /// A watch is silent after an event and then expires: the states in between are never seen.
    StatesHidden,
    /// The server restarts after a write.
    ServerRestart,
    /// A leader stands still for longer than its lease, after a write.
    LeaderPaused,
    /// A leader cannot renew its lease any more, after a write.
    LeaseLost,
    /// The same, and its clock is slow.
    ClockSlow,
    /// The same, and the clocks of those who wait for its lease are fast.
    ClockFast,
    /// An object of the user is deleted and created again just before a write.
    Recreated,
    /// Somebody deletes a child when all is at rest.
    ChildDeleted,
    /// Somebody sets a child back to what it was, when all is at rest.
    ChildReverted,
    /// A finalizer of somebody else is on an object that is deleted.
    ForeignFinalizer,
    /// The controller restarts onto an older cache: for those whose first list asks for any version.
    OldCache,
    /// No fault: the user changes an object, and takes the change back.
    Rollback,
    /// No fault: the user creates an object as it would be after a change.
    TwoWays,
}

impl PointKind {
    /// All kinds, in the order in which they are tried.
    pub const ALL: [PointKind; 32] = [
        PointKind::CrashBefore,
        PointKind::CrashAfterCommit,
        PointKind::CrashAfterAnswer,
        PointKind::AnswerLost,
        PointKind::Conflict,
        PointKind::Touched,
        PointKind::CreatedFirst,
        PointKind::TooManyRequests,
        PointKind::ServerError,
        PointKind::ReadError,
        PointKind::ReadLost,
        PointKind::ReadBusy,
        PointKind::WatchBusy,
        PointKind::WatchError,
        PointKind::WatchCut,
        PointKind::WatchExpired,
        PointKind::WatchStalled,
        PointKind::WatchLags,
        PointKind::WatchHeld,
        PointKind::StatesHidden,
        PointKind::ServerRestart,
        PointKind::LeaderPaused,
        PointKind::LeaseLost,
        PointKind::ClockSlow,
        PointKind::ClockFast,
        PointKind::Recreated,
        PointKind::ChildDeleted,
        PointKind::ChildReverted,
        PointKind::ForeignFinalizer,
        PointKind::OldCache,
        PointKind::Rollback,
        PointKind::TwoWays,
    ];
}

impl fmt::Display for PointKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            PointKind::CrashBefore => "crash before a write",
            PointKind::CrashAfterCommit => "crash after a commit",
            PointKind::CrashAfterAnswer => "crash after an answer",
            PointKind::AnswerLost => "answer to a write lost",
            PointKind::Conflict => "409",
            PointKind::Touched => "concurrent writer",
            PointKind::CreatedFirst => "concurrent create",
            PointKind::TooManyRequests => "429",
            PointKind::ServerError => "500",
            PointKind::ReadError => "500 to a read",
            PointKind::ReadLost => "answer to a read lost",
            PointKind::ReadBusy => "429 to a read",
            PointKind::WatchBusy => "429 to a watch",
            PointKind::WatchError => "500 to a watch",
            PointKind::WatchCut => "watch cut",
            PointKind::WatchExpired => "watch expired",
            PointKind::WatchStalled => "watch stalled",
            PointKind::WatchLags => "watch lags by events",
            PointKind::WatchHeld => "stale kind",
            PointKind::StatesHidden => "states never seen",
            PointKind::ServerRestart => "server restart",
            PointKind::LeaderPaused => "leader paused",
            PointKind::LeaseLost => "lease not renewed",
            PointKind::ClockSlow => "leader's clock slow",
            PointKind::ClockFast => "others' clocks fast",
            PointKind::Recreated => "deleted and re-created",
            PointKind::ChildDeleted => "child deleted",
            PointKind::ChildReverted => "child set back",
            PointKind::ForeignFinalizer => "foreign finalizer",
            PointKind::OldCache => "restart onto an old cache",
            PointKind::Rollback => "change taken back",
            PointKind::TwoWays => "created as changed",
        })
    }
}

/// A single fault; one of a clock, together with what shows it.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub(crate) kind: PointKind,
    pub(crate) faults: Vec<Fault>,
}

/// What there is to hit in a run, by kind. The number of points follows from it: see [`Targets::points`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Targets {
    /// Writes of explored controllers.
    pub writes: usize,
    /// Those of them that create an object whose name they say.
    pub creates: usize,
    /// Those of them that change an object.
    pub changes: usize,
    /// Those of them that delete an object.
    pub deletes: usize,
    /// Those of them that a leader makes.
    pub leading: usize,
    /// Those of them while somebody else waits for the lease.
    pub contested: usize,
    /// Pairs of a write and an object of the user that is there.
    pub recreatable: usize,
    /// Lists and gets.
    pub reads: usize,
    /// Watches.
    pub watches: usize,
    /// Places between the events of watches, before the first and after the last too.
    pub places: usize,
    /// Places in watches with an event that can arrive late by another one, and those with one that can by two.
    pub lags: usize,
    /// Objects that controllers made and that are there in the end.
    pub children: usize,
    /// Those of them that controllers have changed.
    pub changed_children: usize,
    /// Objects that are deleted.
    pub deleted: usize,
    /// States that a resource had before, for each client whose lists of it ask for any version.
    pub old_states: usize,
    /// Steps that change what the step before has applied.
    pub transitions: usize,
    /// Points of kinds that the scenario leaves out.
    pub left_out: usize,
}

impl Targets {
    /// How many single faults there are: the formula.
    pub fn points(&self) -> usize {
        self.writes * 7
            + self.creates
            + self.changes * 2
            + self.deletes
            + self.leading * 3
            + self.contested
            + self.recreatable
            + self.reads * 3
            + self.watches * 2
            + self.places * 5
            + self.lags
            + self.children
            + self.changed_children
            + self.deleted
            + self.old_states
            + self.transitions * 2
            - self.left_out
    }
}

/// The formula with its numbers.
impl fmt::Display for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} writes × 7 + {} creates + {} changes × 2 + {} deletes + {} writes of leaders × 3 + {} while others wait + {} pairs of a write and \
             a user's object + {} reads × 3 + {} watches × 2 + {} places in watches × 5 + {} lags + {} children + {} changed children + {} deleted objects + {} old states + {} changes by the user × 2 - {} left out = {}",
            self.writes,
            self.creates,
            self.changes,
            self.deletes,
            self.leading,
            self.contested,
            self.recreatable,
            self.reads,
            self.watches,
            self.places,
            self.lags,
            self.children,
            self.changed_children,
            self.deleted,
            self.old_states,
            self.transitions,
            self.left_out,
            self.points(),
        )
    }
}

/// Every single fault.
pub(crate) struct Plan {
    pub(crate) points: Vec<Point>,
    pub(crate) targets: Targets,
}

impl Plan {
    pub(crate) fn new(reference: &Outcome) -> Plan {
        let scenario = &reference.scenario;
        let explored: BTreeSet<&str> = scenario
            .controllers
            .iter()
            .filter(|player| player.is_explored)
            .map(|player| &*player.name)
            .collect();
        let mut plan = Plan { points: Vec::new(), targets: Targets::default() };
        let sent: Vec<&Entry> = reference
            .before_heal()
            .iter()
            .filter(|entry| explored.contains(&*entry.client))
            .filter(|entry| matches!(entry.what, What::Sent { .. }))
            .filter(|entry| !is_aside(&entry.request))
            .collect();
        let nth = |entry: &Entry| {
            let like = Match::like(&entry.client, &entry.request);
            let is_before = |other: &&&Entry| other.client != entry.client || other.number <= entry.number;
            let n = sent
                .iter()
                .filter(is_before)
                .filter(|other| like.selects(&other.client, &other.request))
                .count();
            like.nth(n as u64)
        };
        for entry in &sent {
            match entry.request.verb {
                Verb::Watch => {}
                Verb::NonResource if is_discovery(&entry.request) => {}
                verb if verb.is_write()
                    || (verb == Verb::NonResource && entry.request.method != Method::GET) =>
                {
                    plan.write(&nth(entry), entry, reference)
                }
                _ => plan.read(&nth(entry)),
            }
        }
        for entry in sent.iter().filter(|entry| entry.request.verb == Verb::Watch) {
            let is_event = |other: &&Entry| {
                other.client == entry.client
                    && other.number == entry.number
                    && matches!(other.what, What::Event { .. })
            };
            let events = reference.before_heal().iter().filter(is_event).count() as u64;
            plan.watch(&nth(entry), events);
        }
        plan.objects(&explored, reference);
        plan.old_caches(&sent, reference);
        plan.transitions(&scenario.steps, scenario.has_history);
        let all = plan.points.len();
        plan.points.retain(|point| !scenario.left_out.contains(&point.kind));
        plan.targets.left_out = all - plan.points.len();
        plan.points.sort_by_key(|point| point.kind);
        plan
    }

    fn add(&mut self, kind: PointKind, fault: Fault) {
        self.points.push(Point { kind, faults: vec![fault] });
    }

    fn write(&mut self, on: &Match, entry: &Entry, reference: &Outcome) {
        let mut add = |kind, effect| self.add(kind, Fault::On(on.clone(), effect));
        add(PointKind::CrashBefore, Effect::CrashBefore);
        add(PointKind::CrashAfterCommit, Effect::CrashAfterCommit);
        add(PointKind::CrashAfterAnswer, Effect::CrashAfterAnswer);
        add(PointKind::AnswerLost, Effect::LoseResponse);
        add(PointKind::TooManyRequests, Effect::Refuse(BUSY));
        add(PointKind::ServerError, Effect::Refuse(Refusal::InternalError));
        add(PointKind::ServerRestart, Effect::RestartServer);
        self.targets.writes += 1;
        if !matches!(entry.request.verb, Verb::Create | Verb::NonResource) {
            let touch = Interference { act: Act::Touch, object: None };
            self.add(PointKind::Touched, Fault::On(on.clone(), Effect::Interfere(touch)));
            // A server that cannot delete the object as it was tries again by itself; 409 says that it is another one.
            if matches!(entry.request.verb, Verb::Delete | Verb::DeleteCollection) {
                self.targets.deletes += 1;
            } else {
                self.add(PointKind::Conflict, Fault::On(on.clone(), Effect::Refuse(Refusal::Conflict)));
                self.targets.changes += 1;
            }
        }
        if creates(entry, &reference.commits) {
            let create = Interference { act: Act::Create, object: None };
            self.add(PointKind::CreatedFirst, Fault::On(on.clone(), Effect::Interfere(create)));
            self.targets.creates += 1;
        }
        if leads(&entry.client, &reference.commits) {
            self.add(PointKind::LeaderPaused, Fault::On(on.clone(), Effect::PauseAfterAnswer(PAUSE)));
            self.leases(on, entry, reference);
        }
        let paths: BTreeSet<&str> =
            reference.scenario.steps.iter().filter_map(|step| Some(step.target()?.path.as_str())).collect();
        // A namespace goes slowly, with all that is in it.
        let can_come_back =
            |path: &&str| !path.starts_with("/api/v1/namespaces/") || path.matches('/').count() > 4;
        let there = paths.into_iter().filter(|path| is_there(path, entry.at, &reference.commits));
        for path in there.filter(can_come_back) {
            let object = Interference { act: Act::Recreate, object: Some(path.to_owned()) };
            self.add(PointKind::Recreated, Fault::On(on.clone(), Effect::Interfere(object)));
            self.targets.recreatable += 1;
        }
    }

    /// What can happen to a leader's lease after a write.
    fn leases(&mut self, on: &Match, entry: &Entry, reference: &Outcome) {
        let lost = Fault::On(on.clone(), Effect::LoseLease);
        self.add(PointKind::LeaseLost, lost.clone());
        let slow = Fault::ClockRate(entry.client.to_string(), SLOW);
        self.points.push(Point { kind: PointKind::ClockSlow, faults: vec![lost.clone(), slow] });
        self.targets.leading += 1;
        let is_rival = |other: &&Entry| other.client != entry.client && other.request.resource == "leases";
        let entries = reference.trace.entries().iter();
        let rivals: BTreeSet<&str> = entries.filter(is_rival).map(|other| &*other.client).collect();
        if !rivals.is_empty() {
            let fast = rivals.into_iter().map(|rival| Fault::ClockRate(rival.to_owned(), FAST));
            let faults = [lost].into_iter().chain(fast).collect();
            self.points.push(Point { kind: PointKind::ClockFast, faults });
            self.targets.contested += 1;
        }
    }

    fn read(&mut self, on: &Match) {
        self.add(PointKind::ReadError, Fault::On(on.clone(), Effect::Refuse(Refusal::InternalError)));
        self.add(PointKind::ReadLost, Fault::On(on.clone(), Effect::LoseResponse));
        self.add(PointKind::ReadBusy, Fault::On(on.clone(), Effect::Refuse(BUSY)));
        self.targets.reads += 1;
    }

    fn watch(&mut self, on: &Match, events: u64) {
        self.add(PointKind::WatchBusy, Fault::On(on.clone(), Effect::Refuse(BUSY)));
        self.add(PointKind::WatchError, Fault::On(on.clone(), Effect::Refuse(Refusal::InternalError)));
        self.targets.watches += 1;
        for n in 0..=events {
            let mut add = |kind, effect| self.add(kind, Fault::On(on.clone(), effect));
            add(PointKind::WatchCut, Effect::CutAfterEvents(n));
            add(PointKind::WatchExpired, Effect::ErrorAfterEvents(n, Refusal::Expired));
            add(PointKind::WatchStalled, Effect::StallAfterEvents(n, STALL));
            add(PointKind::WatchHeld, Effect::HoldAfterEvents(n));
            add(PointKind::StatesHidden, Effect::HideAfterEvents(n));
            self.targets.places += 1;
            // With fewer events to come, none of them would arrive: that is a stale kind.
            for k in (1..=MOST_LAG).filter(|k| n.saturating_add(*k) < events) {
                self.add(PointKind::WatchLags, Fault::On(on.clone(), Effect::LagAfterEvents(n, k)));
                self.targets.lags += 1;
            }
        }
    }

    fn old_caches(&mut self, sent: &[&Entry], reference: &Outcome) {
        let asks = |entry: &&&Entry| {
            entry.request.verb == Verb::List && entry.request.query("resourceVersion") == Some("0")
        };
        let lists: BTreeSet<(&str, String)> =
            sent.iter().filter(asks).map(|entry| (&*entry.client, entry.request.group_resource())).collect();
        for (client, resource) in lists {
            let is_state = |commit: &&Commit| {
                commit.counts && commit.at <= reference.healed && commit.id.group_resource() == resource
            };
            let states: Vec<u64> =
                reference.commits.iter().filter(is_state).map(|commit| commit.revision).collect();
            // The last state is not old.
            for revision in states.iter().rev().skip(1).rev() {
                let fault = Fault::OldCache(client.to_owned(), resource.clone(), *revision);
                self.add(PointKind::OldCache, fault);
                self.targets.old_states += 1;
            }
        }
    }

    /// A change and its opposite; two ways to one state.
    fn transitions(&mut self, steps: &[Step], has_history: bool) {
        if has_history {
            return;
        }
        for (at, pair) in steps.windows(2).enumerate() {
            let (Step::Apply(a), Step::Apply(b)) = (&pair[0], &pair[1]) else { continue };
            if a.path != b.path {
                continue;
            }
            let rollback = (0..=at + 1).chain([at]).collect();
            self.add(PointKind::Rollback, Fault::Steps(rollback));
            let direct = (0..at).chain([at + 1]).collect();
            self.add(PointKind::TwoWays, Fault::Steps(direct));
            self.targets.transitions += 1;
        }
    }

    fn objects(&mut self, explored: &BTreeSet<&str>, reference: &Outcome) {
        let mut changes: BTreeMap<_, Vec<&Commit>> = BTreeMap::new();
        for commit in
            reference.commits.iter().filter(|commit| commit.at <= reference.healed && commit.hash != 0)
        {
            changes.entry(&commit.id).or_default().push(commit);
        }
        for (id, commits) in changes {
            let Some(last) = commits.last() else { continue };
            let path = id.api_path(&last.value);
            if last.change == Change::Deleted {
                self.add(PointKind::ForeignFinalizer, Fault::Finalizer(path));
                self.targets.deleted += 1;
                continue;
            }
            let first = commits.iter().rev().find(|commit| commit.change == Change::Created);
            if !first.is_some_and(|first| explored.contains(&*first.client)) {
                continue;
            }
            self.add(PointKind::ChildDeleted, Fault::AtRest(Act::Delete, path.clone()));
            self.targets.children += 1;
            let before = commits.iter().rev().skip(1).map(|commit| content(&commit.value));
            let now = content(&last.value);
            let own = || commits.iter().filter(|commit| explored.contains(&*commit.client)).count() > 1;
            if let Some(earlier) = before.into_iter().find(|earlier| *earlier != now).filter(|_| own()) {
                self.add(PointKind::ChildReverted, Fault::Revert(path, earlier));
                self.targets.changed_children += 1;
            }
        }
    }
}

/// What controllers write beside their work.
pub(crate) fn is_aside(request: &RequestInfo) -> bool {
    matches!(request.resource.as_str(), "events" | "leases")
}

/// What the API server says about itself.
fn is_discovery(request: &RequestInfo) -> bool {
    ["/api", "/version", "/openapi", "/healthz", "/readyz", "/livez"]
        .iter()
        .any(|start| request.path.starts_with(start))
}

/// Whether the request has created the object whose name it says. What has a generated name, another one creates under another.
fn creates(entry: &Entry, commits: &[Commit]) -> bool {
    let request = &entry.request;
    let is_it = |commit: &&Commit| {
        let (namespace, name) = commit.id.path.split_once('/').unwrap_or(("", &commit.id.path));
        commit.change == Change::Created
            && commit.client == entry.client
            && commit.at >= entry.at
            && *commit.id.group == *request.group
            && *commit.id.resource == *request.resource
            && (namespace, name) == (&*request.namespace, &*request.name)
    };
    request.verb == Verb::Create
        && request.subresource.is_empty()
        && commits.iter().any(|commit| is_it(&commit))
}

/// Whether the client has ever had a lease.
fn leads(client: &Arc<str>, commits: &[Commit]) -> bool {
    commits.iter().any(|commit| *commit.id.resource == *"leases" && commit.client == *client)
}

/// Whether the object of this path is there at this time.
fn is_there(path: &str, at: Duration, commits: &[Commit]) -> bool {
    let those = commits.iter().filter(|commit| commit.at <= at && commit.id.api_path(&commit.value) == path);
    those.max_by_key(|commit| commit.revision).is_some_and(|last| last.change != Change::Deleted)
}

/// What an object says, without its metadata and status.
fn content(object: &Value) -> Value {
    let mut content = json!({});
    for (key, value) in object.as_object().into_iter().flatten() {
        if !matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "status") {
            content[key.as_str()] = value.clone();
        }
    }
    content
}
