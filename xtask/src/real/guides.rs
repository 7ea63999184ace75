//! The suite `guides`: the guides for those who come from other libraries name all that these have, and their operators compile.

mod kube;
mod table;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use self::table::Item;
use super::peers::{CONTROLLER_RUNTIME, GUIDES, Peers};
use super::process;
use super::report::Report;

pub(crate) const SUITE: &str = "guides";

const VET: &str = "the operator in Go passes go vet";
const CONTROLLER_RUNTIME_ROWS: &str = "controller-runtime: a row for each item, and no other";
const KUBE_ROWS: &str = "kube::runtime: a row for each item, and no other";
/// The names of the checks, for `--list`.
pub(crate) const NAMES: [&str; 3] = [VET, CONTROLLER_RUNTIME_ROWS, KUBE_ROWS];

/// Go compiles what it has not compiled yet.
const LIMIT: Duration = Duration::from_secs(1800);
/// The packages that the guide is about.
const PACKAGES: [&str; 11] = [
    "builder",
    "cache",
    "client",
    "controller",
    "event",
    "handler",
    "manager",
    "predicate",
    "reconcile",
    "source",
    "webhook",
];

pub(crate) fn run(report: &mut Report, peers: &Peers, root: &Path) {
    if !report.filter().takes_suite(SUITE) {
        return;
    }
    report.check(SUITE, KUBE_ROWS, || {
        let guide = std::fs::read_to_string(root.join("docs/from-kube-rs.md"))?;
        let (_, rows) = guide.split_once("## Every item").context("the guide has no table of items")?;
        kube::compare(&table::of_kube(rows), &kube::source(root)?)
    });
    // Without Go, or where the proxy refuses the module, there is nothing to compare with.
    let source = match CONTROLLER_RUNTIME.source() {
        Ok(source) => source,
        Err(error) => {
            report.skip(&format!("{SUITE}: {VET}"), &format!("{error:#}"));
            return report.skip(&format!("{SUITE}: {CONTROLLER_RUNTIME_ROWS}"), &format!("{error:#}"));
        }
    };
    report.check(SUITE, VET, || vet(root));
    report.check(SUITE, CONTROLLER_RUNTIME_ROWS, || {
        let guide = std::fs::read_to_string(root.join("docs/from-controller-runtime.md"))?;
        compare(&table::of_controller_runtime(&guide), &exported(&peers.get(&GUIDES)?, &source)?)
    });
}

fn vet(root: &Path) -> Result<()> {
    let mut command = Command::new("go");
    command.args(["vet", "-mod=readonly", "."]).current_dir(root.join("xtask/peers/guides"));
    let done = process::run(command, None, LIMIT)?;
    ensure!(done.status.success(), "{}", done.stderr.trim());
    Ok(())
}

/// What the packages export.
fn exported(program: &Path, source: &Path) -> Result<BTreeSet<Item>> {
    let mut command = Command::new(program);
    command.args(PACKAGES.map(|package| source.join("pkg").join(package)));
    let done = process::run(command, None, LIMIT)?;
    ensure!(done.status.success(), "{}", done.stderr.trim());
    let items = done.stdout.lines().map(|line| {
        let (package, name) = line.split_once(' ').with_context(|| format!("not an item: {line:?}"))?;
        Ok(Item::new(package, name))
    });
    items.collect()
}

fn compare(rows: &BTreeSet<Item>, items: &BTreeSet<Item>) -> Result<()> {
    ensure!(items.len() > 200, "only {} items are exported", items.len());
    let (missing, extra) = (table::list(items.difference(rows)), table::list(rows.difference(items)));
    ensure!(missing.is_empty() && extra.is_empty(), "no row: [{missing}]; no item: [{extra}]");
    Ok(())
}
