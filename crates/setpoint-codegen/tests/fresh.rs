//! The committed code is what the generator makes, and what rustfmt makes of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use setpoint_codegen::{ClientKind, Clientset, Definition, Types};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// The files of tests/generated, and what is to be in them.
fn generated() -> anyhow::Result<[(&'static str, String); 2]> {
    let file = "kitchen_sink.yaml";
    let yaml = std::fs::read_to_string(folder().join("data").join(file))?;
    let definitions = Definition::read(file, &yaml)?;
    let types = Types::new().render(&definitions)?;
    let core: ClientKind = "v1/configmaps=k8s_openapi::api::core::v1::ConfigMap".parse()?;
    let nodes: ClientKind = "v1/nodes:cluster=k8s_openapi::api::core::v1::Node".parse()?;
    let clientset = Clientset::new().definitions(&definitions, "crate::kitchen_sink").kind(core).kind(nodes);
    Ok([("kitchen_sink.rs", types), ("clientset.rs", clientset.render()?)])
}

#[test]
fn the_committed_code_is_what_is_generated() -> anyhow::Result<()> {
    for (name, code) in generated()? {
        let path = folder().join("generated").join(name);
        if std::env::var_os("SETPOINT_BLESS").is_some() {
            std::fs::write(&path, &code)?;
        }
        let committed = std::fs::read_to_string(&path)?;
        let how = "SETPOINT_BLESS=1 cargo test -p setpoint-codegen --test fresh";
        assert!(committed == code, "tests/generated/{name} is stale: run `{how}`");
    }
    Ok(())
}

#[test]
fn rustfmt_would_change_nothing() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    for (name, code) in generated()? {
        let path = folder.path().join(name);
        std::fs::write(&path, code)?;
        let output = Command::new("rustfmt").args(["--edition", "2024", "--check"]).arg(&path).output()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    Ok(())
}
