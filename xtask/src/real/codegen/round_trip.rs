//! CRD → types → samples there and back → CRD again, for CRDs that others wrote: with our types, which must lose
//! nothing, and with kopium's, to compare.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::crds::{self, Crd};
use super::kopium::{self, Kopium};
use super::outcome::{Outcome, Sum, Trip};
use super::{BUILD_LIMIT, SUITE, Tools};
use crate::real::process;
use crate::real::report::Report;
use crate::real::samples::stage::Stage;
use crate::real::servers::{Reference, Server};
use crate::workspace;

pub(super) const NAME: &str = "CRDs of well-known projects, through types and back";

const CHECK: &str = include_str!("../../../peers/round-trip/check.rs");
const MANIFEST: &str = include_str!("../../../peers/round-trip/Cargo.toml.in");
const PACKAGE: &str = "crd-round-trip";
/// How many the issue of this suite is about.
const FEWEST: usize = 10;
/// What one compiler may take for the types of one version: kibibytes of address space, seconds of processor time.
/// Both sides' types are compiled under it, each version by itself.
const MEMORY: u64 = 4 << 20;
const PROCESSOR: u64 = 300;

pub(super) fn run(report: &mut Report, tools: &Tools<'_>, reference: Result<&Reference, String>) {
    let begun = Instant::now();
    let outcome = check(report, tools, reference);
    report.record(SUITE, NAME, begun.elapsed(), outcome);
}

fn check(report: &mut Report, tools: &Tools<'_>, reference: Result<&Reference, String>) -> Result<()> {
    let folder = TempDir::new()?;
    let crds = crds::fetch(report, tools, folder.path())?;
    ensure!(crds.len() >= FEWEST, "only {} CRDs could be had", crds.len());
    let lines: usize = crds.iter().map(|crd| crd.lines).sum();
    let versions: usize = crds.iter().map(|crd| crd.versions.len()).sum();
    report.note(SUITE, &format!("{} CRDs with {versions} versions and {lines} lines", crds.len()));
    let kopium = match Kopium::get(tools) {
        Ok(kopium) => Some(kopium),
        Err(error) => {
            report.skip("what kopium makes of the same", &format!("{error:#}"));
            None
        }
    };

    let bench = Bench::new(tools, folder.path().join("package"))?;
    let (mut ours, mut theirs, mut problems) = (Sum::default(), Sum::default(), Vec::new());
    for (crd, version) in crds.iter().flat_map(|crd| crd.versions.iter().map(move |version| (crd, version))) {
        let place = format!("{} {version}", crd.kind);
        let outcome = bench.take(crd, version, "made", &bench.our_types(crd, version)?)?;
        report.note(SUITE, &format!("{place}: {}", outcome.told()));
        ours.add(&place, &outcome);
        let Outcome { trip, problem, .. } = &outcome;
        if problem.is_some() || [&trip.lost, &trip.added, &trip.errors].iter().any(|list| !list.is_empty()) {
            problems.push(format!("{place}: {}", outcome.told()));
        }
        if let Some(kopium) = &kopium {
            let outcome = match kopium.types(&crd.file, version) {
                Ok(types) => bench.take(crd, version, "kopium", &types)?,
                Err(error) => Outcome { problem: Some(format!("not read: {error:#}")), ..Outcome::default() },
            };
            report.note(SUITE, &format!("{place}, by kopium: {}", outcome.told()));
            theirs.add(&place, &outcome);
        }
    }
    for line in ours.told().into_iter().chain(ours.changes_told()) {
        report.note(SUITE, &format!("in sum: {line}"));
    }
    if kopium.is_some() {
        let who = format!("in sum, by kopium {}", kopium::VERSION);
        theirs.told().iter().for_each(|line| report.note(SUITE, &format!("{who}: {line}")));
    }
    ensure!(problems.is_empty(), "lost on the way:\n{}", problems.join("\n"));

    let made = folder.path().join("made");
    accepted(report, "setpoint", &Server::setpoint(tools.setpoint)?, tools, &made, &crds)?;
    match reference {
        Ok(reference) => {
            accepted(report, "kube-apiserver", &Server::kube_apiserver(reference)?, tools, &made, &crds)?;
        }
        Err(error) => report.skip("kube-apiserver accepts the CRDs", &error),
    }
    Ok(())
}

/// A package whose types are replaced again and again.
struct Bench<'a> {
    tools: &'a Tools<'a>,
    folder: PathBuf,
}

impl<'a> Bench<'a> {
    /// With everything compiled that the types need.
    fn new(tools: &'a Tools<'a>, folder: PathBuf) -> Result<Bench<'a>> {
        std::fs::create_dir_all(folder.join("src"))?;
        std::fs::write(folder.join("src/check.rs"), CHECK)?;
        std::fs::write(folder.join("src/main.rs"), "fn main() {}\n")?;
        let manifest = MANIFEST.replace("@ROOT@", &tools.root.display().to_string());
        std::fs::write(folder.join("Cargo.toml"), manifest)?;
        std::fs::copy(tools.root.join("Cargo.lock"), folder.join("Cargo.lock"))?;
        tools.cargo(&folder, &["build", "--offline"])?;
        Ok(Bench { tools, folder })
    }

    fn our_types(&self, crd: &Crd, version: &str) -> Result<String> {
        let file = crd.file.display().to_string();
        self.tools.setpoint(&self.folder, &["gen", "types", "--crd", &file, "--api-version", version])
    }

    /// Compiles types, and lets them make the round trip.
    fn take(&self, crd: &Crd, version: &str, made: &str, types: &str) -> Result<Outcome> {
        let (file, made) = (&crd.file, crd.file.parent().context("no folder")?.join(made));
        std::fs::create_dir_all(&made)?;
        let made = made.join(file.file_name().context("no name")?);
        let main = format!(
            "mod check;\nmod types;\n\nfn main() -> anyhow::Result<()> {{\n    \
             check::check::<types::{}>({file:?}, {version:?}, {made:?})\n}}\n",
            root(types).unwrap_or(&crd.kind)
        );
        std::fs::write(self.folder.join("src/types.rs"), types)?;
        std::fs::write(self.folder.join("src/main.rs"), main)?;
        let mut outcome = Outcome { lines: types.lines().count(), ..Outcome::default() };
        match self.compile()? {
            Ok(took) => outcome.compiled_in = Some(took),
            Err(problem) => return Ok(Outcome { problem: Some(problem), ..outcome }),
        }
        let program = Command::new(self.tools.target.join("debug").join(PACKAGE));
        let done = process::run(program, None, Duration::from_secs(120))?;
        if done.status.success() {
            outcome.trip = Trip::read(&done.stdout)?;
        } else {
            outcome.problem = Some(format!("the program fails: {}", done.stderr.trim()));
        }
        Ok(outcome)
    }

    /// The processor time that it took, whatever else the machine did, or what is wrong.
    fn compile(&self) -> Result<Result<Duration, String>> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let limited = format!("ulimit -v {MEMORY}; ulimit -t {PROCESSOR}; \"$@\" || exit; times");
        let mut shell = Command::new("sh");
        shell.args(["-c", &limited, "sh"]).arg(cargo).args([
            "build",
            "--offline",
            "--message-format",
            "short",
        ]);
        shell.current_dir(&self.folder).env("CARGO_TARGET_DIR", self.tools.target);
        workspace::forget_package(&mut shell);
        let built = process::run(shell, None, BUILD_LIMIT)?;
        if built.status.success() {
            return Ok(Ok(processor_time(&built.stdout).context("the shell says no times")?));
        }
        let said = &built.stderr;
        let errors: Vec<&str> = said.lines().filter(|line| line.contains(": error")).collect();
        let last = said.lines().last().unwrap_or_default();
        Ok(Err(match errors.first() {
            _ if said.contains("memory") => format!("needs more than {} GB to compile", MEMORY >> 20),
            _ if said.contains("signal: ") => format!("needs more than {PROCESSOR} s to compile ({last})"),
            Some(first) => format!("does not compile: {} errors, as {first}", errors.len()),
            None => format!("does not compile: {last}"),
        }))
    }
}

/// The name of the type of whole objects, where it is not that of the kind.
fn root(types: &str) -> Option<&str> {
    let attributes = types.lines().find(|line| line.starts_with("#[kube("))?;
    attributes.split_once("root = \"")?.1.split('"').next()
}

/// What the shell's `times` says of its children, in its last line: `1m2.5s 0m0.5s`.
fn processor_time(said: &str) -> Option<Duration> {
    let seconds = |text: &str| -> Option<f64> {
        let (minutes, seconds) = text.strip_suffix('s')?.split_once('m')?;
        Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
    };
    let times: Option<Vec<f64>> = said.lines().last()?.split_whitespace().map(seconds).collect();
    Duration::try_from_secs_f64(times?.iter().sum()).ok()
}

/// Creates every CRD that was made again, and waits until the server serves it.
fn accepted(
    report: &Report,
    who: &str,
    server: &Server,
    tools: &Tools<'_>,
    made: &Path,
    crds: &[Crd],
) -> Result<()> {
    let stage = Stage::new(tools.kubectl.clone(), server.kubeconfig(), tools.setpoint)?;
    let begun = Instant::now();
    for crd in crds {
        let file = made.join(crd.file.file_name().context("no name")?);
        let created = stage.kubectl(&format!("create -f {}", file.display()));
        created.with_context(|| format!("{who} refuses {}", crd.name))?;
    }
    for crd in crds {
        let wait = format!("wait --for=condition=established crd/{} --timeout=60s", crd.name);
        stage.kubectl(&wait).with_context(|| format!("{who} does not serve {}", crd.name))?;
    }
    let took: Duration = begun.elapsed();
    report.note(SUITE, &format!("{who} serves all {} in {:.1} s", crds.len(), took.as_secs_f64()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_time_is_what_the_children_took() {
        let said = "0m0.001s 0m0.002s\n1m2.500s 0m0.500s\n";
        assert_eq!(processor_time(said), Some(Duration::from_secs(63)));
        assert_eq!(processor_time("built"), None);
    }

    #[test]
    fn the_derive_may_have_another_name_for_the_kind() {
        assert_eq!(
            root("/// root = \"x\"\n#[kube(kind = \"HTTPFoo\", root = \"HttpFoo\")]"),
            Some("HttpFoo")
        );
        assert_eq!(root("#[kube(kind = \"Foo\")]"), None);
    }
}
