//! `cargo xtask fuzz`: inputs that nobody thought of, for as long as you say. `fuzz/` has the targets.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::real::process;
use crate::real::report::Report;
use crate::workspace;

/// The suite of `cargo xtask real`.
pub(crate) const SUITE: &str = "fuzz";
/// The version that is installed where there is none.
const CARGO_FUZZ: &str = "0.13.2";
/// What the suite of `cargo xtask real` takes, for all targets together.
const MINUTE: Duration = Duration::from_secs(60);
/// One input that takes longer is a failure.
const INPUT_LIMIT: &str = "-timeout=20";
/// A target that takes more memory is a failure.
const MEMORY_LIMIT: &str = "-rss_limit_mb=3072";
/// A target ends by itself. One that takes this much longer than it was told hangs.
const GRACE: Duration = Duration::from_secs(300);

/// Options of `cargo xtask fuzz`.
#[derive(clap::Args)]
pub(crate) struct Fuzz {
    /// The total time. The targets share it; those that read what any client may send get three shares each.
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Run only these targets.
    #[arg(long, value_name = "TARGET")]
    only: Vec<String>,
    /// List the targets instead of running them.
    #[arg(long)]
    list: bool,
    /// Continue with the other targets when one has found something.
    #[arg(long)]
    keep_going: bool,
}

struct Target {
    name: &'static str,
    what: &'static str,
    /// The longest input.
    length: u32,
    /// How many shares of the time it has.
    shares: u32,
}

/// Reads what any client may send.
const EXPOSED: u32 = 3;

const TARGETS: &[Target] = &[
    Target {
        name: "bodies",
        what: "bodies in JSON, YAML and protobuf, of any kind",
        length: 16_384,
        shares: EXPOSED,
    },
    Target { name: "patches", what: "all four patches, on any object", length: 8192, shares: EXPOSED },
    Target { name: "cel", what: "expressions, parsed and evaluated", length: 4096, shares: 1 },
    Target { name: "schemas", what: "structural schemas, and objects under them", length: 8192, shares: 1 },
    Target { name: "apply", what: "server-side apply against a naive model", length: 1024, shares: 1 },
    Target {
        name: "queries",
        what: "paths, selectors, pages and continue tokens",
        length: 1024,
        shares: EXPOSED,
    },
    Target { name: "formats", what: "quantities, times and schedules", length: 256, shares: 1 },
    Target {
        name: "streams",
        what: "lists and watches in an informer, cut anywhere",
        length: 4096,
        shares: 1,
    },
    Target { name: "store", what: "a store whose bytes have changed", length: 256, shares: 1 },
    Target { name: "files", what: "audit policies, token files and kubeconfigs", length: 4096, shares: 1 },
];

/// Runs it; the exit code says whether nothing was found.
pub(crate) fn run(options: &Fuzz) -> Result<ExitCode> {
    let targets = chosen(&options.only)?;
    if options.list {
        targets.iter().for_each(|target| println!("{:12} {}", target.name, target.what));
        return Ok(ExitCode::SUCCESS);
    }
    let folder = build(false)?;
    let end = Instant::now() + Duration::from_secs(60 * options.minutes);
    let (mut ran, mut found) = (0, 0);
    let mut shares: u32 = targets.iter().map(|target| target.shares).sum();
    for target in &targets {
        let left = end.saturating_duration_since(Instant::now());
        let share = left * target.shares / shares;
        shares -= target.shares;
        ran += 1;
        match target.run(&folder, share) {
            Ok(line) => println!("{:10} {line}", target.name),
            Err(error) => {
                println!("{:10} FOUND SOMETHING\n{error:#}", target.name);
                found += 1;
                if !options.keep_going {
                    break;
                }
            }
        }
    }
    println!("{ran} targets of {} ran, {found} found something", targets.len());
    Ok(if found == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A minute of all targets, for `cargo xtask real`.
pub(crate) fn run_briefly(report: &mut Report, skip_build: bool) {
    if !report.filter().takes_suite(SUITE) {
        return;
    }
    if let Some(why) = missing(skip_build) {
        return report.skip(SUITE, &why);
    }
    let Some(folder) = built(report, || build(skip_build)) else { return };
    let share = MINUTE / u32::try_from(TARGETS.len()).unwrap_or(1);
    for target in TARGETS {
        let mut line = String::new();
        report.check(SUITE, target.name, || {
            line = target.run(&folder, share)?;
            Ok(())
        });
        if !line.is_empty() {
            report.note(SUITE, &format!("{}: {line}", target.name));
        }
    }
}

/// Why the targets cannot be built on this machine, whatever their code is.
fn missing(skip_build: bool) -> Option<String> {
    // As the build script of libFuzzer looks for it.
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    if !starts(Command::new(&compiler).arg("--version")) {
        return Some(format!("there is no C++ compiler: {} does not start", compiler.display()));
    }
    (skip_build && !has_cargo_fuzz()).then(|| format!("there is no cargo-fuzz: {}", install_hint()))
}

/// What a build gives. Targets that do not build are a failure: they are the first thing that a change breaks.
fn built(report: &mut Report, build: impl FnOnce() -> Result<PathBuf>) -> Option<PathBuf> {
    let begun = Instant::now();
    match build() {
        Ok(folder) => Some(folder),
        Err(error) => {
            report.record(SUITE, "the targets build", begun.elapsed(), Err(error));
            None
        }
    }
}

fn starts(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

fn has_cargo_fuzz() -> bool {
    workspace::root().is_ok_and(|root| starts(workspace::cargo(root).args(["fuzz", "--version"])))
}

fn install_hint() -> String {
    format!("cargo install cargo-fuzz --locked --version {CARGO_FUZZ}")
}

/// The names of the targets, for `--list`.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    TARGETS.iter().map(|target| target.name)
}

fn chosen(only: &[String]) -> Result<Vec<&'static Target>> {
    if let Some(unknown) = only.iter().find(|name| !TARGETS.iter().any(|target| target.name == **name)) {
        bail!("there is no target {unknown}: cargo xtask fuzz --list shows them");
    }
    Ok(TARGETS
        .iter()
        .filter(|target| only.is_empty() || only.iter().any(|name| name == target.name))
        .collect())
}

/// Builds all targets, and cargo-fuzz if it is not there; gives the folder of the targets' workspace.
fn build(skip_build: bool) -> Result<PathBuf> {
    let root = workspace::root()?;
    let folder = root.join("fuzz");
    let is_there = has_cargo_fuzz();
    if skip_build {
        ensure!(is_there, "there is no cargo-fuzz: {}", install_hint());
        return Ok(folder);
    }
    if !is_there {
        let mut install = workspace::cargo(root);
        install.args(["install", "cargo-fuzz", "--locked", "--version", CARGO_FUZZ]);
        ensure!(install.status()?.success(), "cargo-fuzz cannot be installed: {}", install_hint());
    }
    let status = cargo_fuzz(&folder, "build").status().context("cannot run cargo")?;
    ensure!(status.success(), "the fuzz targets do not build: cargo check --manifest-path fuzz/Cargo.toml");
    Ok(folder)
}

/// `cargo fuzz`, as all of it is built: without a sanitizer, since there is no unsafe code to look at, and as the product
/// is, without the cfg `fuzzing`.
fn cargo_fuzz(folder: &Path, command: &str) -> Command {
    let mut cargo = workspace::cargo(folder);
    cargo.args(["fuzz", command, "--fuzz-dir", ".", "--sanitizer", "none", "--no-cfg-fuzzing"]);
    cargo.env("RUSTC_BOOTSTRAP", "1");
    // Both workspaces would build everything anew, in turn.
    cargo.env_remove("CARGO_TARGET_DIR");
    cargo
}

impl Target {
    /// Runs the target for a while; says what it did. The error has the end of its output, and how to see it again.
    fn run(&self, folder: &Path, time: Duration) -> Result<String> {
        let name = self.name;
        fs::create_dir_all(folder.join("corpus").join(name))?;
        let mut command = cargo_fuzz(folder, "run");
        command.args([name, &format!("corpus/{name}"), &format!("seeds/{name}"), "--"]);
        command.arg(format!("-max_total_time={}", time.as_secs().max(1)));
        command.arg(format!("-max_len={}", self.length));
        command.args([INPUT_LIMIT, MEMORY_LIMIT, "-print_final_stats=1"]);
        let dictionary = format!("dictionaries/{name}.dict");
        if folder.join(&dictionary).exists() {
            command.arg(format!("-dict={dictionary}"));
        }
        let finished = process::run(command, None, time + GRACE)?;
        let tail = || {
            let lines: Vec<&str> = finished.stderr.lines().collect();
            let end = lines.len().saturating_sub(60);
            lines[end..].join("\n")
        };
        ensure!(finished.status.success(), "{}\n{}", tail(), again(name, &finished.stderr));
        summary(&finished.stderr).with_context(|| format!("it says nothing of what it did:\n{}", tail()))
    }
}

/// Which input it was, and the command that runs it once more.
fn again(name: &str, output: &str) -> String {
    let written = output.lines().rev().find_map(|line| line.split_once("Test unit written to "));
    let Some((_, path)) = written else { return "no input was kept".to_owned() };
    let file = path.trim().rsplit('/').next().unwrap_or_default();
    let input = format!("artifacts/{name}/{file}");
    format!(
        "the input: fuzz/{input}\nonce more: cd fuzz; RUSTC_BOOTSTRAP=1 cargo fuzz run -s none --no-cfg-fuzzing --fuzz-dir . \
         {name} {input}"
    )
}

/// What libFuzzer says at the end: how many inputs it ran, and how much of the code they have reached.
fn summary(output: &str) -> Option<String> {
    let last = output.lines().rev().find(|line| line.split_whitespace().nth(1) == Some("DONE"))?;
    let after = |word: &str| last.split_whitespace().skip_while(|found| *found != word).nth(1);
    let runs = last.split_whitespace().next()?.trim_start_matches('#');
    let corpus = after("corp:").unwrap_or("0");
    let speed = after("exec/s:").unwrap_or("0");
    let (cov, features) = (after("cov:")?, after("ft:")?);
    Some(format!("{runs} inputs, {speed} a second, cov: {cov}, ft: {features}, corpus {corpus}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_a_run_is_summed_up() {
        let output = "#2\tINITED cov: 10 ft: 11 corp: 1/1b exec/s: 0 rss: 30Mb\n\
                      #500\tDONE   cov: 3061 ft: 4405 corp: 54/19Kb lim: 8192 exec/s: 250 rss: 99Mb\nDone 500 runs in 2 second(s)\n";
        assert_eq!(
            summary(output).as_deref(),
            Some("500 inputs, 250 a second, cov: 3061, ft: 4405, corpus 54/19Kb")
        );
        assert_eq!(summary("nothing"), None);
    }

    #[test]
    fn a_failure_says_which_input_it_was_and_how_to_run_it_again() {
        let output = "==7== ERROR: libFuzzer: deadly signal\n\
                      artifact_prefix='/there/fuzz/artifacts/cel/'; Test unit written to /there/fuzz/artifacts/cel/crash-1f\n\
                      Base64: AA==\n";
        assert_eq!(
            again("cel", output),
            "the input: fuzz/artifacts/cel/crash-1f\nonce more: cd fuzz; RUSTC_BOOTSTRAP=1 cargo fuzz run -s none \
             --no-cfg-fuzzing --fuzz-dir . cel artifacts/cel/crash-1f"
        );
        assert_eq!(again("cel", "error: could not compile"), "no input was kept");
    }

    #[test]
    fn targets_that_do_not_build_are_a_failure_and_no_skip() {
        let mut report = Report::default();
        assert!(built(&mut report, || bail!("error: could not compile")).is_none());
        report.check(SUITE, "another", || Ok(()));
        assert!(!report.finish());
        assert!(built(&mut Report::default(), || Ok(PathBuf::from("fuzz"))).is_some());
    }

    #[test]
    fn every_target_has_its_program_and_seeds() {
        let folder = workspace::root().unwrap().join("fuzz");
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        for name in names() {
            assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
            assert!(folder.join("seeds").join(name).is_dir(), "{name}");
        }
        assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len());
    }
}
