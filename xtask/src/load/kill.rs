//! Servers that are killed while they write.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::workspace;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How often it is killed.
    #[arg(long, default_value_t = 1_000)]
    rounds: usize,
}

/// The checks are those of the test, with other numbers.
pub(crate) fn run(options: &Options, binary: &Path, on: &Path) -> Result<()> {
    let status = workspace::cargo(workspace::root()?)
        .args(["test", "-p", "setpoint-cli", "--test", "data", "crash::", "--", "--nocapture"])
        .env("SETPOINT_CRASH_ROUNDS", options.rounds.to_string())
        .env("SETPOINT_BINARY", binary)
        .env("TMPDIR", on.canonicalize()?)
        .status()
        .context("cargo is not there")?;
    ensure!(status.success(), "a server lost something");
    Ok(())
}
