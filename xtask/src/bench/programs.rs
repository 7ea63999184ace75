//! The programs of `bench/`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Bench;
use crate::real::process;

/// A release build of one of them.
pub(super) fn bench_binary(package: &str, bench: &Bench) -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace")?;
    if !bench.skip_build {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status =
            Command::new(cargo).args(["build", "--release", "-p", package]).current_dir(root).status()?;
        ensure!(status.success(), "{package} does not build");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let binary = target.join("release").join(package);
    ensure!(binary.exists(), "{} is not there: run without --skip-build", binary.display());
    Ok(binary)
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
