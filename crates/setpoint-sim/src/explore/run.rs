//! One run of a scenario, with some faults or none.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once, OnceLock};
use std::time::Duration;

use futures::FutureExt;
use http::Method;
use parking_lot::Mutex;
use serde_json::json;
use setpoint_apiserver::Builder;
use setpoint_env::{Process, Task};
use tokio::time::{sleep, timeout};

use super::fault::Fault;
use super::normal::State;
use super::plan::is_aside;
use super::scenario::{Heard, Player, Scenario, Step, Target};
use super::story::{Line, Story};
use super::view::View;
use super::witness::{Commit, NOBODY, Witness};
use crate::faults::{Effect, Hand, Match, Rule};
use crate::trace::{Entry, Trace, What};
use crate::world::World;

/// How long a process is down after it crashed or ended.
const DOWN: Duration = Duration::from_secs(1);
/// How long the world needs to see that something has no owner left.
const GARBAGE: Duration = Duration::from_secs(1);
/// How long a cache stays old.
const OLD: Duration = Duration::from_secs(5);
/// What is not at rest after this goes on, and the next step comes.
const SETTLE_LIMIT: Duration = Duration::from_secs(120);
/// How long somebody waits for an object to go before all faults end.
const DELETE_LIMIT: Duration = Duration::from_secs(60);
const DELETE_POLL: Duration = Duration::from_millis(500);
/// How long one step of the user may take.
const STEP_LIMIT: Duration = Duration::from_secs(24 * 3600);
/// More ends of one process are a crash loop.
const MOST_ENDS: u32 = 20;
/// Who sends the same request more often than this, when all is at rest, does not rest. Who asks every five seconds does.
const LEAST_PAUSE: Duration = Duration::from_secs(3);
const MERGE: &str = "application/merge-patch+json";
const FINALIZER: &str = "sim.setpoint.dev/foreign";

/// What a run has come to.
pub(crate) struct Outcome {
    pub(crate) scenario: Scenario,
    /// What there is in the end, as it is compared.
    pub(crate) state: State,
    /// What there is in the end.
    pub(crate) view: View,
    /// What there was after each step.
    pub(crate) states: Vec<State>,
    pub(crate) commits: Vec<Commit>,
    pub(crate) trace: Trace,
    /// What went wrong without anything to compare with.
    pub(crate) troubles: Vec<String>,
    /// What was written in the end when nothing should be, and requests that were sent again and again.
    pub(crate) unrest: Vec<String>,
    /// When the faults ended.
    pub(crate) healed: Duration,
    /// How many entries the trace had then: requests at the same moment can be before it, and after it.
    pub(crate) before_heal: usize,
    /// Faults that never took place.
    pub(crate) missed: Vec<Fault>,
    pub(crate) story: Story,
}

impl Outcome {
    /// What happened until the faults ended.
    pub(crate) fn before_heal(&self) -> &[Entry] {
        &self.trace.entries()[..self.before_heal]
    }
}

/// What a run is made of.
#[derive(Clone)]
pub(crate) struct Make {
    pub(crate) scenario: Arc<dyn Fn(&World) -> Scenario + Send + Sync>,
    pub(crate) server: Arc<dyn Fn(Builder) -> Builder + Send + Sync>,
}

/// How a run is made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    pub(crate) seed: u64,
    /// Whether the story is wanted, with what the runtime tells.
    pub(crate) is_told: bool,
}

/// Runs a scenario. `expected` is what it must come to; without it, where it comes to rest is where it ends.
pub(crate) fn run(make: &Make, faults: &[Fault], expected: Option<&State>, options: Options) -> Outcome {
    let panics = Panics::gather();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing from the system");
    let order = faults.iter().find_map(|fault| match fault {
        Fault::Order(seed) => Some(*seed),
        _ => None,
    });
    let played = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let running = Running::start(make, options, order);
            running.play(faults, expected).await
        })
    }));
    let ended = catch_unwind(AssertUnwindSafe(|| drop(runtime)));
    let mut outcome = match played.and_then(|outcome| ended.map(|()| outcome)) {
        Ok(outcome) => outcome,
        // Nobody has printed it yet.
        Err(_) => panic!("the scenario cannot be told: {}", panics.end().join("\n")),
    };
    outcome.troubles.extend(panics.end().into_iter().map(|panic| format!("a panic: {panic}")));
    outcome
}

struct Running {
    world: World,
    scenario: Scenario,
    witness: Witness,
    hand: Hand,
    told: Arc<Told>,
    options: Options,
    tasks: Vec<Task<()>>,
    /// The rules that the faults are, with their places among the faults.
    rules: Vec<(usize, Rule)>,
}

/// What is noted on the way.
#[derive(Default)]
struct Told {
    lines: Mutex<Vec<Line>>,
    troubles: Mutex<Vec<String>>,
    facts: Mutex<Vec<(Arc<str>, Heard)>>,
    /// The process of each controller.
    processes: Mutex<BTreeMap<Arc<str>, Process>>,
    /// Faults that found nothing to happen to.
    missed: Mutex<Vec<Fault>>,
}

impl Running {
    fn start(make: &Make, options: Options, order: Option<u64>) -> Running {
        let early = Arc::new(Mutex::new(Vec::new()));
        let witness = Arc::new(OnceLock::<Witness>::new());
        let (kept, seen) = (early.clone(), witness.clone());
        let world = World::with_server(options.seed, |server| {
            (make.server)(server).observer(move |committed| match seen.get() {
                Some(witness) => witness.see(&committed),
                None => kept.lock().push(committed),
            })
        });
        if let Some(seed) = order {
            world.env().shuffle(seed);
        }
        let scenario = (make.scenario)(&world);
        world.faults().limit_requests_at_once(scenario.requests_at_once);
        // What the server made before anybody came.
        let witness = witness.get_or_init(|| Witness::new(&scenario));
        early.lock().drain(..).for_each(|committed| witness.see(&committed));
        let (witness, hand) = (witness.clone(), world.hand());
        Running {
            world,
            scenario,
            witness,
            hand,
            told: Arc::default(),
            options,
            tasks: Vec::new(),
            rules: Vec::new(),
        }
    }

    async fn play(mut self, faults: &[Fault], expected: Option<&State>) -> Outcome {
        for target in &self.scenario.given {
            self.apply(target).await;
        }
        let players = self.scenario.controllers.clone();
        self.arm(faults);
        self.collect_garbage();
        self.foreign_finalizers(faults);
        for player in players {
            self.supervise(player);
        }
        self.settle().await;
        let mut states = vec![self.witness.state()];
        for step in self.scenario.steps.clone() {
            self.tell("user", step.to_string());
            self.take(&step).await;
            self.settle().await;
            if faults.is_empty() {
                states.push(self.witness.state());
            }
        }
        for fault in faults {
            self.at_rest(fault).await;
        }
        let before_heal = self.world.trace().entries().len();
        self.world.faults().heal();
        self.end_foreign_finalizers(faults).await;
        let healed = self.world.now();
        self.heal(expected).await;
        let quiet = self.rest().await;
        let unrest = self.livelocks().into_iter().chain(quiet).collect();
        let outcome = self.outcome(states, healed, unrest, faults);
        Outcome { before_heal, ..outcome }
    }

    /// Gets the faults ready.
    fn arm(&mut self, faults: &[Fault]) {
        for (at, fault) in faults.iter().enumerate() {
            match fault {
                Fault::On(matching, effect) => {
                    let rule = self.world.faults().on(matching.clone()).inject(effect.clone());
                    self.rules.push((at, rule));
                }
                Fault::ClockRate(client, percent) => {
                    self.world.faults().set_clock_rate(client, f64::from(*percent) / 100.0);
                }
                Fault::Steps(steps) => {
                    let all = std::mem::take(&mut self.scenario.steps);
                    self.scenario.steps = steps.iter().filter_map(|at| all.get(*at).cloned()).collect();
                    if self.scenario.steps.len() < steps.len() {
                        self.told.missed.lock().push(fault.clone());
                    }
                    // Goals are those of the whole story.
                    self.scenario.goals.clear();
                }
                _ => {}
            }
        }
    }

    fn outcome(
        &self,
        states: Vec<State>,
        healed: Duration,
        unrest: Vec<String>,
        faults: &[Fault],
    ) -> Outcome {
        let view = View { objects: self.witness.live() };
        let mut missed = std::mem::take(&mut *self.told.missed.lock());
        missed.extend(
            self.rules.iter().filter(|(_, rule)| rule.fired() == 0).map(|(at, _)| faults[*at].clone()),
        );
        let mut troubles = std::mem::take(&mut *self.told.troubles.lock());
        let (state, commits) = (self.witness.state(), self.witness.commits());
        for (at, what) in self.witness.broken() {
            troubles.push(format!("{:.3}s what must always hold did not: {what}", at.as_secs_f64()));
        }
        for (name, goal) in &self.scenario.goals {
            if let Err(why) = held(|| goal(&view)) {
                troubles.push(format!("in the end the goal is not reached: {name}: {why}"));
            }
        }
        let mut story = Story { lines: std::mem::take(&mut *self.told.lines.lock()) };
        let (trace, fired) = (self.world.trace(), self.world.faults().fired());
        if self.options.is_told {
            story.add_requests(&trace, &commits);
            story.add_faults(&fired);
            for (client, facts) in self.told.facts.lock().iter() {
                facts.lock().iter_mut().for_each(|facts| story.add_facts(client, facts));
            }
            story.sort();
        }
        let scenario = self.scenario.clone();
        let before_heal = trace.entries().len();
        Outcome {
            scenario,
            state,
            view,
            states,
            commits,
            trace,
            troubles,
            unrest,
            healed,
            before_heal,
            missed,
            story,
        }
    }

    fn tell(&self, who: &str, what: String) {
        self.told.lines.lock().push(Line { at: self.world.now(), who: who.into(), what, is_fault: false });
    }

    async fn apply(&self, target: &Target) {
        let mut object = target.object.clone();
        // What the server writes cannot be applied.
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.retain(|key, value| {
                !value.is_null() && key != "managedFields" && key != "creationTimestamp"
            });
        }
        if self.hand.apply(&target.path, &object).await.is_none() {
            self.told.troubles.lock().push(format!("the scenario cannot apply {}", target.path));
        }
    }

    /// Deletes an object and waits until it is gone, as kubectl does. A fault that keeps it from going ends: the story cannot
    /// go on with it.
    async fn delete(&self, target: &Target) {
        self.hand.delete(&target.path, json!({})).await;
        for limit in [DELETE_LIMIT, self.scenario.healing] {
            let gone = async {
                while self.hand.get(&target.path).await.is_some() {
                    sleep(DELETE_POLL).await;
                }
            };
            if timeout(limit, gone).await.is_ok() {
                return;
            }
            self.tell("user", format!("{} does not go: all faults end", target.path));
            self.world.faults().heal();
        }
    }

    async fn take(&self, step: &Step) {
        match step {
            Step::Apply(target) => self.apply(target).await,
            Step::Delete(target) => self.delete(target).await,
            Step::Act(name, act) => {
                let acting = AssertUnwindSafe(async { act(self.world.clone()).await }).catch_unwind();
                let trouble = match timeout(STEP_LIMIT, acting).await {
                    Ok(Ok(Ok(()))) => return,
                    Ok(Ok(Err(why))) => format!("step {name:?} failed: {why}"),
                    // What it said is told with the other panics.
                    Ok(Err(_)) => format!("step {name:?} panicked"),
                    Err(_) => format!("step {name:?} takes longer than {STEP_LIMIT:?}"),
                };
                self.told.troubles.lock().push(trouble);
            }
        }
    }

    /// Waits until nothing has been written for a while.
    async fn settle(&self) {
        let end = self.world.now().saturating_add(SETTLE_LIMIT);
        loop {
            let before = self.witness.counted();
            sleep(self.scenario.quiet).await;
            if self.witness.counted() == before || self.world.now() > end {
                return;
            }
        }
    }

    /// Waits until everything is as expected, or for as long as it may take.
    async fn heal(&self, expected: Option<&State>) {
        let end = self.world.now().saturating_add(self.scenario.healing);
        loop {
            let before = self.witness.counted();
            sleep(self.scenario.quiet).await;
            let is_quiet = self.witness.counted() == before;
            let is_there = || expected.is_none_or(|expected| *expected == self.witness.state());
            if (is_quiet && is_there()) || self.world.now() > end {
                return;
            }
        }
    }

    /// What is written when nothing should be, and what is sent again and again, though nothing comes of it.
    async fn rest(&self) -> Vec<String> {
        let (before, start) = (self.witness.commits().len(), self.world.now());
        sleep(self.scenario.rest).await;
        let commits = self.witness.commits();
        let mut writes: BTreeMap<String, usize> = BTreeMap::new();
        for commit in commits[before..].iter().filter(|commit| self.is_unrest(commit)) {
            let write = format!("{} {:?} {}", commit.client, commit.change, commit.called);
            *writes.entry(write).or_default() += 1;
        }
        let writes = writes.into_iter().map(|(write, count)| match count {
            1 => write,
            _ => format!("{write}, {count} times"),
        });
        writes.chain(self.again_and_again(start)).collect()
    }

    /// Whether nobody may write this when all is at rest. What runs beside may write times, as a kubelet does.
    fn is_unrest(&self, commit: &Commit) -> bool {
        let is_explored = || self.is_explored(&commit.client);
        *commit.client != *NOBODY && (commit.counts || (commit.is_rewrite && is_explored()))
    }

    fn is_explored(&self, name: &str) -> bool {
        self.scenario.controllers.iter().any(|player| player.is_explored && *player.name == *name)
    }

    /// Controllers that were stopped because they never waited, each with the request that it sent most.
    fn livelocks(&self) -> Vec<String> {
        let trace = self.world.trace();
        let livelock = |(client, at): (Arc<str>, Duration)| {
            let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
            let sent = trace.entries().iter().filter(|entry| matches!(entry.what, What::Sent { .. }));
            for entry in sent.filter(|entry| entry.client == client && entry.at == at) {
                *counts.entry((entry.request.method.as_str(), entry.request.bare_path())).or_default() += 1;
            }
            let ((method, path), count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
            let at = at.as_secs_f64();
            Some(format!(
                "{client} sends {method} {path} {count} times at {at:.3}s without waiting, and was stopped: it triggers itself"
            ))
        };
        self.world.faults().stopped().into_iter().filter_map(livelock).collect()
    }

    /// Requests that an explored controller has sent too often since then.
    fn again_and_again(&self, start: Duration) -> Vec<String> {
        let trace = self.world.trace();
        let mut counts: BTreeMap<(&str, &str, &str), u32> = BTreeMap::new();
        for entry in trace.entries().iter().rev().take_while(|entry| entry.at >= start) {
            let request = &entry.request;
            if matches!(entry.what, What::Sent { .. })
                && !is_aside(request)
                && self.is_explored(&entry.client)
            {
                let what = (&*entry.client, request.method.as_str(), request.bare_path());
                let count = counts.entry(what).or_default();
                *count = count.saturating_add(1);
            }
        }
        let most = self.scenario.rest.as_secs() / LEAST_PAUSE.as_secs();
        let those = counts.into_iter().filter(|(_, count)| u64::from(*count) > most.max(5));
        those
            .map(|((client, method, path), count)| {
                format!("{client} sends {method} {path} {count} times in {:?}", self.scenario.rest)
            })
            .collect()
    }

    /// Runs a controller, again after each of its ends.
    fn supervise(&mut self, player: Player) {
        let (world, told, is_told) = (self.world.clone(), self.told.clone(), self.options.is_told);
        let spawned = self.world.env().spawn(async move {
            let mut ends = 0;
            for process in 1.. {
                let (seat, handle) = world.seat(&player.name, process, player.is_explored, is_told);
                let env = seat.env();
                told.processes.lock().insert(player.name.clone(), handle.clone());
                if let Some(facts) = &seat.facts {
                    told.facts.lock().push((player.name.clone(), facts.clone()));
                }
                let mut running = env.spawn((player.start)(seat));
                let end = tokio::select! {
                    biased;
                    () = handle.killed() => None,
                    end = &mut running => Some(end),
                };
                // Not one line of it runs any more, also of what it spawned and left.
                handle.kill();
                drop(running);
                if world.faults().is_stopped(&player.name) {
                    // It would do the same again.
                    return;
                }
                if let Some(end) = end {
                    ends += 1;
                    let what = match end {
                        Ok(Ok(())) => "it ended".to_owned(),
                        Ok(Err(error)) => format!("it ended: {error}"),
                        Err(panic) => format!("it panicked: {panic}"),
                    };
                    let line = Line { at: world.now(), who: player.name.clone(), what, is_fault: false };
                    told.lines.lock().push(line);
                    if ends == MOST_ENDS {
                        let trouble = format!("{} has ended {MOST_ENDS} times", player.name);
                        return told.troubles.lock().push(trouble);
                    }
                }
                sleep(DOWN).await;
            }
        });
        self.tasks.push(spawned);
    }

    /// Deletes what has no owner left, as a garbage collector does.
    fn collect_garbage(&mut self) {
        if !self.scenario.collects_garbage {
            return;
        }
        let (witness, hand) = (self.witness.clone(), self.hand.clone());
        self.tasks.push(self.world.env().spawn(async move {
            loop {
                witness.orphans.notified().await;
                sleep(GARBAGE).await;
                for (id, value) in witness.garbage() {
                    let uid = json!({"preconditions": {"uid": value["metadata"]["uid"]}});
                    hand.delete(&id.api_path(&value), uid).await;
                }
            }
        }));
    }

    /// Puts finalizers on objects as soon as they are there.
    fn foreign_finalizers(&mut self, faults: &[Fault]) {
        for fault in faults {
            let Fault::Finalizer(path) = fault else { continue };
            let (hand, path, told, world) =
                (self.hand.clone(), path.clone(), self.told.clone(), self.world.clone());
            // Until its object is there.
            told.missed.lock().push(fault.clone());
            let fault = fault.clone();
            self.tasks.push(self.world.env().spawn(async move {
                loop {
                    if let Some(object) = hand.get(&path).await {
                        let mut finalizers =
                            object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
                        finalizers.push(FINALIZER.into());
                        let patch = json!({"metadata": {"finalizers": finalizers}});
                        hand.send(Method::PATCH, &path, MERGE, Some(&patch)).await;
                        told.missed.lock().retain(|missed| *missed != fault);
                        let what = format!("put a finalizer on {path}");
                        let line = Line { at: world.now(), who: "somebody".into(), what, is_fault: true };
                        return told.lines.lock().push(line);
                    }
                    sleep(Duration::from_millis(10)).await;
                }
            }));
        }
    }

    async fn end_foreign_finalizers(&self, faults: &[Fault]) {
        for fault in faults {
            let Fault::Finalizer(path) = fault else { continue };
            if let Some(object) = self.hand.get(path).await {
                let mut finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
                finalizers.retain(|finalizer| finalizer != FINALIZER);
                let patch = json!({"metadata": {"finalizers": finalizers}});
                self.hand.send(Method::PATCH, path, MERGE, Some(&patch)).await;
            }
        }
    }

    async fn at_rest(&self, fault: &Fault) {
        if let Fault::AtRest(_, path) | Fault::Revert(path, _) = fault
            && self.hand.get(path).await.is_none()
        {
            return self.told.missed.lock().push(fault.clone());
        }
        match fault {
            Fault::AtRest(act, path) => self.hand.act(*act, path).await,
            Fault::Revert(path, value) => drop(self.hand.send(Method::PATCH, path, MERGE, Some(value)).await),
            Fault::OldCache(client, resource, revision) => {
                let faults = self.world.faults();
                faults.travel_back(client, resource, *revision);
                // What is newer comes a while later.
                let watches = Match::watch(resource).client(client);
                faults.on(watches).inject(Effect::StallAfterEvents(0, OLD)).always();
                if let Some(process) = self.told.processes.lock().get(client.as_str()) {
                    process.kill();
                }
            }
            Fault::On(..)
            | Fault::Finalizer(_)
            | Fault::Order(_)
            | Fault::ClockRate(..)
            | Fault::Steps(_) => return,
        }
        let line =
            Line { at: self.world.now(), who: "somebody".into(), what: fault.to_string(), is_fault: true };
        self.told.lines.lock().push(line);
        self.settle().await;
    }
}

/// What a check of the user says; a panic is told with the others.
pub(crate) fn held(check: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(check)).unwrap_or_else(|_| Err("it panicked".to_owned()))
}

thread_local! {
    /// What panicked on this thread, while a run is on it.
    static PANICS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Gathers panics instead of printing them: a panic is a finding, also where a restart would hide it.
struct Panics;

impl Panics {
    fn gather() -> Panics {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                let is_gathered = PANICS.with_borrow_mut(|panics| {
                    panics.as_mut().map(|panics| panics.push(info.to_string())).is_some()
                });
                if !is_gathered {
                    before(info);
                }
            }));
        });
        PANICS.set(Some(Vec::new()));
        Panics
    }

    fn end(self) -> Vec<String> {
        PANICS.take().unwrap_or_default()
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        PANICS.set(None);
    }
}
