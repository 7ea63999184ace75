//! kopium: a peer to compare with.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{BUILD_LIMIT, Tools, succeed};

pub(super) const VERSION: &str = "0.24.1";

pub(super) struct Kopium {
    program: PathBuf,
}

impl Kopium {
    /// The program, built once into the cache. An error is a reason to do without.
    pub(super) fn get(tools: &Tools<'_>) -> Result<Kopium> {
        let root = tools.cache.join(format!("kopium-{VERSION}"));
        let program = root.join("bin/kopium");
        if !program.exists() {
            if !tools.may_build {
                bail!("kopium is not built, and building is off");
            }
            let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
            cargo
                .args(["install", "kopium", "--version", VERSION, "--locked", "--debug", "--root"])
                .arg(&root);
            succeed(cargo, BUILD_LIMIT).context("kopium cannot be built")?;
        }
        Ok(Kopium { program })
    }

    /// Types for one version of a CRD, with everything that it can do, but without types of Kubernetes in the place of
    /// those of the CRD: with them it loses more.
    pub(super) fn types(&self, crd: &Path, version: &str) -> Result<String> {
        let mut command = Command::new(&self.program);
        command.args(["--auto", "--no-condition", "--no-object-reference", "--api-version", version, "-f"]);
        command.arg(crd);
        succeed(command, Duration::from_secs(60))
    }
}
