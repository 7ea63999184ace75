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
mod plan;
mod report;
mod run;
mod scenario;
mod search;
mod story;
mod timelines;
mod view;
mod witness;

use std::collections::BTreeMap;
use std::path::PathBuf;
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
use self::plan::Plan;
use self::report::Progress;
use self::run::{Make, Options, Outcome, run};
use crate::world::World;

/// How many findings are explained; more are counted.
const EXPLAINED: usize = 3;

/// Explores a scenario: every single fault, then several at once, for as long as `SETPOINT_SIM_BUDGET` says (`60s`; none
/// unless set).
///
/// The closure is called once for every run, with that run's world. With `SETPOINT_SIM_STORY` set, the run without faults is
/// told, and nothing is explored; with `SETPOINT_SIM_STORY=requests`, by all its requests.
///
/// # Panics
/// When something was found. The message is the report: the least faults that show it, what is wrong, both timelines side
/// by side, and the test to paste. As a page for the browser it is in the folder `SETPOINT_SIM_REPORT`, if that is set.
#[track_caller]
pub fn explore(scenario: impl Fn(&World) -> Scenario + Send + Sync + 'static) {
    let name = thread::current().name().unwrap_or("scenario").to_owned();
    let explorer = Explorer::new(&name, scenario);
    if std::env::var_os("SETPOINT_SIM_STORY").is_some() {
        report::print(&explorer.story());
    } else {
        explorer.run().assert_nothing_found();
    }
}

/// Runs a scenario once, with these faults: what a report gives to paste.
///
/// # Panics
/// When something is wrong with the run, with the same report.
#[track_caller]
pub fn replay(
    scenario: impl Fn(&World) -> Scenario + Send + Sync + 'static,
    faults: impl IntoIterator<Item = Fault>,
) {
    let name = thread::current().name().unwrap_or("scenario").to_owned();
    Explorer::new(&name, scenario).replay(&faults.into_iter().collect::<Vec<_>>()).assert_nothing_found();
}

/// An exploration with other settings than those of [`explore`].
#[must_use = "an explorer does nothing until it is run"]
pub struct Explorer {
    name: String,
    make: Make,
    budget: Duration,
    threads: usize,
    only: Option<Vec<usize>>,
    /// The one kind of points that is tried, as the table calls it.
    kind: Option<String>,
    seed: u64,
    reports: Option<PathBuf>,
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
}

/// How many runs there were, and how many of them went wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tried {
    /// Runs.
    pub runs: usize,
    /// Those that went wrong.
    pub failed: usize,
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
    /// Everything about it, for a terminal. Only the first findings have it.
    pub report: String,
}

impl Explorer {
    /// Settings as the environment has them.
    pub fn new(name: &str, scenario: impl Fn(&World) -> Scenario + Send + Sync + 'static) -> Explorer {
        let make = Make { scenario: Arc::new(scenario), server: Arc::new(|server| server) };
        let only = std::env::var("SETPOINT_SIM_POINT").ok();
        Explorer {
            name: name.to_owned(),
            make,
            budget: std::env::var("SETPOINT_SIM_BUDGET").map_or(Duration::ZERO, |text| seconds(&text)),
            threads: thread::available_parallelism().map_or(1, usize::from),
            only: only.map(|text| text.split(',').filter_map(|n| n.trim().parse().ok()).collect()),
            kind: std::env::var("SETPOINT_SIM_KIND").ok(),
            seed: 1,
            reports: std::env::var_os("SETPOINT_SIM_REPORT").map(PathBuf::from),
        }
    }

    /// Other settings of the API server.
    pub fn server(mut self, set: impl Fn(Builder) -> Builder + Send + Sync + 'static) -> Explorer {
        self.make.server = Arc::new(set);
        self
    }

    /// For how long several faults at once are tried, after every single one.
    pub fn budget(mut self, time: Duration) -> Explorer {
        self.budget = time;
        self
    }

    /// How many runs there are at the same time; one a core unless set. What is found does not depend on it.
    pub fn threads(mut self, threads: usize) -> Explorer {
        self.threads = threads.max(1);
        self
    }

    /// Where all randomness begins.
    pub fn seed(mut self, seed: u64) -> Explorer {
        self.seed = seed;
        self
    }

    fn options(&self) -> Options {
        Options { seed: self.seed, ..Options::default() }
    }

    /// One number for everything that passes between clients and server in a run with this seed, with the order of tasks
    /// chosen by it.
    pub fn hash(&self, seed: u64) -> u64 {
        run(&self.make, &[Fault::Order(seed)], None, Options { seed, is_told: false }).trace.hash()
    }

    /// What happens without faults, a line each.
    pub fn story(&self) -> String {
        let outcome = run(&self.make, &[], None, Options { is_told: true, ..self.options() });
        let is_all = std::env::var("SETPOINT_SIM_STORY").is_ok_and(|what| what == "requests");
        if is_all { outcome.trace.to_string() } else { outcome.story.to_string() }
    }

    /// Explores.
    pub fn run(&self) -> Exploration {
        let clock = report::Clock::start();
        let reference = run(&self.make, &[], None, self.options());
        let plan = Plan::new(&reference);
        let mut exploration = Exploration {
            name: self.name.clone(),
            targets: plan.targets,
            tried: BTreeMap::new(),
            several: Tried::default(),
            runs: 1,
            took: Duration::ZERO,
            findings: Vec::new(),
        };
        let alone = judge_alone(&reference);
        if !alone.is_empty() {
            // Without faults it must be right: everything else is compared with it.
            self.find(&mut exploration, &reference, &[], alone, None);
            exploration.took = clock.elapsed();
            return exploration;
        }
        self.transitions(&reference, &mut exploration);
        let progress = Progress::new(&self.name, plan.points.len());
        let wanted = |index: &usize| {
            self.only.as_ref().is_none_or(|only| only.contains(index))
                && self.kind.as_ref().is_none_or(|kind| plan.points[*index].kind.to_string() == *kind)
        };
        let indices: Vec<usize> = (0..plan.points.len()).filter(wanted).collect();
        let failed = Mutex::new(Vec::new());
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..self.threads {
                scope.spawn(|| {
                    while let Some(&index) = indices.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let faults = &plan.points[index].faults;
                        let outcome = run(&self.make, faults, Some(&reference.state), self.options());
                        let violations = judge(&reference, &outcome, faults);
                        progress.ran(!violations.is_empty());
                        if !violations.is_empty() {
                            failed.lock().push((index, violations));
                        }
                    }
                });
            }
        });
        for index in &indices {
            exploration.tried.entry(plan.points[*index].kind).or_default().runs += 1;
        }
        exploration.runs += indices.len();
        let mut failed = failed.into_inner();
        failed.sort_by_key(|(index, _)| *index);
        for (index, violations) in failed {
            let point = &plan.points[index];
            exploration.tried.entry(point.kind).or_default().failed += 1;
            self.find(&mut exploration, &reference, &point.faults, violations, Some(index));
        }
        let is_part = self.only.is_some() || self.kind.is_some();
        if exploration.findings.is_empty() && !self.budget.is_zero() && !is_part {
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
        let outcome = run(&self.make, faults, Some(&reference.state), self.options());
        let mut exploration = Exploration {
            name: self.name.clone(),
            targets: Targets::default(),
            tried: BTreeMap::new(),
            several: Tried::default(),
            runs: 2,
            took: Duration::ZERO,
            findings: Vec::new(),
        };
        let violations = judge(&reference, &outcome, faults);
        if !violations.is_empty() {
            self.find(&mut exploration, &reference, faults, violations, None);
        }
        exploration.took = clock.elapsed();
        exploration
    }

    /// Notes a finding, and explains it if it is one of the first.
    fn find(
        &self,
        exploration: &mut Exploration,
        reference: &Outcome,
        faults: &[Fault],
        violations: Vec<Violation>,
        point: Option<usize>,
    ) {
        let (faults, runs, report) = (faults.to_vec(), exploration.runs, String::new());
        let mut finding = Finding { faults, violations, runs, point, report };
        if exploration.findings.len() < EXPLAINED {
            self.shrink(reference, &mut finding);
            let told = Options { is_told: true, ..self.options() };
            let without = run(&self.make, &[], None, told);
            let with = run(&self.make, &finding.faults, Some(&reference.state), told);
            finding.report = report::text(&self.name, &finding, &without.story, &with.story);
            if let Some(folder) = &self.reports {
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
    /// Prints what was tried, and fails if something was found.
    ///
    /// # Panics
    /// When something was found. The message is the report.
    #[track_caller]
    pub fn assert_nothing_found(&self) {
        report::print(&self.to_string());
        if !self.findings.is_empty() {
            panic!("{}", report::all(self));
        }
    }
}

/// `60s`, `2m` or `90`.
fn seconds(text: &str) -> Duration {
    let text = text.trim();
    let (number, unit) = match text.strip_suffix('m') {
        Some(minutes) => (minutes, 60.0),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    number
        .parse::<f64>()
        .ok()
        .and_then(|number| Duration::try_from_secs_f64(number * unit).ok())
        .unwrap_or_default()
}
