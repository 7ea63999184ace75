//! `cargo xtask budget`: what the `setpoint` command costs its users before it does anything: how many units cargo compiles, the
//! processor time of a release build from nothing, the size of the program, and what it keeps in memory as an idle server with
//! controllers. Each has its limit in `bench/budget.txt`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::real::startup;
use crate::workspace;

/// Options of `cargo xtask budget`.
#[derive(clap::Args)]
pub(crate) struct Budget {
    /// Write what was measured, and some room, to bench/budget.txt instead of comparing.
    #[arg(long)]
    update: bool,
}

/// What `--update` leaves for small changes, in percent. Processor time varies by itself.
const ROOM: [(&str, u64); 4] = [("units", 1), ("processor-seconds", 15), ("bytes", 3), ("resident-kib", 5)];

pub(crate) fn run(options: &Budget) -> Result<ExitCode> {
    let root = workspace::root()?;
    let path = root.join("bench/budget.txt");
    let written = fs::read_to_string(&path).unwrap_or_default();
    let processor = processor();
    let measured = measure(root)?;
    if options.update {
        let lines = measured.iter().zip(ROOM).map(|((name, amount), (_, room))| {
            format!("{name} {}\n", amount + (amount * room).div_ceil(100))
        });
        fs::write(&path, format!("# on {processor}\n{}", lines.collect::<String>()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let is_same = written.lines().next() == Some(&format!("# on {processor}"));
    let mut over = Vec::new();
    for (name, amount) in measured {
        let limit = limit(&written, name);
        let words = match limit {
            None => "no limit".to_owned(),
            Some(_) if name == "processor-seconds" && !is_same => {
                "not compared: another processor".to_owned()
            }
            Some(limit) if amount > limit => {
                over.push(name);
                format!("over its limit, {limit}")
            }
            Some(limit) => format!("of {limit}"),
        };
        println!("{name:<20}{amount:>12}  {words}");
    }
    ensure!(
        over.is_empty(),
        "{} exceeds bench/budget.txt. If the change is worth it, write new limits with `cargo xtask budget \
         --update`, and say why in the commit",
        over.join(", ")
    );
    Ok(ExitCode::SUCCESS)
}

/// Builds the program from nothing, in a folder of its own, and starts it.
fn measure(root: &Path) -> Result<[(&'static str, u64); 4]> {
    let folder = tempfile::Builder::new().prefix("setpoint-budget").tempdir()?;
    let before = children()?;
    let mut cargo = workspace::cargo(root)
        .args(["build", "--release", "--message-format", "json-render-diagnostics"])
        .env("CARGO_TARGET_DIR", folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run cargo")?;
    let output = cargo.stdout.take().context("cargo has no output")?;
    let (mut units, mut program) = (0, None);
    for line in BufReader::new(output).lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line?) else { continue };
        let is_unit =
            message["reason"] == "compiler-artifact" || message["reason"] == "build-script-executed";
        units += u64::from(is_unit);
        if let Some(executable) =
            message["executable"].as_str().filter(|_| message["target"]["name"] == "setpoint")
        {
            program = Some(executable.to_owned());
        }
    }
    ensure!(cargo.wait()?.success(), "the release build fails");
    let spent = children()?.saturating_sub(before);
    let program = program.context("cargo built no program with the name setpoint")?;
    let bytes = fs::metadata(&program)?.len();
    let resident = startup::resident_at_rest(Path::new(&program))?;
    Ok([
        ("units", units),
        ("processor-seconds", spent.as_secs()),
        ("bytes", bytes),
        ("resident-kib", resident),
    ])
}

/// The processor time of all children that have ended, and of theirs.
fn children() -> Result<Duration> {
    let stat =
        fs::read_to_string("/proc/self/stat").context("this needs Linux: there is no /proc/self/stat")?;
    children_in(&stat).context("cannot read /proc/self/stat")
}

/// Fields 16 and 17 of `stat`, in hundredths of a second; the second one, a name, may have anything in it.
fn children_in(stat: &str) -> Option<Duration> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(13);
    let ticks: u64 = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 10))
}

fn limit(written: &str, name: &str) -> Option<u64> {
    written.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

fn processor() -> String {
    let all = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = all.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or_else(|| "an unknown processor".to_owned(), |(_, name)| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_children_is_read_behind_any_name() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 150 50 20 0 1";
        assert_eq!(children_in(stat), Some(Duration::from_secs(2)));
    }

    #[test]
    fn limits_are_read_by_their_names() {
        assert_eq!(limit("# on this\nunits 12\nbytes 7\n", "bytes"), Some(7));
        assert_eq!(limit("units 12\n", "bytes"), None);
    }
}
