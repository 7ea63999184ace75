//! `cargo xtask counts`: how many instructions the hot paths take, under callgrind, beside what they took when
//! `bench/counts.txt` was written. Times differ from run to run and from machine to machine; these do not, as long
//! as the compiler, valgrind, libc and the processor that valgrind plays are the same. The first line of the file names
//! them; with others, nothing is compared.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};

use crate::workspace::{self, Program};

/// Options of `cargo xtask counts`.
#[derive(clap::Args)]
pub(crate) struct Counts {
    /// Write the counts to bench/counts.txt instead of comparing.
    #[arg(long)]
    update: bool,
    /// Use the existing build.
    #[arg(long)]
    skip_build: bool,
    /// Count only the cases whose names contain this, and compare.
    #[arg(
        long,
        value_name = "PART",
        default_value = "",
        hide_default_value = true,
        conflicts_with = "update"
    )]
    only: String,
}

/// A case of `setpoint-bench count`.
struct Case {
    name: &'static str,
    /// How many rounds are counted, and what each round has of what the count is of.
    rounds: u64,
    each: u64,
}

const fn case(name: &'static str, rounds: u64, each: u64) -> Case {
    Case { name, rounds, each }
}

/// The cases, so many rounds that the count repeats to a thousandth.
const CASES: [Case; 15] = [
    case("list", 500, 1),
    case("event", 1000, 1),
    case("protobuf-event", 1000, 1),
    case("compact-event", 1000, 1),
    case("heard-event", 1000, 1),
    case("ceased-event", 1000, 1),
    case("decode", 200, 1),
    case("protobuf-decode", 200, 1),
    case("queue", 10_000, 1),
    case("unheard-queue", 10_000, 1),
    case("heard-queue", 10_000, 1),
    case("ceased-queue", 10_000, 1),
    case("change", 300, 1),
    case("watch", 50, 64),
    case("watch-protobuf", 20, 64),
];

/// Cases that take as much as others: being able to tell facts costs nothing as long as nobody listens, and nothing any more
/// when whoever listened has ceased.
const SAME: [(&str, &str); 3] =
    [("unheard-queue", "queue"), ("ceased-queue", "queue"), ("ceased-event", "event")];

/// By how much they may differ.
const SAME_LIMIT: f64 = 0.005;

/// By how much a count may grow before it is a regression. The same program's counts repeat to a thousandth.
const LIMIT: f64 = 0.03;

pub(crate) fn run(options: &Counts) -> Result<ExitCode> {
    let Some(valgrind) = find_valgrind() else {
        println!("skipped: there is no valgrind");
        return Ok(ExitCode::SUCCESS);
    };
    let root = workspace::root()?;
    let path = root.join("bench/counts.txt");
    let (written, tools) = (fs::read_to_string(&path).unwrap_or_default(), tools(&valgrind)?);
    if !options.update && written.lines().next() != Some(tools.as_str()) {
        let with = written.lines().next().unwrap_or("nothing: it is not there");
        println!(
            "skipped: bench/counts.txt was written with {with}\n         and this machine has     {tools}"
        );
        return Ok(ExitCode::SUCCESS);
    }
    let binary = build(options.skip_build)?;
    let before = parse(&written);
    let mut counted = Vec::new();
    for Case { name, rounds, each } in CASES.into_iter().filter(|case| case.name.contains(&options.only)) {
        let all = count(&valgrind, &binary, name, 2 * rounds)?;
        let half = count(&valgrind, &binary, name, rounds)?;
        let instructions = all.saturating_sub(half) / (rounds * each);
        let expected = before.iter().find(|(known, _)| known == name).map(|(_, count)| *count);
        println!("{name:<16}{instructions:>10}  {}", verdict(instructions, expected));
        counted.push((name, instructions, expected));
    }
    for (one, other) in SAME {
        let of = |case| counted.iter().find(|(name, ..)| *name == case).map(|(_, count, _)| *count);
        let (Some(one_count), Some(other_count)) = (of(one), of(other)) else { continue };
        let more = (one_count as f64 / other_count as f64 - 1.0) * 100.0;
        println!("{one} takes {more:+.2} % more than {other}");
        ensure!(
            is_same(one_count, other_count),
            "{one} takes {one_count} instructions, {other} {other_count}: these shall be the same within {} %",
            SAME_LIMIT * 100.0
        );
    }
    if options.update {
        let lines = counted.iter().map(|(case, count, _)| format!("{case} {count}\n"));
        fs::write(&path, format!("{tools}\n{}", lines.collect::<String>()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let grown = counted
        .iter()
        .filter(|(_, count, expected)| expected.is_some_and(|expected| is_regression(*count, expected)));
    let grown: Vec<&str> = grown.map(|(case, ..)| *case).collect();
    ensure!(
        grown.is_empty(),
        "{} now takes over {:.0} % more instructions than bench/counts.txt says. If the change is worth it, write \
         the new counts with `cargo xtask counts --update`, and say why in the commit",
        grown.join(", "),
        LIMIT * 100.0
    );
    Ok(ExitCode::SUCCESS)
}

fn is_regression(count: u64, expected: u64) -> bool {
    count as f64 > expected as f64 * (1.0 + LIMIT)
}

fn is_same(one: u64, other: u64) -> bool {
    one.abs_diff(other) as f64 <= other as f64 * SAME_LIMIT
}

fn verdict(count: u64, expected: Option<u64>) -> String {
    let Some(expected) = expected else { return "not counted before".to_owned() };
    let change = (count as f64 / expected as f64 - 1.0) * 100.0;
    let words = if is_regression(count, expected) {
        ": too many"
    } else if is_regression(expected, count) {
        ": fewer; `cargo xtask counts --update` keeps them from growing back"
    } else {
        ""
    };
    format!("{change:+.1} % of {expected}{words}")
}

/// Where valgrind is: it gets no environment, so it is not looked for again.
fn find_valgrind() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join("valgrind")).find(|file| file.is_file())
}

/// What the counts depend on beside our code.
fn tools(valgrind: &Path) -> Result<String> {
    let says = |program: &Path, argument: &str| -> Result<String> {
        let output = Command::new(program).arg(argument).output();
        let output = output.with_context(|| format!("cannot run {}", program.display()))?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    // Copies, searches and compression take what the processor has. Valgrind plays one of a few processors, whatever
    // the real one is: one with AVX2 if that has it, never one with more.
    let has = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let best = ["avx2", "avx"].into_iter().find(|flag| has.split_whitespace().any(|word| word == *flag));
    Ok(format!(
        "# {}, {}, {}, {} {}",
        says(rustc.as_ref(), "--version")?,
        says(valgrind, "--version")?,
        says("getconf".as_ref(), "GNU_LIBC_VERSION").unwrap_or_default(),
        std::env::consts::ARCH,
        best.unwrap_or("without avx")
    ))
}

/// `case count`, one a line.
fn parse(text: &str) -> Vec<(String, u64)> {
    let line = |line: &str| {
        let (case, count) = line.split_once(' ')?;
        Some((case.to_owned(), count.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

fn build(skip_build: bool) -> Result<PathBuf> {
    let arguments = &["--no-default-features", "--features", "apiserver"];
    Program { package: "setpoint-bench", name: "setpoint-bench", profile: "counts", arguments }
        .get(skip_build)
}

/// The instructions of a whole run.
fn count(valgrind: &Path, binary: &Path, case: &str, n: u64) -> Result<u64> {
    let output = Command::new(valgrind)
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(binary)
        .args(["count", case, &n.to_string()])
        // Allocators and logging listen to it.
        .env_clear()
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
    fn what_grows_beyond_the_limit_is_a_regression() {
        assert!(!is_regression(1029, 1000));
        assert!(is_regression(1031, 1000));
        assert_eq!(verdict(1010, Some(1000)), "+1.0 % of 1000");
        assert_eq!(verdict(1100, Some(1000)), "+10.0 % of 1000: too many");
    }

    #[test]
    fn two_counts_are_the_same_within_the_limit() {
        assert!(is_same(1005, 1000) && is_same(995, 1000) && is_same(851, 851));
        assert!(!is_same(1006, 1000) && !is_same(994, 1000));
    }

    #[test]
    fn counts_are_read_as_they_are_written() {
        assert_eq!(
            parse("# with these\nlist 12\nread 7\n"),
            [("list".to_owned(), 12), ("read".to_owned(), 7)]
        );
    }
}
