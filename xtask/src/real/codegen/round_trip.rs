//! CRD → types → sample there and back → CRD again, for CRDs that others wrote.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use super::sources::SOURCES;
use super::{SUITE, Tools, kopium};
use crate::real::report::Report;
use crate::real::samples::stage::Stage;
use crate::real::servers::{Reference, Server};

pub(super) const NAME: &str = "CRDs of well-known projects, through types and back";

const CHECK: &str = include_str!("../../../peers/round-trip/check.rs");
const MANIFEST: &str = include_str!("../../../peers/round-trip/Cargo.toml.in");
/// How many the issue of this suite is about.
const FEWEST: usize = 10;

/// A CRD in a file of its own.
pub(super) struct Crd {
    name: String,
    pub(super) kind: String,
    pub(super) versions: Vec<String>,
    lines: usize,
}

pub(super) fn run(report: &mut Report, tools: &Tools<'_>, reference: Result<&Reference, String>) {
    let begun = Instant::now();
    let outcome = check(report, tools, reference);
    report.record(SUITE, NAME, begun.elapsed(), outcome);
}

fn check(report: &mut Report, tools: &Tools<'_>, reference: Result<&Reference, String>) -> Result<()> {
    let folder = TempDir::new()?;
    let crds = fetch(report, tools, folder.path())?;
    ensure!(crds.len() >= FEWEST, "only {} CRDs could be had", crds.len());
    let lines: usize = crds.iter().map(|crd| crd.lines).sum();
    let versions: usize = crds.iter().map(|crd| crd.versions.len()).sum();
    report.note(SUITE, &format!("{} CRDs with {versions} versions and {lines} lines", crds.len()));

    let begun = Instant::now();
    let mut generated = 0;
    for (index, crd) in crds.iter().enumerate() {
        for version in &crd.versions {
            let (file, out) = (format!("{index}.json"), format!("src/{}.rs", module(index, version)));
            tools.setpoint(
                folder.path(),
                &["gen", "types", "--crd", &file, "--api-version", version, "--out", &out],
            )?;
            generated += std::fs::read_to_string(folder.path().join(&out))?.lines().count();
        }
    }
    report.note(SUITE, &format!("{generated} lines of types in {:.1} s", begun.elapsed().as_secs_f64()));
    std::fs::write(folder.path().join("src/main.rs"), program(&crds)?)?;
    write_package(tools, folder.path(), "crd-round-trip")?;
    let begun = Instant::now();
    tools.cargo(folder.path(), &["build", "--offline"])?;
    report.note(SUITE, &format!("compiled in {:.1} s", begun.elapsed().as_secs_f64()));

    let said = tools.cargo(folder.path(), &["run", "--offline", "--quiet"])?;
    tell(report, &said)?;
    accepted(report, "setpoint", &Server::setpoint(tools.setpoint)?, tools, folder.path(), &crds)?;
    match reference {
        Ok(reference) => {
            accepted(
                report,
                "kube-apiserver",
                &Server::kube_apiserver(reference)?,
                tools,
                folder.path(),
                &crds,
            )?;
        }
        Err(error) => report.skip("kube-apiserver accepts the CRDs", &error),
    }
    if let Err(error) = kopium::run(report, tools, folder.path(), &crds) {
        report.skip("what kopium makes of the same", &format!("{error:#}"));
    }
    Ok(())
}

/// Everything of a package but its modules and `main`.
pub(super) fn write_package(tools: &Tools<'_>, folder: &Path, name: &str) -> Result<()> {
    std::fs::write(folder.join("src/check.rs"), CHECK)?;
    let manifest = MANIFEST.replace("@ROOT@", &tools.root.display().to_string());
    std::fs::write(folder.join("Cargo.toml"), manifest.replace("crd-round-trip", name))?;
    std::fs::copy(tools.root.join("Cargo.lock"), folder.join("Cargo.lock"))?;
    Ok(())
}

/// Puts every CRD that can be had into a file, `0.json`, `1.json`, ….
fn fetch(report: &mut Report, tools: &Tools<'_>, folder: &Path) -> Result<Vec<Crd>> {
    std::fs::create_dir(folder.join("src"))?;
    std::fs::create_dir(folder.join("made"))?;
    let mut crds = Vec::new();
    for source in SOURCES {
        let files = match source.fetch(tools.cache) {
            Ok(files) => files,
            Err(error) => {
                report.skip(source.module, &format!("{error:#}"));
                continue;
            }
        };
        for file in files {
            let text = std::fs::read_to_string(&file)?;
            let parts = text.split("\n---");
            for part in parts.filter(|part| part.contains("kind: CustomResourceDefinition")) {
                let document: Value =
                    serde_saphyr::from_str(part).with_context(|| file.display().to_string())?;
                let kind = document["spec"]["names"]["kind"].as_str().unwrap_or_default();
                if document["kind"] != "CustomResourceDefinition" || !source.wants(kind) {
                    continue;
                }
                let text = serde_json::to_string(&document)?;
                std::fs::write(folder.join(format!("{}.json", crds.len())), text)?;
                let versions = document["spec"]["versions"].as_array().into_iter().flatten();
                crds.push(Crd {
                    name: document["metadata"]["name"].as_str().context("no name")?.to_owned(),
                    kind: kind.to_owned(),
                    versions: versions.filter_map(|one| one["name"].as_str().map(str::to_owned)).collect(),
                    lines: part.lines().count(),
                });
            }
        }
    }
    Ok(crds)
}

pub(super) fn module(index: usize, version: &str) -> String {
    format!("crd{index}_{}", version.replace('-', "_"))
}

/// The program that puts samples through all types.
fn program(crds: &[Crd]) -> Result<String> {
    let mut code = "mod check;\n".to_owned();
    let mut body = String::new();
    for (index, crd) in crds.iter().enumerate() {
        let mut made = Vec::new();
        for version in &crd.versions {
            let module = module(index, version);
            writeln!(code, "mod {module};")?;
            made.push(format!("check::check::<{module}::{}>(\"{index}.json\", {version:?})?", crd.kind));
        }
        writeln!(body, "    check::write(vec![{}], \"made/{index}.json\")?;", made.join(", "))?;
    }
    writeln!(code, "\nfn main() -> anyhow::Result<()> {{\n{body}    Ok(())\n}}")?;
    Ok(code)
}

/// Prints what was lost, and fails if anything was.
fn tell(report: &Report, said: &str) -> Result<()> {
    let (values, changes, problems) = read(said)?;
    report.note(SUITE, &format!("{values} values in the full samples"));
    for (what, count) in changes {
        report.note(SUITE, &format!("in the CRDs made again: {what}, {count} times"));
    }
    ensure!(problems.is_empty(), "lost on the way:\n{}", problems.join("\n"));
    Ok(())
}

/// How many values, which changes of the schemas how often, and what is wrong with which version.
pub(super) fn read(said: &str) -> Result<(u64, BTreeMap<String, u64>, Vec<String>)> {
    let mut changes: BTreeMap<String, u64> = BTreeMap::new();
    let (mut values, mut problems) = (0, Vec::new());
    for line in said.lines() {
        let line: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        values += line["values"].as_u64().unwrap_or_default();
        let lost = line["lost"].as_array().cloned().unwrap_or_default();
        if !lost.is_empty() || !line["error"].is_null() {
            let first: Vec<String> = lost.iter().take(5).map(Value::to_string).collect();
            let place = format!("{} {}", line["crd"], line["version"]);
            problems.push(format!("{place}: {} lost ({}) {}", lost.len(), first.join(", "), line["error"]));
        }
        for (what, count) in line["changes"].as_object().into_iter().flatten() {
            *changes.entry(what.clone()).or_default() += count.as_u64().unwrap_or_default();
        }
    }
    Ok((values, changes, problems))
}

/// Creates every CRD that was made again, and waits until the server serves it.
fn accepted(
    report: &Report,
    who: &str,
    server: &Server,
    tools: &Tools<'_>,
    folder: &Path,
    crds: &[Crd],
) -> Result<()> {
    let stage = Stage::new(tools.kubectl.clone(), server.kubeconfig(), tools.setpoint)?;
    let begun = Instant::now();
    for (index, crd) in crds.iter().enumerate() {
        let file = folder.join(format!("made/{index}.json"));
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
