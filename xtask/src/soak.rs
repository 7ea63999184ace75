//! `cargo xtask soak`: the checks that get better with time. CI runs a little of each; this runs them for as long as you
//! have, with new seeds in every round.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::real::process::Running;
use crate::{explore, workspace};

/// Options of `cargo xtask soak`.
#[derive(clap::Args)]
pub(crate) struct Soak {
    /// The total time, after the build. Each part gets an equal share of what is left, but one round at least; a part whose
    /// shortest round does not fit into what is left is skipped, and a round that is still running at the end is cut off.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Run only these parts.
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
    /// List the parts instead of running them, each with the minutes of its shortest round.
    #[arg(long)]
    list: bool,
    /// The seed of the first round; the next rounds count up. A failure prints its seed.
    #[arg(long)]
    seed: Option<u64>,
}

/// Something that is run again and again. `{minutes}` and `{seconds}` in its arguments and its environment are the time of
/// each of its runs.
struct Part {
    name: &'static str,
    what: &'static str,
    arguments: &'static [&'static str],
    /// What makes it longer than in CI.
    environment: &'static [(&'static str, &'static str)],
    /// How long the shortest round takes on two cores, in minutes, when everything is built.
    least: u64,
    /// For one that is told its time: how many runs of a round share it.
    runs: u32,
}

/// One that is not told its time.
const UNTIMED: u32 = 0;

const PARTS: &[Part] = &[
    Part {
        name: "properties",
        what: "property tests of all crates, with new seeds",
        arguments: &["test", "--workspace", "--lib", "--tests", "--quiet"],
        environment: &[],
        least: 10,
        runs: UNTIMED,
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
        least: 5,
        runs: UNTIMED,
    },
    Part {
        name: "power",
        what: "power cuts: pages that were not synced, or failed to be, are lost",
        arguments: &["test", "-p", "setpoint-apiserver", "--lib", "power_cuts", "--", "--nocapture"],
        environment: &[("SETPOINT_POWER_CUTS", "1000")],
        least: 5,
        runs: UNTIMED,
    },
    Part {
        name: "histories",
        what: "every operation recorded and checked, through kills and compactions; kube-apiserver must pass too",
        arguments: &[
            "xtask",
            "load",
            "histories",
            "--minutes",
            "{minutes}",
            "--against",
            "memory",
            "--against",
            "redb",
            "--against",
            "etcd",
            "--against",
            "kube-apiserver",
        ],
        environment: &[],
        least: 6,
        runs: 3,
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
        least: 10,
        runs: UNTIMED,
    },
    Part {
        name: "handover",
        what: "kill -9 of leaders every ten seconds, on setpoint and on kube-apiserver",
        arguments: &["xtask", "real", "--only", "handover"],
        environment: &[("SETPOINT_HANDOVER_MINUTES", "{minutes}")],
        least: 4,
        runs: 2,
    },
    Part {
        name: "hostile",
        what: "hostile requests beside a decent client",
        arguments: &["xtask", "load", "hostile"],
        environment: &[],
        least: 8,
        runs: UNTIMED,
    },
    Part {
        name: "fuzz",
        what: "all fuzz targets; what reaches new code is kept for the next round",
        arguments: &["xtask", "fuzz", "--minutes", "{minutes}", "--keep-going"],
        environment: &[],
        least: 10,
        runs: 1,
    },
    Part {
        name: "explore",
        what: "every fault at every point of our own controllers, then several at once",
        arguments: &["xtask", "explore", "--budget", "{seconds}s"],
        environment: &[],
        least: 10,
        runs: explore::COUNT,
    },
    Part {
        name: "real",
        what: "all suites against real components",
        arguments: &["xtask", "real"],
        environment: &[],
        least: 30,
        runs: UNTIMED,
    },
];

/// A round that takes longer hangs.
const ROUND_LIMIT: Duration = Duration::from_secs(2 * 60 * 60);
const MINUTE: Duration = Duration::from_secs(60);

/// How a round has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    /// The time was over.
    Cut,
}

/// Runs it; the exit code says whether all rounds passed.
pub(crate) fn run(options: &Soak) -> Result<ExitCode> {
    let parts = chosen(&options.only)?;
    if options.list {
        parts.iter().for_each(|part| println!("{:12} {:3} min  {}", part.name, part.least, part.what));
        return Ok(ExitCode::SUCCESS);
    }
    let root = workspace::root()?;
    let logs = workspace::target(root).join("soak");
    fs::create_dir_all(&logs)?;
    // `load` measures a release build that is there already.
    let built = workspace::cargo(root).args(["build", "--release", "-p", "setpoint-cli"]).status()?;
    ensure!(built.success(), "setpoint does not build");
    let end = Instant::now() + MINUTE * u32::try_from(options.minutes)?;
    let first = options.seed.unwrap_or_else(|| u64::from(std::process::id()) << 16);
    let (mut failures, mut skipped) = (0, Vec::new());
    for (number, part) in parts.iter().enumerate() {
        let left = end.saturating_duration_since(Instant::now());
        if left < part.least() {
            skipped.push(part.name);
            continue;
        }
        let share = left / u32::try_from(parts.len() - number).unwrap_or(1);
        failures += repeat(part, root, &logs, share, end, first)?;
    }
    println!("{failures} rounds failed; the output of each is in {}", logs.display());
    if !skipped.is_empty() {
        let all: u64 = parts.iter().map(|part| part.least).sum();
        let minutes = options.minutes;
        println!(
            "skipped, for they did not fit into {minutes} minutes: {}; all need {all}",
            skipped.join(", ")
        );
    }
    ensure!(skipped.len() < parts.len(), "nothing fits into {} minutes", options.minutes);
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn chosen(only: &[String]) -> Result<Vec<&'static Part>> {
    if let Some(unknown) = only.iter().find(|name| !PARTS.iter().any(|part| part.name == **name)) {
        bail!("there is no part {unknown}: cargo xtask soak --list shows them");
    }
    Ok(PARTS.iter().filter(|part| only.is_empty() || only.iter().any(|name| name == part.name)).collect())
}

impl Part {
    fn least(&self) -> Duration {
        MINUTE.saturating_mul(u32::try_from(self.least).unwrap_or(u32::MAX))
    }

    /// How long each run of a round may take that has so long. A part of the shortest round is not for running: half of it.
    fn run_time(&self, round: Duration) -> Duration {
        let time = round.saturating_sub(self.least() / 2).max(self.least() / 2);
        time / self.runs.max(1)
    }

    /// The command of a round that has so long.
    fn command(&self, root: &Path, round: Duration) -> Command {
        let run = self.run_time(round);
        let filled = |text: &str| {
            let minutes = (run.as_secs() / 60).max(1).to_string();
            text.replace("{minutes}", &minutes).replace("{seconds}", &run.as_secs().max(1).to_string())
        };
        let mut command: Command = workspace::cargo(root);
        command.args(self.arguments.iter().map(|text| filled(text)));
        command.envs(self.environment.iter().map(|(name, value)| (name, filled(value))));
        command
    }
}

/// Runs a part until its share is over; how many of its rounds failed. Another round begins only if one as long as the last
/// one still fits; one that is told its time has one round.
fn repeat(part: &Part, root: &Path, logs: &Path, share: Duration, end: Instant, first: u64) -> Result<usize> {
    println!("{}: {}, for {} s", part.name, part.what, share.max(part.least()).as_secs());
    let begun = Instant::now();
    let (mut rounds, mut failed) = (0, 0);
    loop {
        let seed = first.wrapping_add(rounds);
        let round = Instant::now();
        let log = logs.join(format!("{}-{rounds}.log", part.name));
        let outcome = once(part, root, &log, share, end, seed)?;
        let word = match outcome {
            Outcome::Passed => "ok",
            Outcome::Failed => "FAILED",
            Outcome::Cut => "cut off, the time is over",
        };
        println!("  round {rounds}, seed {seed}: {word} ({:.0} s)", round.elapsed().as_secs_f64());
        if outcome == Outcome::Failed {
            println!("    {}", log.display());
            failed += 1;
        } else {
            fs::remove_file(&log)?;
        }
        rounds += 1;
        if outcome == Outcome::Cut || part.runs != UNTIMED || begun.elapsed() + round.elapsed() > share {
            break;
        }
    }
    println!("{}: {rounds} rounds, {failed} failed, {:.0} s", part.name, begun.elapsed().as_secs_f64());
    Ok(failed)
}

fn once(part: &Part, root: &Path, log: &Path, share: Duration, end: Instant, seed: u64) -> Result<Outcome> {
    let mut command = part.command(root, share);
    // Property tests, power cuts, histories and explorations each read their own.
    for name in ["PROPTEST_RNG_SEED", "SETPOINT_POWER_SEED", "SETPOINT_HISTORY_SEED", "SETPOINT_SIM_SEED"] {
        command.env(name, seed.to_string());
    }
    // The seeds of two rounds of the swarm do not meet.
    command.env("SETPOINT_SWARM_SEED", seed.wrapping_mul(100_000).to_string());
    let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let mut running = Running::start(&mut command)?;
    let left = end.saturating_duration_since(Instant::now());
    match running.wait(ROUND_LIMIT.min(left)) {
        Ok(status) if status.success() => Ok(Outcome::Passed),
        Ok(_) => Ok(Outcome::Failed),
        Err(_) => {
            // cargo would leave behind what it has started.
            kill(&descendants(running.id()))?;
            Ok(if Instant::now() >= end { Outcome::Cut } else { Outcome::Failed })
        }
    }
}

/// A process and all that it has started, and they.
fn descendants(of: u32) -> Vec<u32> {
    let parent = |id: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The name of the program, in brackets, may have anything in it.
        stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let parents: Vec<(u32, u32)> = ids.filter_map(|id| Some((id, parent(id)?))).collect();
    let mut found = vec![of];
    let mut at = 0;
    while let Some(id) = found.get(at).copied() {
        found.extend(parents.iter().filter(|(_, parent)| *parent == id).map(|(child, _)| child));
        at += 1;
    }
    found
}

/// `kill -9`; one that has ended meanwhile is no trouble.
fn kill(processes: &[u32]) -> Result<()> {
    let ids = processes.iter().map(u32::to_string);
    Command::new("kill").arg("-KILL").args(ids).stderr(Stdio::null()).status().context("cannot run kill")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    #[test]
    fn what_a_child_has_started_ends_with_it() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 600 & echo begun; wait"]).stdout(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        // One line: by then there is the other process.
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let all = descendants(child.id());
        assert_eq!((all.len(), all[0]), (2, child.id()));
        kill(&all).unwrap();
        child.wait().unwrap();
        // The pipe ends when nobody has it any more.
        assert_eq!(out.read_line(&mut line).unwrap(), 0);
    }

    #[test]
    fn a_round_is_told_its_share_and_never_less_than_a_minute() {
        let texts = |name: &str, minutes: u32| -> String {
            let part = PARTS.iter().find(|part| part.name == name).unwrap();
            let command = part.command(Path::new("."), MINUTE * minutes);
            let arguments = command.get_args().map(|text| text.to_string_lossy().into_owned());
            let variables =
                command.get_envs().filter_map(|(_, value)| Some(value?.to_string_lossy().into_owned()));
            arguments.chain(variables).collect::<Vec<_>>().join(" ")
        };
        assert!(texts("histories", 33).contains("--minutes 10 "), "{}", texts("histories", 33));
        assert!(texts("histories", 1).contains("--minutes 1 "));
        assert!(texts("fuzz", 25).contains("--minutes 20 "));
        assert!(texts("handover", 22).split(' ').any(|text| text == "10"));
        for part in PARTS {
            let text = texts(part.name, 30);
            assert!(!text.contains('{'), "{text}");
            let is_told = format!("{:?}{:?}", part.arguments, part.environment).contains('{');
            assert_eq!(is_told, part.runs != UNTIMED, "{}", part.name);
        }
    }
}
