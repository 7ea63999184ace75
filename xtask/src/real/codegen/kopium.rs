//! What kopium makes of the same CRDs: a peer to compare with, not a check.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::round_trip::{Crd, module, read, write_package};
use super::{BUILD_LIMIT, SUITE, Tools, succeed};
use crate::real::process;
use crate::real::report::Report;

const VERSION: &str = "0.24.1";
/// How often modules that do not compile are left out before we give up.
const ROUNDS: usize = 5;

/// One version of a kind, in a module.
struct Part {
    module: String,
    file: String,
    kind: String,
    version: String,
}

/// Tells how many CRDs it reads, how many of its types compile, and what they lose.
pub(super) fn run(report: &Report, tools: &Tools<'_>, folder: &Path, crds: &[Crd]) -> Result<()> {
    let kopium = install(tools)?;
    let package = folder.join("kopium");
    std::fs::create_dir_all(package.join("src"))?;
    write_package(tools, &package, "crd-kopium")?;
    let (mut parts, mut refused) = (Vec::new(), Vec::new());
    for (index, crd) in crds.iter().enumerate() {
        for version in &crd.versions {
            let (module, file) = (module(index, version), format!("../{index}.json"));
            let mut command = Command::new(&kopium);
            command.args(["-A", "--api-version", version, "-f", &file]).current_dir(&package);
            match succeed(command, Duration::from_secs(60)) {
                Ok(code) => {
                    std::fs::write(package.join(format!("src/{module}.rs")), code)?;
                    parts.push(Part { module, file, kind: crd.kind.clone(), version: version.clone() });
                }
                Err(error) => refused.push(format!("{} {version}: {}", crd.kind, last_line(&error))),
            }
        }
    }
    let read_at_all = parts.len();
    let broken = compile(tools, &package, &mut parts)?;
    let said = tools.cargo(&package, &["run", "--offline", "--quiet"])?;
    let (values, changes, problems) = read(&said)?;
    let note = |text: String| report.note(SUITE, &format!("kopium {VERSION}: {text}"));
    note(format!("{read_at_all} versions read, {} compile, {values} values in their samples", parts.len()));
    refused.iter().for_each(|what| note(format!("cannot read {what}")));
    broken.iter().for_each(|what| note(format!("does not compile: {what}")));
    problems.iter().for_each(|what| note(format!("loses: {what}")));
    changes.iter().for_each(|(what, count)| note(format!("in the CRDs made again: {what}, {count} times")));
    Ok(())
}

fn last_line(error: &anyhow::Error) -> String {
    format!("{error:#}").lines().next_back().unwrap_or_default().to_owned()
}

/// The program, built once into the cache.
fn install(tools: &Tools<'_>) -> Result<PathBuf> {
    let root = tools.cache.join(format!("kopium-{VERSION}"));
    let program = root.join("bin/kopium");
    if !program.exists() {
        if !tools.may_build {
            bail!("kopium is not built, and building is off");
        }
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["install", "kopium", "--version", VERSION, "--locked", "--debug", "--root"]).arg(&root);
        succeed(cargo, BUILD_LIMIT).context("kopium cannot be built")?;
    }
    Ok(program)
}

/// Leaves out what does not compile, and returns the first error of each.
fn compile(tools: &Tools<'_>, package: &Path, parts: &mut Vec<Part>) -> Result<Vec<String>> {
    let mut broken = Vec::new();
    for _ in 0..ROUNDS {
        std::fs::write(package.join("src/main.rs"), program(parts)?)?;
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--offline", "--message-format", "short"]).current_dir(package);
        cargo.env("CARGO_TARGET_DIR", tools.target);
        let built = process::run(cargo, None, BUILD_LIMIT)?;
        if built.status.success() {
            return Ok(broken);
        }
        let before = parts.len();
        let errors: Vec<&str> = built.stderr.lines().filter(|line| line.contains(": error")).collect();
        parts.retain(|part| {
            let start = format!("src/{}.rs:", part.module);
            let error = errors.iter().find(|line| line.starts_with(&start));
            broken.extend(error.map(|error| format!("{} {}: {error}", part.kind, part.version)));
            error.is_none()
        });
        if parts.len() == before {
            bail!("its types do not compile: {}", errors.first().copied().unwrap_or(&built.stderr));
        }
    }
    bail!("its types do not compile, however many are left out")
}

fn program(parts: &[Part]) -> Result<String> {
    let mut code = "mod check;\n".to_owned();
    parts.iter().try_for_each(|part| writeln!(code, "mod {};", part.module))?;
    code.push_str("\nfn main() {\n");
    for Part { module, file, kind, version } in parts {
        writeln!(code, "    check::attempt::<{module}::{kind}>({file:?}, {version:?});")?;
    }
    code.push_str("}\n");
    Ok(code)
}
