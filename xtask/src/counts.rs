//! `cargo xtask counts`: how many instructions the hot paths take, under callgrind, beside what they took when
//! `bench/counts.txt` was written. Times differ from run to run and from machine to machine; these hardly do, as long
//! as the compiler, valgrind and what the processor can do are the same. The first line of the file names them; with
//! others, nothing is compared.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};

/// Options of `cargo xtask counts`.
#[derive(clap::Args)]
pub(crate) struct Counts {
    /// Write what was counted to bench/counts.txt instead of comparing.
    #[arg(long)]
    update: bool,
    /// Use the build that is there.
    #[arg(long)]
    skip_build: bool,
}

/// The cases of `setpoint-bench count`, and how many operations are counted.
const CASES: [(&str, u64); 6] = [
    ("list", 2000),
    ("event", 4000),
    ("compact-event", 2000),
    ("read", 1000),
    ("queue", 20_000),
    ("watch", 1000),
];

/// By how much a count may grow before it is a regression.
const TOLERANCE: f64 = 0.1;

pub(crate) fn run(options: &Counts) -> Result<ExitCode> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: there is no valgrind");
        return Ok(ExitCode::SUCCESS);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace")?;
    let path = root.join("bench/counts.txt");
    let (written, tools) = (fs::read_to_string(&path).unwrap_or_default(), tools()?);
    if !options.update && written.lines().next() != Some(tools.as_str()) {
        println!("skipped: bench/counts.txt was not written with {tools}");
        return Ok(ExitCode::SUCCESS);
    }
    let binary = build(root, options.skip_build)?;
    let before = parse(&written);
    let mut counted = Vec::new();
    for (case, n) in CASES {
        let instructions = (count(&binary, case, 2 * n)?.saturating_sub(count(&binary, case, n)?)) / n;
        let expected = before.iter().find(|(name, _)| name == case).map(|(_, count)| *count);
        println!("{case:<16}{instructions:>10}  {}", verdict(instructions, expected));
        counted.push((case.to_owned(), instructions));
    }
    if options.update {
        let lines = counted.iter().map(|(case, count)| format!("{case} {count}\n"));
        fs::write(&path, format!("{tools}\n{}", lines.collect::<String>()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let has_grown = counted.iter().any(|(case, count)| {
        before.iter().any(|(name, expected)| name == case && is_regression(*count, *expected))
    });
    Ok(if has_grown { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn is_regression(count: u64, expected: u64) -> bool {
    count as f64 > expected as f64 * (1.0 + TOLERANCE)
}

fn verdict(count: u64, expected: Option<u64>) -> String {
    match expected {
        None => "not counted before".to_owned(),
        Some(expected) => {
            let change = (count as f64 / expected as f64 - 1.0) * 100.0;
            let words = if is_regression(count, expected) { ": too many; see bench/counts.txt" } else { "" };
            format!("{change:+.1} % of {expected}{words}")
        }
    }
}

/// What the counts depend on beside our code.
fn tools() -> Result<String> {
    let version = |program: &str| -> Result<String> {
        let output = Command::new(program).arg("--version").output();
        let output = output.with_context(|| format!("cannot run {program}"))?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    // Copies, searches and checksums take what the processor has.
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let has = |flag: &str| processor.split_whitespace().any(|word| word == flag);
    let flags: Vec<&str> =
        ["avx2", "avx512f", "erms", "sha_ni"].into_iter().filter(|flag| has(flag)).collect();
    Ok(format!("# {}, {}, {}", version(&rustc)?, version("valgrind")?, flags.join(" ")))
}

/// `case count`, one a line.
fn parse(text: &str) -> Vec<(String, u64)> {
    let line = |line: &str| {
        let (case, count) = line.split_once(' ')?;
        Some((case.to_owned(), count.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

fn build(root: &Path, skip_build: bool) -> Result<PathBuf> {
    if !skip_build {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let features = ["--no-default-features", "--features", "apiserver"];
        let arguments = [&["build", "--release", "-p", "setpoint-bench"] as &[_], &features].concat();
        let status = Command::new(cargo).args(arguments).current_dir(root).status()?;
        ensure!(status.success(), "setpoint-bench does not build");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join("release/setpoint-bench"))
}

/// The instructions of a whole run.
fn count(binary: &Path, case: &str, n: u64) -> Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(binary)
        .args(["count", case, &n.to_string()])
        .output()
        .context("cannot run valgrind")?;
    let words = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{case} failed: {}", words.trim());
    }
    let total = words.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    total.with_context(|| format!("callgrind said nothing of {case}: {}", words.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_beyond_the_tolerance_is_a_regression() {
        assert!(!is_regression(1099, 1000));
        assert!(is_regression(1101, 1000));
        assert_eq!(verdict(900, Some(1000)), "-10.0 % of 1000");
    }

    #[test]
    fn counts_are_read_as_they_are_written() {
        assert_eq!(
            parse("# with these\nlist 12\nread 7\n"),
            [("list".to_owned(), 12), ("read".to_owned(), 7)]
        );
    }
}
