//! `cargo xtask explore`: every fault at every point of our own controllers, and the bugs that must be found.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::workspace;

/// Options of `cargo xtask explore`.
#[derive(clap::Args)]
pub(crate) struct Explore {
    /// Explore only these.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// List what can be explored instead.
    #[arg(long)]
    list: bool,
    /// How long to try several faults at once in each, after every single fault: `60s`.
    #[arg(long, default_value = "10s", value_parser = budget)]
    budget: String,
    /// What the choice of several faults follows; 1, unless SETPOINT_SIM_SEED says otherwise.
    #[arg(long)]
    seed: Option<u64>,
    /// The folder for a page for each finding.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Instead, run so many seeds twice on one and two cores and with 1, 2 and 4 threads, and compare; then a hundred times as
    /// many runs in one process, to see that memory does not grow.
    #[arg(long, value_name = "SEEDS", num_args = 0..=1, default_missing_value = "1000")]
    endurance: Option<u64>,
    /// Explore a release build, which takes longer to build and runs many times as fast.
    #[arg(long)]
    release: bool,
}

/// A test that explores.
struct Subject {
    name: &'static str,
    package: &'static str,
    /// The name of the test program.
    program: &'static str,
    test: &'static str,
}

const fn example(name: &'static str, package: &'static str) -> Subject {
    Subject { name, package, program: "explore", test: "no_fault_breaks_it" }
}

const fn built_in(name: &'static str, test: &'static str) -> Subject {
    Subject { name, package: "setpoint-cluster", program: "explore", test }
}

/// How many things are explored, one after another.
#[allow(clippy::cast_possible_truncation)]
pub(crate) const COUNT: u32 = SUBJECTS.len() as u32;

const SUBJECTS: &[Subject] = &[
    example("foo", "example-foo"),
    Subject {
        program: "network",
        test: "explore::no_fault_breaks_it",
        ..example("network", "example-network")
    },
    example("ingress-manager", "example-ingress-manager"),
    example("first-controller", "example-first-controller"),
    example("webhooks", "example-webhooks"),
    built_in("deployment", "deployment_controller"),
    built_in("replicaset", "replicaset_controller"),
    built_in("job", "job_controller"),
    built_in("cronjob", "cronjob_controller"),
    built_in("garbage-collector", "garbage_collector_controller"),
    built_in("namespace", "namespace_controller"),
    built_in("endpointslice", "endpointslice_controller"),
    built_in("resourcequota", "resourcequota_controller"),
    built_in("horizontal-pod-autoscaler", "horizontal_pod_autoscaler_controller"),
    built_in("serviceaccount-token", "serviceaccount_token_controller"),
    built_in("scheduler", "scheduler"),
    built_in("statefulset-crashes", "order::statefulset_order_when_the_controller_crashes_at_any_write"),
    built_in("daemonset-crashes", "order::daemonset_bounds_when_the_controller_crashes_at_any_write"),
    built_in("daemonset-surge-crashes", "order::daemonset_surge_when_the_controller_crashes_at_any_write"),
    built_in("statefulset", "order::statefulset_controller"),
    built_in("statefulset-claims", "order::statefulset_claims"),
    built_in("daemonset", "order::daemonset_controller"),
    built_in("daemonset-stale", "order::daemonset_when_its_view_is_stale"),
    Subject {
        name: BUGS,
        package: "setpoint-sim",
        program: "bugs",
        test: "every_bug_is_found_and_is_gone_when_it_is_mended",
    },
];

const BUGS: &str = "bugs";

/// `90`, `60s`, `2m`, `1h`, as the tests take it.
fn budget(text: &str) -> Result<String, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let is_time = digits.parse::<f64>().is_ok_and(|number| number >= 0.0 && number.is_finite());
    if is_time && ["", "ms", "s", "m", "h"].contains(&&text[digits.len()..]) {
        Ok(text.to_owned())
    } else {
        Err("a time is written as 60s, 2m or 1h".to_owned())
    }
}

/// Explores; the exit code says whether nothing was found.
pub(crate) fn run(options: &Explore) -> Result<ExitCode> {
    for name in &options.only {
        let names = || SUBJECTS.iter().map(|subject| subject.name).collect::<Vec<_>>().join(", ");
        ensure!(
            SUBJECTS.iter().any(|subject| subject.name == name),
            "there is no {name:?}; there are {}",
            names()
        );
    }
    let is_chosen =
        |subject: &&Subject| options.only.is_empty() || options.only.iter().any(|only| only == subject.name);
    let chosen: Vec<&Subject> = SUBJECTS.iter().filter(is_chosen).collect();
    if options.list {
        chosen.iter().for_each(|subject| println!("{}", subject.name));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(seeds) = options.endurance {
        return endurance(seeds, options.release);
    }
    let programs = build(&chosen, options.release)?;
    let (mut wrong, mut rows) = (Vec::new(), Vec::new());
    let table = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
    for subject in &chosen {
        let program =
            programs.iter().find(|program| program.is_of(subject)).context("cargo made no such program")?;
        println!("── {} ──", subject.name);
        let mut command = Command::new(&program.path);
        command.args([subject.test, "--exact", "--include-ignored", "--nocapture"]);
        // So that the command that shows a finding again says it all.
        command.env("CARGO_PKG_NAME", subject.package);
        table.as_file().set_len(0).context("cannot empty a temporary file")?;
        command.env("SETPOINT_SIM_TABLE", table.path());
        // Bugs are found by single faults, and their pages are nobody's.
        let is_mended = subject.name != BUGS;
        command.env("SETPOINT_SIM_BUDGET", if is_mended { &options.budget } else { "0s" });
        if let Some(seed) = options.seed {
            command.env("SETPOINT_SIM_SEED", seed.to_string());
        }
        if let Some(folder) = options.report.as_ref().filter(|_| is_mended) {
            command.env("SETPOINT_SIM_REPORT", std::path::absolute(folder)?);
        }
        let is_well = command.status().with_context(|| format!("{}", program.path.display()))?.success();
        let row = Row::read(subject.name, table.path(), is_well)?;
        if !row.is_well {
            wrong.push(subject.name);
        }
        rows.push(row);
    }
    print!("{}", summary(&rows));
    if wrong.is_empty() {
        println!("{} explored, nothing found", chosen.len());
        return Ok(ExitCode::SUCCESS);
    }
    println!("{} explored; failed: {}", chosen.len(), wrong.join(", "));
    Ok(ExitCode::FAILURE)
}

/// What a subject has come to.
#[derive(Default)]
struct Row {
    name: &'static str,
    points: u64,
    several: u64,
    runs: u64,
    seconds: f64,
    found: u64,
    unreached: u64,
    is_well: bool,
    /// By kind of fault.
    kinds: BTreeMap<String, Kind>,
}

/// How many points of a kind were tried, how many of these failed, and how many were not reached.
#[derive(Clone, Copy, Default)]
struct Kind {
    tried: u64,
    failed: u64,
    unreached: u64,
}

impl Kind {
    fn add(&mut self, other: Kind) {
        self.tried += other.tried;
        self.failed += other.failed;
        self.unreached += other.unreached;
    }
}

impl Row {
    /// Adds up what the explorations of a test have written.
    fn read(name: &'static str, table: &Path, is_well: bool) -> Result<Row> {
        let text = std::fs::read_to_string(table).context("cannot read what the test has written")?;
        let mut row = Row { name, is_well, ..Row::default() };
        for line in text.lines() {
            let told: Value = serde_json::from_str(line).context("the test has written no JSON")?;
            let number = |key: &str| told[key].as_u64().unwrap_or_default();
            row.points += number("points");
            row.several += number("several");
            row.runs += number("runs");
            row.found += number("found");
            row.unreached += number("unreached");
            row.seconds += told["seconds"].as_f64().unwrap_or_default();
            for kind in told["kinds"].as_array().into_iter().flatten() {
                let number = |key: &str| kind[key].as_u64().unwrap_or_default();
                let all = row.kinds.entry(kind["kind"].as_str().unwrap_or_default().to_owned()).or_default();
                let (tried, failed, unreached) = (number("tried"), number("failed"), number("unreached"));
                all.add(Kind { tried, failed, unreached });
            }
        }
        // A test that was renamed is not there: 0 passed.
        row.is_well &= row.runs > 0;
        Ok(row)
    }
}

/// A table of subjects and one of faults.
fn summary(rows: &[Row]) -> String {
    let mut text = format!(
        "\n| {:<26} | {:>6} | {:>11} | {:>7} | {:>6} | {:>8} | {:>6} | {:>9} |\n|{}\n",
        "explored",
        "points",
        "not reached",
        "several",
        "runs",
        "seconds",
        "runs/s",
        "found",
        " --- |".repeat(8)
    );
    let mut kinds: BTreeMap<&str, Kind> = BTreeMap::new();
    for row in rows {
        let rate = row.runs as f64 / row.seconds.max(0.001);
        let found = match (row.name, row.is_well, row.found) {
            _ if row.runs == 0 => "no runs".to_owned(),
            (BUGS, true, _) => "all bugs".to_owned(),
            (BUGS, false, _) | (_, false, 0) => "failed".to_owned(),
            (_, _, found) => found.to_string(),
        };
        let Row { name, points, unreached, several, runs, seconds, .. } = row;
        text.push_str(&format!(
            "| {name:<26} | {points:>6} | {unreached:>11} | {several:>7} | {runs:>6} | {seconds:>8.1} | {rate:>6.1} | {found:>9} |\n"
        ));
        for (kind, counts) in row.kinds.iter().filter(|_| row.name != BUGS) {
            kinds.entry(kind).or_default().add(*counts);
        }
    }
    text.push_str(&format!(
        "\n| {:<26} | {:>6} | {:>6} | {:>11} |\n|{}\n",
        "fault",
        "tried",
        "failed",
        "not reached",
        " --- |".repeat(4)
    ));
    for (kind, Kind { tried, failed, unreached }) in kinds {
        text.push_str(&format!("| {kind:<26} | {tried:>6} | {failed:>6} | {unreached:>11} |\n"));
    }
    text.push('\n');
    text
}

/// What has the same runs everywhere.
const ENDURANCE: [Subject; 2] = [
    Subject { name: "copy", package: "setpoint-sim", program: "sim", test: "endurance::a_seed_gives" },
    Subject { test: "a_seed_gives", ..example("foo", "example-foo") },
];

/// The same seeds wherever they run; many runs in one process.
fn endurance(seeds: u64, release: bool) -> Result<ExitCode> {
    let programs = build(&ENDURANCE.each_ref(), release)?;
    let run = |subject: &Subject, test: &str, cores: &str, threads: &str, count: (&str, u64)| {
        let program = programs.iter().find(|program| program.is_of(subject));
        let program = program.context("cargo made no such program")?;
        let mut command = Command::new("taskset");
        command.args(["-c", cores]).arg(&program.path).args([test, "--nocapture"]);
        command.env("SETPOINT_SIM_THREADS", threads).env(count.0, count.1.to_string());
        let done = command.output().context("taskset cannot be run")?;
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        ensure!(
            done.status.success(),
            "{} on cores {cores} with {threads} threads:\n{said}{told}",
            subject.name
        );
        anyhow::Ok(said)
    };
    for subject in &ENDURANCE {
        let mut digests = Vec::new();
        for (cores, threads) in [("0", "1"), ("0", "2"), ("0", "4"), ("0,1", "1"), ("0,1", "2"), ("0,1", "4")]
        {
            let said = run(subject, subject.test, cores, threads, ("SETPOINT_SIM_SEEDS", seeds))?;
            let digest =
                said.lines().find_map(|line| line.split("all seeds: ").nth(1)).context("no digest")?;
            println!(
                "{}: {seeds} seeds twice on cores {cores} with {threads} threads: {digest}",
                subject.name
            );
            digests.push(digest.to_owned());
        }
        ensure!(digests.iter().all(|digest| *digest == digests[0]), "they differ");
    }
    let count = ("SETPOINT_SIM_RUNS", seeds.saturating_mul(100));
    let said = run(&ENDURANCE[0], "endurance::memory", "0,1", "2", count)?;
    said.lines().filter(|line| line.contains("after ")).for_each(|line| println!("{line}"));
    Ok(ExitCode::SUCCESS)
}

/// A test program that cargo has built.
struct Program {
    package: String,
    name: String,
    path: PathBuf,
}

impl Program {
    fn is_of(&self, subject: &Subject) -> bool {
        self.name == subject.program && self.package == subject.package
    }
}

/// Builds the test programs as `cargo test --workspace` does, so that neither builds anew what the other has built.
fn build(subjects: &[&Subject], release: bool) -> Result<Vec<Program>> {
    let mut cargo = workspace::cargo(workspace::root()?);
    cargo.args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]);
    if release {
        cargo.arg("--release");
    }
    let mut names: Vec<&str> = subjects.iter().map(|subject| subject.program).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        cargo.args(["--test", name]);
    }
    let built = cargo.stderr(Stdio::inherit()).output().context("cargo cannot be run")?;
    ensure!(built.status.success(), "the tests cannot be built");
    let messages =
        built.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    let program = |message: Value| {
        let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        // …/examples/foo#example-foo@0.1.0, or …/crates/setpoint-sim#0.1.0
        let id = text("/package_id")?;
        let (path, named) = id.rsplit_once('#')?;
        let package = match named.split_once('@') {
            Some((package, _)) => package,
            None => path.rsplit('/').next()?,
        };
        let (package, name) = (package.to_owned(), text("/target/name")?);
        Some(Program { package, name, path: text("/executable")?.into() })
    };
    Ok(messages.filter_map(program).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_that_is_no_time_is_refused() {
        for text in ["60s", "90", "1.5m", "1h", "500ms", "0s"] {
            assert_eq!(budget(text), Ok(text.to_owned()));
        }
        for text in ["1w", "-1s", "s", "", "infs"] {
            assert!(budget(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_a_test_has_tried_is_added_up() {
        let table = tempfile::NamedTempFile::new().unwrap();
        let line = r#"{"points":2,"unreached":1,"several":3,"runs":6,"seconds":1.5,"found":1,
            "kinds":[{"kind":"409","tried":2,"failed":1,"unreached":1}]}"#
            .replace('\n', "");
        std::fs::write(table.path(), format!("{line}\n{line}\n")).unwrap();
        let row = Row::read("foo", table.path(), false).unwrap();
        let text = summary(&[row]);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect())
            .collect();
        assert!(rows.contains(&vec!["foo", "4", "2", "6", "12", "3.0", "4.0", "2"]), "{text}");
        assert!(rows.contains(&vec!["409", "4", "2", "2"]), "{text}");
    }

    #[test]
    fn a_test_that_is_not_there_is_not_green() {
        let table = tempfile::NamedTempFile::new().unwrap();
        let row = Row::read("foo", table.path(), true).unwrap();
        assert!(!row.is_well);
        assert!(summary(&[row]).contains("no runs"));
    }
}
