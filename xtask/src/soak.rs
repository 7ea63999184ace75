//! `cargo xtask soak`: the checks that get better with time. CI runs a little of each; this runs them for as long as you
//! have, with new seeds in every round.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::real::process;
use crate::workspace;

/// Options of `cargo xtask soak`.
#[derive(clap::Args)]
pub(crate) struct Soak {
    /// The total time. Each part gets an equal share of the rest, and runs at least once.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Run only these parts.
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
    /// List the parts instead of running them.
    #[arg(long)]
    list: bool,
    /// The seed of the first round; the next rounds count up. A failure prints its seed.
    #[arg(long)]
    seed: Option<u64>,
}

/// Something that is run again and again.
struct Part {
    name: &'static str,
    what: &'static str,
    arguments: &'static [&'static str],
    /// What makes it longer than in CI.
    environment: &'static [(&'static str, &'static str)],
}

const PARTS: &[Part] = &[
    Part {
        name: "properties",
        what: "property tests of all crates, with new seeds",
        arguments: &["test", "--workspace", "--lib", "--tests", "--quiet"],
        environment: &[],
    },
    Part {
        name: "kills",
        what: "kill -9 of a durable server under load",
        arguments: &[
            "test",
            "--release",
            "-p",
            "setpoint-cli",
            "--test",
            "data",
            "crash",
            "--",
            "--nocapture",
        ],
        environment: &[("SETPOINT_CRASH_ROUNDS", "100")],
    },
    Part {
        name: "power",
        what: "power cuts: pages that were not synced, or failed to be, are lost",
        arguments: &["test", "-p", "setpoint-apiserver", "--lib", "power_cuts", "--", "--nocapture"],
        environment: &[("SETPOINT_POWER_CUTS", "1000")],
    },
    Part {
        name: "histories",
        what: "every operation recorded and checked, through kills and compactions; kube-apiserver must pass too",
        arguments: &[
            "xtask",
            "load",
            "histories",
            "--minutes",
            "3",
            "--against",
            "memory",
            "--against",
            "redb",
            "--against",
            "kube-apiserver",
        ],
        environment: &[],
    },
    Part {
        name: "swarm",
        what: "two replicas of a controller in 10,000 worlds of faults; and with each promise switched off in turn",
        arguments: &[
            "test",
            "--release",
            "-p",
            "setpoint-sim",
            "--features",
            "mutants",
            "--test",
            "swarm",
            "--",
            "--nocapture",
        ],
        environment: &[("SETPOINT_SWARM_SEEDS", "10000")],
    },
    Part {
        name: "handover",
        what: "kill -9 of leaders every ten seconds for ten minutes, on setpoint and on kube-apiserver",
        arguments: &["xtask", "real", "--only", "handover"],
        environment: &[("SETPOINT_HANDOVER_MINUTES", "10")],
    },
    Part {
        name: "hostile",
        what: "hostile requests beside a decent client",
        arguments: &["xtask", "load", "hostile"],
        environment: &[],
    },
    Part {
        name: "fuzz",
        what: "all fuzz targets, a minute each; what reaches new code is kept for the next round",
        arguments: &["xtask", "fuzz", "--minutes", "10", "--keep-going"],
        environment: &[],
    },
    Part {
        name: "explore",
        what: "every fault at every point of our own controllers, then several at once for a minute each",
        arguments: &["xtask", "explore", "--budget", "60s"],
        environment: &[],
    },
    Part {
        name: "real",
        what: "all suites against real components",
        arguments: &["xtask", "real"],
        environment: &[],
    },
];

/// A round that takes longer hangs.
const ROUND_LIMIT: Duration = Duration::from_secs(2 * 60 * 60);

/// Runs it; the exit code says whether all rounds passed.
pub(crate) fn run(options: &Soak) -> Result<ExitCode> {
    let parts = chosen(&options.only)?;
    if options.list {
        parts.iter().for_each(|part| println!("{:12} {}", part.name, part.what));
        return Ok(ExitCode::SUCCESS);
    }
    let root = workspace::root()?;
    let logs = workspace::target(root).join("soak");
    fs::create_dir_all(&logs)?;
    // `load` measures a release build that is there already.
    let built = workspace::cargo(root).args(["build", "--release", "-p", "setpoint-cli"]).status()?;
    ensure!(built.success(), "setpoint does not build");
    let end = Instant::now() + Duration::from_secs(60 * options.minutes);
    let first = options.seed.unwrap_or_else(|| u64::from(std::process::id()) << 16);
    let mut failures = 0;
    for (number, part) in parts.iter().enumerate() {
        let left = end.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(parts.len() - number).unwrap_or(1);
        failures += repeat(part, root, &logs, share, first)?;
    }
    println!("{failures} rounds failed; the output of each is in {}", logs.display());
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn chosen(only: &[String]) -> Result<Vec<&'static Part>> {
    if let Some(unknown) = only.iter().find(|name| !PARTS.iter().any(|part| part.name == **name)) {
        bail!("there is no part {unknown}: cargo xtask soak --list shows them");
    }
    Ok(PARTS.iter().filter(|part| only.is_empty() || only.iter().any(|name| name == part.name)).collect())
}

/// Runs a part until its time is over; how many of its rounds failed.
fn repeat(part: &Part, root: &Path, logs: &Path, share: Duration, first: u64) -> Result<usize> {
    println!("{}: {}, for {} s", part.name, part.what, share.as_secs());
    let begun = Instant::now();
    let (mut rounds, mut failed) = (0, 0);
    while rounds == 0 || begun.elapsed() < share {
        let seed = first.wrapping_add(rounds);
        let round = Instant::now();
        let log = logs.join(format!("{}-{rounds}.log", part.name));
        let passed = once(part, root, &log, seed)?;
        let word = if passed { "ok" } else { "FAILED" };
        println!("  round {rounds}, seed {seed}: {word} ({:.0} s)", round.elapsed().as_secs_f64());
        if passed {
            fs::remove_file(&log)?;
        } else {
            println!("    {}", log.display());
            failed += 1;
        }
        rounds += 1;
    }
    println!("{}: {rounds} rounds, {failed} failed, {:.0} s", part.name, begun.elapsed().as_secs_f64());
    Ok(failed)
}

fn once(part: &Part, root: &Path, log: &PathBuf, seed: u64) -> Result<bool> {
    let mut command: Command = workspace::cargo(root);
    command.args(part.arguments).envs(part.environment.iter().copied());
    // Property tests, power cuts, histories and explorations each read their own.
    for name in ["PROPTEST_RNG_SEED", "SETPOINT_POWER_SEED", "SETPOINT_HISTORY_SEED", "SETPOINT_SIM_SEED"] {
        command.env(name, seed.to_string());
    }
    // The seeds of two rounds of the swarm do not meet.
    command.env("SETPOINT_SWARM_SEED", seed.wrapping_mul(100_000).to_string());
    let finished = process::run(command, None, ROUND_LIMIT);
    let (passed, text) = match finished {
        Ok(finished) => (finished.status.success(), format!("{}\n{}", finished.stdout, finished.stderr)),
        Err(error) => (false, format!("{error:#}")),
    };
    fs::write(log, text).with_context(|| format!("cannot write {}", log.display()))?;
    Ok(passed)
}
