//! `cargo xtask explore`: every fault at every point of our own controllers, and the bugs that must be found.

use std::path::PathBuf;
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
    #[arg(long, default_value = "10s")]
    budget: String,
    /// The folder for a page for each finding.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Instead, run so many seeds twice on one and two cores and with 1, 2 and 4 threads, and compare; then ten times as many
    /// runs in one process, to see that memory does not grow.
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
    Subject {
        name: "bugs",
        package: "setpoint-sim",
        program: "bugs",
        test: "every_bug_is_found_and_is_gone_when_it_is_mended",
    },
];

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
    let mut wrong = Vec::new();
    for subject in &chosen {
        let program =
            programs.iter().find(|program| program.is_of(subject)).context("cargo made no such program")?;
        println!("── {} ──", subject.name);
        let mut command = Command::new(&program.path);
        command.args([subject.test, "--exact", "--include-ignored", "--nocapture"]);
        command.env("SETPOINT_SIM_BUDGET", &options.budget);
        if let Some(folder) = &options.report {
            command.env("SETPOINT_SIM_REPORT", std::path::absolute(folder)?);
        }
        if !command.status().with_context(|| format!("{}", program.path.display()))?.success() {
            wrong.push(subject.name);
        }
    }
    if wrong.is_empty() {
        println!("{} explored, nothing found", chosen.len());
        return Ok(ExitCode::SUCCESS);
    }
    println!("{} explored; something was found in: {}", chosen.len(), wrong.join(", "));
    Ok(ExitCode::FAILURE)
}

const ENDURANCE: Subject =
    Subject { name: "endurance", package: "setpoint-sim", program: "sim", test: "endurance::" };

/// The same seeds wherever they run; many runs in one process.
fn endurance(seeds: u64, release: bool) -> Result<ExitCode> {
    let programs = build(&[&ENDURANCE], release)?;
    let program =
        programs.iter().find(|program| program.is_of(&ENDURANCE)).context("cargo made no such program")?;
    let run = |test: &str, cores: &str, threads: &str, count: (&str, u64)| -> Result<String> {
        let mut command = Command::new("taskset");
        command.args(["-c", cores]).arg(&program.path).args([test, "--nocapture"]);
        command.env("SETPOINT_SIM_THREADS", threads).env(count.0, count.1.to_string());
        let done = command.output().context("taskset cannot be run")?;
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        ensure!(done.status.success(), "on cores {cores} with {threads} threads:\n{said}");
        Ok(said)
    };
    let mut digests = Vec::new();
    for (cores, threads) in [("0", "1"), ("0", "2"), ("0", "4"), ("0,1", "1"), ("0,1", "2"), ("0,1", "4")] {
        let said = run("endurance::a_seed_gives", cores, threads, ("SETPOINT_SIM_SEEDS", seeds))?;
        let digest = said.lines().find_map(|line| line.split("all seeds: ").nth(1)).context("no digest")?;
        println!("{seeds} seeds twice on cores {cores} with {threads} threads: {digest}");
        digests.push(digest.to_owned());
    }
    ensure!(digests.iter().all(|digest| *digest == digests[0]), "they differ");
    let said = run("endurance::memory", "0,1", "2", ("SETPOINT_SIM_RUNS", seeds.saturating_mul(10)))?;
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
