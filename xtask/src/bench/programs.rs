//! The programs of `bench/`.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Bench;
use crate::real::process;
use crate::workspace::Program;

/// A release build of one of them.
pub(super) fn bench_binary(package: &str, bench: &Bench) -> Result<PathBuf> {
    Program { package, name: package, profile: "release", arguments: &[] }.get(bench.skip_build)
}

/// What a program prints, as JSON.
pub(super) fn json_of(command: Command, limit: Duration) -> Result<Value> {
    let name = format!("{command:?}");
    let finished = process::run(command, None, limit)?;
    ensure!(finished.status.success(), "{name} failed: {}", finished.stderr.trim());
    serde_json::from_str(&finished.stdout).with_context(|| format!("{name} said {:?}", finished.stdout))
}

/// A number of a program's result.
pub(super) fn number(result: &Value, name: &str) -> f64 {
    result[name].as_f64().unwrap_or_default()
}
