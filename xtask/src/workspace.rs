//! This checkout: where it is, where cargo puts what it builds, and how to build a program of it.

use std::ffi::OsStr;
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

/// Cargo, in a folder, as from a shell.
pub(crate) fn cargo(folder: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(folder);
    forget_package(&mut cargo);
    cargo
}

/// Keeps from a command that calls cargo what `cargo run` tells xtask of its own package. Build scripts that ask for theirs
/// (ring's) would be run again because of it, and all that depends on them built anew: by xtask, then by the shell, in turn.
pub(crate) fn forget_package(command: &mut Command) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_a_package(name)) {
        command.env_remove(name);
    }
}

fn is_of_a_package(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_is_called_as_from_a_shell() {
        let cargo = cargo(Path::new("."));
        let removed: Vec<&OsStr> =
            cargo.get_envs().filter(|(_, value)| value.is_none()).map(|(name, _)| name).collect();
        // `cargo test` sets what `cargo run` sets.
        for name in ["CARGO_PKG_NAME", "CARGO_PKG_VERSION_MAJOR", "CARGO_MANIFEST_DIR"] {
            assert!(removed.contains(&OsStr::new(name)), "{name}: {removed:?}");
        }
        assert!(!removed.contains(&OsStr::new("CARGO_TARGET_DIR")));
    }
}
