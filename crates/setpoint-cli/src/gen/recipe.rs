//! Runs the user's own code that knows types and controllers.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use clap::Args;

use super::output::How;

/// What cargo ends with if there is nothing to run, or it does not compile.
const CARGO_FAILED: i32 = 101;

/// Which project, and which of its examples.
#[derive(Args)]
pub(super) struct Recipe {
    /// The package of the example, in a workspace
    #[arg(long, short, value_name = "NAME")]
    package: Option<String>,

    /// The example that calls `Manifests::main`
    #[arg(long, value_name = "NAME", default_value = "manifests")]
    example: String,

    /// The folder of the project
    #[arg(long, value_name = "DIR", default_value = ".")]
    project: PathBuf,
}

impl Recipe {
    /// Has the example write into a folder, or check it.
    pub(super) fn run(&self, what: &str, out: &Path, how: How) -> anyhow::Result<()> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(&self.project).args(["run", "--quiet", "--example", &self.example]);
        if let Some(package) = &self.package {
            cargo.args(["--package", package]);
        }
        cargo.arg("--").arg(what).arg("--out").arg(out).args(how.option());
        let status = cargo.status().context("cannot run cargo")?;
        match status.code() {
            Some(0) => Ok(()),
            Some(CARGO_FAILED) => bail!(
                "the example {:?} cannot be run (--project, --package and --example say which); it has to end in \
                 setpoint_codegen::Manifests::main",
                self.example
            ),
            _ => bail!("the example {:?} failed", self.example),
        }
    }
}
