//! What is going on, on standard error.

use std::io::{self, IsTerminal};

use anyhow::Context;
use tracing_subscriber::EnvFilter;

/// Starts to log what `filter` lets pass: a level (`info`), or levels by target (`warn,setpoint=debug`).
pub(crate) fn start(filter: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::builder().parse(filter).with_context(|| {
        format!("bad log level {filter:?}: --log takes error, warn, info, debug, trace or TARGET=LEVEL,…")
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
    Ok(())
}
