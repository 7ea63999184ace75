//! This checkout: where it is, where cargo puts what it builds, and how to build a program of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The root of the workspace.
pub(crate) fn root() -> Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no parent folder")
}

/// Where cargo puts what it builds.
pub(crate) fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// Cargo, at the root of the workspace.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root);
    cargo
}

/// A program of this workspace to build.
pub(crate) struct Program<'a> {
    pub(crate) package: &'a str,
    pub(crate) name: &'a str,
    pub(crate) profile: &'a str,
    /// Which features, and what else cargo shall know.
    pub(crate) arguments: &'a [&'a str],
}

impl Program<'_> {
    /// The program, built unless told otherwise.
    pub(crate) fn get(&self, skip_build: bool) -> Result<PathBuf> {
        let root = root()?;
        if !skip_build {
            let status = cargo(root)
                .args(["build", "--profile", self.profile, "-p", self.package])
                .args(self.arguments)
                .status()
                .context("cannot run cargo")?;
            ensure!(status.success(), "{} does not build", self.package);
        }
        // Cargo calls the folder of its profile `dev` otherwise.
        let folder = if self.profile == "dev" { "debug" } else { self.profile };
        let binary = target(root).join(folder).join(self.name);
        ensure!(binary.exists(), "{} is not there: run without --skip-build", binary.display());
        Ok(binary)
    }
}
