//! Every fault at every point of a scenario, judged without a specification.
//!
//! A run without faults is the *reference*: it shows what each controller writes and which events it sees, and where the
//! scenario ends. From it follows a finite list of single faults. Each of them is tried, and every run is judged by what it
//! comes to: see [`Oracle`]. Then come several faults at once, for as long as there is time.

mod fault;
mod html;
mod judge;
mod normal;
mod object;
mod paint;
mod plan;
mod report;
mod run;
mod scenario;
mod search;
mod settings;
mod story;
mod timelines;
mod view;
mod witness;

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

pub use fault::Fault;
pub use judge::{Oracle, Violation};
pub use object::ObjectId;
use parking_lot::Mutex;
pub use plan::{PointKind, Targets};
pub use scenario::{Scenario, Seat};
use setpoint_apiserver::Builder;
pub use view::View;

use self::judge::{judge, judge_alone};
use self::normal::State;
use self::plan::{Plan, Point};
use self::report::Progress;
use self::run::{Make, Options, Outcome, run};
use self::settings::Settings;
use crate::determinism::{Nondeterminism, first_difference};
use crate::trace::Trace;
use crate::world::World;

/// How many findings are explained; more are counted.
const EXPLAINED: usize = 3;
/// Where the randomness of every run begins: a pasted test needs the same.
const SEED: u64 = 1;
/// How often a run is made again to see where it differs.
const TRIES: usize = 20;

/// Explores a scenario: every single fault, then several at once, for as long as `SETPOINT_SIM_BUDGET` says (`60s`; none
/// unless set).
///
/// The scenario is called once for every run, with that run's world. With `SETPOINT_SIM_STORY` set, the run without faults is
/// told, and nothing is explored; with `SETPOINT_SIM_STORY=requests`, by all its requests.
///
/// # Panics
/// When something was found. The message is the report: the least faults that show it, what is wrong, both timelines side
/// by side, and the test to paste. As a page for the browser it is in the folder `SETPOINT_SIM_REPORT`, if that is set. Also
/// when one of these variables has a value that says nothing, and when nothing was tried: see [`Exploration::nothing_tried`].
#[track_caller]
pub fn explore(scenario: impl Fn(&World) -> Scenario + Send + Sync + 'static) {
    let explorer = Explorer::new(&name_of_test(Location::caller()), scenario);
    if std::env::var_os("SETPOINT_SIM_STORY").is_some() {
        report::print(&explorer.story());
    } else {
        explorer.run().assert_nothing_found();
    }
}

/// Runs a scenario once, with these faults: what a report gives to paste.
///
/// # Panics
/// When something is wrong with the run, with the same report; and when one of the faults never takes place, since then the
/// test says nothing any more.
#[track_caller]
pub fn replay(
    scenario: impl Fn(&World) -> Scenario + Send + Sync + 'static,
    faults: impl IntoIterator<Item = Fault>,
) {
    let name = name_of_test(Location::caller());
    Explorer::new(&name, scenario).replay(&faults.into_iter().collect::<Vec<_>>()).assert_nothing_found();
}

/// Tests have a thread each, that is called like them; one at a time, they run in the main one.
fn name_of_test(caller: &Location<'_>) -> String {
    match thread::current().name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => caller.to_string(),
    }
}

/// An exploration with other settings than those of [`explore`].
#[must_use = "an explorer does nothing until it is run"]
pub struct Explorer {
    name: String,
    /// The path of the function that makes the scenario.
    function: &'static str,
    make: Make,
    settings: Settings,
}

/// What an exploration has come to.
#[derive(Debug)]
#[non_exhaustive]
pub struct Exploration {
    /// The name of the scenario.
    pub name: String,
    /// What there is to hit in a run without faults.
    pub targets: Targets,
    /// How many single faults of each kind were tried, and how many of these runs went wrong.
    pub tried: BTreeMap<PointKind, Tried>,
    /// How many runs with several faults there were.
    pub several: Tried,
    /// How many runs there were in all.
    pub runs: usize,
    /// How long it took.
    pub took: Duration,
    /// What was found.
    pub findings: Vec<Finding>,
    /// Points whose faults never took place: they are neither tried nor clean.
    pub unreached: Vec<Unreached>,
    /// Why it means nothing that nothing was found, if so: no controller has written anything, or no point was tried.
    pub nothing_tried: Option<String>,
    /// What the choice of several faults at once followed.
    pub seed: u64,
}

/// How many runs there were, and how many of them went wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tried {
    /// Runs in which the fault took place, or that went wrong without it.
    pub runs: usize,
    /// Those that went wrong.
    pub failed: usize,
    /// Runs in which the fault never took place.
    pub unreached: usize,
}

/// A point whose fault never took place.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Unreached {
    /// The number of the point, for `SETPOINT_SIM_POINT`.
    pub point: usize,
    /// The faults of the point that never took place.
    pub faults: Vec<Fault>,
}

/// A run that went wrong.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// The least faults that show it; none if it goes wrong without any.
    pub faults: Vec<Fault>,
    /// What is wrong.
    pub violations: Vec<Violation>,
    /// How many runs it took to find it.
    pub runs: usize,
    /// The number of the single fault, for `SETPOINT_SIM_POINT`.
    pub point: Option<usize>,
    /// The kind of the single fault.
    pub kind: Option<PointKind>,
    /// Whether a seed chose it among the runs with several faults at once.
    pub(crate) is_of_several: bool,
    /// The test to paste.
    pub test: String,
    /// Everything about it, for a terminal. Only the first findings have it.
    pub report: String,
}

impl Explorer {
    /// Settings as the environment has them.
    ///
    /// # Panics
    /// When a variable has a value that says nothing.
    #[track_caller]
    pub fn new<S>(name: &str, scenario: S) -> Explorer
    where
        S: Fn(&World) -> Scenario + Send + Sync + 'static,
    {
        let make = Make { scenario: Arc::new(scenario), server: Arc::new(|server| server) };
        let settings = Settings::from_environment().unwrap_or_else(|error| panic!("{error}"));
        Explorer { name: name.to_owned(), function: std::any::type_name::<S>(), make, settings }
    }

    /// Other settings of the API server.
    pub fn server(mut self, set: impl Fn(Builder) -> Builder + Send + Sync + 'static) -> Explorer {
        self.make.server = Arc::new(set);
        self
    }

    /// For how long several faults at once are tried, after every single one.
    pub fn budget(mut self, time: Duration) -> Explorer {
        self.settings.budget = time;
        self
    }

    /// How many runs there are at the same time; one a core unless set. What single faults find does not depend on it. Of several
    /// faults at once, more are tried within the budget.
    pub fn threads(mut self, threads: usize) -> Explorer {
        self.settings.threads = threads.max(1);
        self
    }

    /// What the choice of several faults at once follows, and the order of tasks in their runs; 1 unless set, or
    /// `SETPOINT_SIM_SEED`. Single faults do not depend on it.
    pub fn seed(mut self, seed: u64) -> Explorer {
        self.settings.seed = seed;
        self
    }

    fn options(&self) -> Options {
        Options { seed: SEED, ..Options::default() }
    }

    fn begin(&self, targets: Targets) -> Exploration {
        Exploration {
            name: self.name.clone(),
            targets,
            tried: BTreeMap::new(),
            several: Tried::default(),
            runs: 1,
            took: Duration::ZERO,
            findings: Vec::new(),
            unreached: Vec::new(),
            nothing_tried: None,
            seed: self.settings.seed,
        }
    }

    /// One number for everything that passes between clients and server in a run with this seed, with the order of tasks
    /// chosen by it.
    pub fn hash(&self, seed: u64) -> u64 {
        self.trace(seed).hash()
    }

    fn trace(&self, seed: u64) -> Trace {
        run(&self.make, &[Fault::Order(seed)], None, Options { seed, is_told: false }).trace
    }

    /// Runs the scenario twice with each seed, on different threads, and compares all that passes between clients and server.
    /// Gives one number for all of it, which is the same on other machines, too.
    ///
    /// # Errors
    /// The first difference.
    pub fn check_determinism(&self, seeds: Range<u64>) -> Result<u64, Nondeterminism> {
        let first = self.hashes(seeds.clone(), self.settings.threads);
        // In other parts: what ran on one thread runs on another.
        let second = self.hashes(seeds.clone(), self.settings.threads.saturating_add(1));
        let differs = first.iter().zip(&second).zip(seeds).find(|((first, second), _)| first != second);
        match differs {
            Some((_, seed)) => Err(self.difference(seed)),
            None => Ok(first.iter().fold(0u64, |all, hash| all.rotate_left(7) ^ hash)),
        }
    }

    fn hashes(&self, seeds: Range<u64>, threads: usize) -> Vec<u64> {
        let seeds: Vec<u64> = seeds.collect();
        let mut hashes = vec![0; seeds.len()];
        let share = seeds.len().div_ceil(threads.max(1)).max(1);
        thread::scope(|scope| {
            let parts = seeds.chunks(share).zip(hashes.chunks_mut(share));
            let work = |(seeds, hashes): (&[u64], &mut [u64])| {
                seeds.iter().zip(hashes).for_each(|(seed, hash)| *hash = self.hash(*seed));
            };
            let workers: Vec<_> = parts.map(|part| scope.spawn(move || work(part))).collect();
            workers.into_iter().for_each(joined);
        });
        hashes
    }

    /// Where two runs of a seed differ that was seen to differ before.
    fn difference(&self, seed: u64) -> Nondeterminism {
        let first = self.trace(seed);
        let other = (0..TRIES).map(|_| self.trace(seed)).find(|other| other.hash() != first.hash());
        first_difference(seed, &first, &other.unwrap_or_default())
    }

    /// What happens without faults, a line each.
    pub fn story(&self) -> String {
        let outcome = run(&self.make, &[], None, Options { is_told: true, ..self.options() });
        let is_all = std::env::var("SETPOINT_SIM_STORY").is_ok_and(|what| what == "requests");
        if is_all { outcome.trace.to_string() } else { outcome.story.to_string() }
    }

    /// Explores.
    ///
    /// # Panics
    /// When the scenario itself panics, or `SETPOINT_SIM_POINT` is beyond the last point.
    pub fn run(&self) -> Exploration {
        let exploration = self.explore();
        if let Some(file) = &self.settings.table {
            report::row(file, &exploration);
        }
        exploration
    }

    fn explore(&self) -> Exploration {
        let clock = report::Clock::start();
        let reference = run(&self.make, &[], None, self.options());
        let plan = Plan::new(&reference);
        let mut exploration = self.begin(plan.targets);
        let alone = judge_alone(&reference);
        if !alone.is_empty() {
            // Without faults it must be right: everything else is compared with it.
            self.find(&mut exploration, &reference, Finding::new(&[], alone, 1));
            exploration.took = clock.elapsed();
            return exploration;
        }
        let progress = Progress::new(&self.name, plan.points.len());
        if let Some(beyond) = self.settings.points.iter().flatten().find(|at| **at >= plan.points.len()) {
            panic!("SETPOINT_SIM_POINT={beyond}: {} has {} points, from 0", self.name, plan.points.len());
        }
        let wanted = |index: &usize| self.settings.wants(*index, plan.points[*index].kind);
        let indices: Vec<usize> = (0..plan.points.len()).filter(wanted).collect();
        let noted = Mutex::new(Vec::new());
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            let work = || {
                loop {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&index) = indices.get(nth) else { return };
                    let faults = &plan.points[index].faults;
                    let outcome = self.run_beside(&reference, faults);
                    let violations = judge(&reference, &outcome, faults);
                    progress.ran(!violations.is_empty());
                    if !violations.is_empty() || !outcome.missed.is_empty() {
                        noted.lock().push((nth, violations, outcome.missed));
                    }
                }
            };
            let workers: Vec<_> = (0..self.settings.threads).map(|_| scope.spawn(work)).collect();
            workers.into_iter().for_each(joined);
        });
        for index in &indices {
            exploration.tried.entry(plan.points[*index].kind).or_default().runs += 1;
        }
        exploration.runs += indices.len();
        let mut noted = noted.into_inner();
        noted.sort_by_key(|(nth, ..)| *nth);
        for (nth, violations, missed) in noted {
            let index = indices[nth];
            let Point { kind, faults } = &plan.points[index];
            let tried = exploration.tried.entry(*kind).or_default();
            if violations.is_empty() {
                tried.runs -= 1;
                tried.unreached += 1;
                exploration.unreached.push(Unreached { point: index, faults: missed });
                continue;
            }
            tried.failed += 1;
            // The run without faults was the first.
            let finding = Finding::new(faults, violations, nth + 2);
            let finding = Finding { point: Some(index), kind: Some(*kind), ..finding };
            self.find(&mut exploration, &reference, finding);
        }
        exploration.nothing_tried = nothing_tried(&exploration, indices.len());
        if exploration.findings.is_empty() && !self.settings.budget.is_zero() && !self.settings.is_part() {
            self.several(&plan, &reference, &progress, &mut exploration);
        }
        progress.end();
        exploration.took = clock.elapsed();
        exploration
    }

    /// Runs it once with these faults.
    pub fn replay(&self, faults: &[Fault]) -> Exploration {
        let clock = report::Clock::start();
        let reference = run(&self.make, &[], None, self.options());
        let outcome = self.run_beside(&reference, faults);
        let mut exploration = Exploration { runs: 2, ..self.begin(Targets::default()) };
        let mut violations = judge(&reference, &outcome, faults);
        if !outcome.missed.is_empty() {
            let why = outcome.missed.iter().map(ToString::to_string).collect();
            violations.push(Violation { oracle: Oracle::Missed, why });
        }
        if !violations.is_empty() {
            self.find(&mut exploration, &reference, Finding::new(faults, violations, 2));
        }
        exploration.took = clock.elapsed();
        exploration
    }

    /// A run with these faults, which has to come to what the reference came to.
    fn run_beside(&self, reference: &Outcome, faults: &[Fault]) -> Outcome {
        run(&self.make, faults, expected(reference, faults), self.options())
    }

    /// Notes a finding, and explains it if it is one of the first.
    fn find(&self, exploration: &mut Exploration, reference: &Outcome, mut finding: Finding) {
        let is_explained = exploration.findings.len() < EXPLAINED;
        if is_explained {
            self.shrink(reference, &mut finding);
        }
        if !finding.faults.is_empty() {
            finding.test = report::code(&self.name, self.function, &finding);
        }
        if is_explained {
            let told = Options { is_told: true, ..self.options() };
            let without = run(&self.make, &[], None, told);
            let with = run(&self.make, &finding.faults, expected(reference, &finding.faults), told);
            finding.report = report::text(&self.name, &finding, &without.story, &with.story);
            if finding.is_of_several {
                finding.report.push_str(&report::again_with_several(&self.name, &self.settings));
            }
            if let Some(folder) = &self.settings.reports {
                let page = html::page(&self.name, &finding, &without.story, &with.story);
                let file = folder.join(format!(
                    "{}-{}.html",
                    self.name.replace("::", "-"),
                    exploration.findings.len()
                ));
                let lines = timelines::json(&self.name, &finding, &without.story, &with.story);
                let written = std::fs::create_dir_all(folder)
                    .and_then(|()| std::fs::write(&file, page))
                    .and_then(|()| std::fs::write(file.with_extension("json"), lines));
                finding.report.push_str(&match written {
                    Ok(()) => format!(
                        "\nAs a page: {}; beside it a .json file for the page of the dashboard\n",
                        file.display()
                    ),
                    Err(error) => format!("\nThe page {} cannot be written: {error}\n", file.display()),
                });
            }
        }
        exploration.findings.push(finding);
    }
}

impl Exploration {
    /// Prints what was tried, and fails if something was found, or if nothing was tried.
    ///
    /// # Panics
    /// When something was found: the message is the report. When [`nothing_tried`](Exploration::nothing_tried) says why that
    /// nothing was found means nothing.
    #[track_caller]
    pub fn assert_nothing_found(&self) {
        report::print(&self.to_string());
        if !self.findings.is_empty() {
            panic!("{}", paint::report(&report::all(self)));
        }
        if let Some(why) = &self.nothing_tried {
            panic!("{}: nothing was found, but {why}", self.name);
        }
    }
}

impl Finding {
    fn new(faults: &[Fault], violations: Vec<Violation>, runs: usize) -> Finding {
        Finding {
            faults: faults.to_vec(),
            violations,
            runs,
            point: None,
            kind: None,
            is_of_several: false,
            test: String::new(),
            report: String::new(),
        }
    }
}

/// Why it means nothing that nothing was found in so many points, if so.
fn nothing_tried(exploration: &Exploration, points: usize) -> Option<String> {
    if exploration.targets.writes == 0 {
        Some(
            "no controller of the scenario wrote anything in the run without faults: start it with the client of its seat \
             (seat.client()), and take a step that makes it write"
                .into(),
        )
    } else if points == 0 {
        Some(
            "no point was tried: SETPOINT_SIM_POINT and SETPOINT_SIM_KIND choose none, or the scenario leaves out all kinds"
                .into(),
        )
    } else if exploration.unreached.len() == points {
        Some("no point was reached: the faults never took place".into())
    } else {
        None
    }
}

/// What a run with these faults must come to.
fn expected<'a>(reference: &'a Outcome, faults: &[Fault]) -> Option<&'a State> {
    let steps = faults.iter().find_map(|fault| match fault {
        Fault::Steps(steps) => Some(steps),
        _ => None,
    });
    match steps {
        None => Some(&reference.state),
        // Before the first step there is a state, too.
        Some(steps) => reference.states.get(steps.last().map_or(0, |last| last.saturating_add(1))),
    }
}

/// The end of a worker, with its panic.
fn joined(worker: thread::ScopedJoinHandle<'_, ()>) {
    worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}
