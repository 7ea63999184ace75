//! `cargo xtask kinds`: generates the table of built-in kinds, and the test vectors beside it.
//!
//! The work is done by the Go program in `xtask/kinds`, since the facts are in Go types.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

const TABLE: &str = "crates/setpoint-kinds/src/kinds.txt";
const VECTORS: &str = "crates/setpoint-kinds/tests/data";

/// Options of `cargo xtask kinds`.
#[derive(clap::Args)]
pub(crate) struct Kinds {
    /// Compare with the committed files instead of writing them.
    #[arg(long)]
    check: bool,
    /// Also run the tests of setpoint-kinds over the objects that Kubernetes publishes with its
    /// Go modules.
    #[arg(long)]
    testdata: bool,
}

/// Generates or compares the files.
pub(crate) fn run(options: &Kinds) -> Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask is in the workspace")?;
    let table = go(root, &["run", "."])?;
    let scratch = tempfile::tempdir()?;
    copy_inputs(&root.join(VECTORS), scratch.path())?;
    let folder = scratch.path().to_str().context("the temporary folder has a plain name")?;
    go(root, &["run", ".", "-vectors", folder])?;

    let mut generated = vec![(root.join(TABLE), table)];
    for entry in fs::read_dir(scratch.path())? {
        let path = entry?.path();
        let name = path.file_name().context("a file has a name")?;
        generated.push((root.join(VECTORS).join(name), fs::read(&path)?));
    }
    for (path, contents) in &generated {
        if options.check {
            compare(path, contents)?;
        } else {
            fs::write(path, contents).with_context(|| format!("write {}", path.display()))?;
        }
    }
    println!("{} files {}", generated.len(), if options.check { "are up to date" } else { "written" });
    if options.testdata { test_published_objects(root) } else { Ok(ExitCode::SUCCESS) }
}

fn copy_inputs(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        if let (Some("in"), Some(name)) = (path.extension().and_then(|e| e.to_str()), path.file_name()) {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}

fn compare(path: &Path, contents: &[u8]) -> Result<()> {
    if fs::read(path).unwrap_or_default() != contents {
        bail!("{} is not what the generator writes: run `cargo xtask kinds`", path.display());
    }
    Ok(())
}

/// Runs the go command in the generator's folder and gives what it prints.
fn go(root: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new("go")
        .args(arguments)
        .current_dir(root.join("xtask/kinds"))
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("run go: the generator needs Go 1.26 or newer on the PATH")?;
    if !output.status.success() {
        bail!("go {} failed: {}", arguments.join(" "), output.status);
    }
    Ok(output.stdout)
}

fn test_published_objects(root: &Path) -> Result<ExitCode> {
    let module = String::from_utf8(go(root, &["list", "-m", "-f", "{{.Dir}}", "k8s.io/api"])?)?;
    let status = Command::new(env!("CARGO"))
        .args(["test", "--package", "setpoint-kinds", "--test", "testdata"])
        .env("SETPOINT_K8S_API_TESTDATA", PathBuf::from(module.trim()).join("testdata/HEAD"))
        .current_dir(root)
        .status()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
