//! The committed code is what the generator makes, and what rustfmt makes of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use setpoint_codegen::{Definition, Types};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn generate(file: &str) -> anyhow::Result<String> {
    let yaml = std::fs::read_to_string(folder().join("data").join(file))?;
    Ok(Types::new().render(&Definition::read(file, &yaml)?)?)
}

#[test]
fn the_committed_code_is_what_is_generated() -> anyhow::Result<()> {
    let code = generate("kitchen_sink.yaml")?;
    let path = folder().join("generated/kitchen_sink.rs");
    if std::env::var_os("SETPOINT_BLESS").is_some() {
        std::fs::write(&path, &code)?;
    }
    let committed = std::fs::read_to_string(&path)?;
    assert!(
        committed == code,
        "tests/generated is stale: run `SETPOINT_BLESS=1 cargo test -p setpoint-codegen --test fresh`"
    );
    Ok(())
}

#[test]
fn rustfmt_would_change_nothing() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("code.rs");
    std::fs::write(&path, generate("kitchen_sink.yaml")?)?;
    let output = Command::new("rustfmt").args(["--edition", "2024", "--check"]).arg(&path).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}
