//! New projects compile: tests/projects/ has some that between them use every part of the templates, they are members of
//! the workspace, and here it is checked that they are what the templates make.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;
use setpoint_codegen::project::Owned;
use setpoint_codegen::{Definition, Project};

type Files = BTreeMap<PathBuf, String>;

fn projects() -> anyhow::Result<[(&'static str, Project); 3]> {
    let own = Project::new("new-operator")?.kind("Shop").group("shop.example.org").webhook();
    let own = own.owns(Owned::Deployment).owns(Owned::ConfigMap);
    let crd = include_str!("data/gizmo.yaml");
    let definition = Definition::read("gizmo.yaml", crd)?.remove(0);
    let given = Project::new("gizmo-operator")?.from_crd(definition, crd, true).webhook().cert_manager();
    let server = Project::new("tide-server")?.kind("Tide").group("tides.example.org").extension_server();
    Ok([("new-operator", own), ("gizmo-operator", given), ("tide-server", server)])
}

/// What is compared: the code, and the manifests that it reads. The rest is cargo's, and the workspace's here.
fn is_compared(path: &Path) -> bool {
    let is_code = path.extension().is_some_and(|ending| ending == "rs") && path != Path::new("all.rs");
    is_code || path.starts_with("config")
}

/// What `setpoint new` writes: formatted.
fn made(project: &Project) -> anyhow::Result<Files> {
    let folder = tempfile::tempdir()?;
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(["--edition", "2024"]).current_dir(&folder);
    let mut files = Files::new();
    for file in project.render()?.into_iter().filter(|file| is_compared(&file.path)) {
        let path = folder.path().join(&file.path);
        std::fs::create_dir_all(path.parent().unwrap_or(&path))?;
        std::fs::write(&path, &file.text)?;
        if file.path.extension().is_some_and(|ending| ending == "rs") {
            rustfmt.arg(&file.path);
        }
        files.insert(file.path, file.text);
    }
    let output = rustfmt.output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for (path, text) in &mut files {
        *text = std::fs::read_to_string(folder.path().join(path))?;
    }
    Ok(files)
}

fn read(root: &Path, folder: &Path, into: &mut Files) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            read(root, &path, into)?;
        } else if is_compared(&path) {
            into.insert(path.clone(), std::fs::read_to_string(root.join(path))?);
        }
    }
    Ok(())
}

#[test]
fn the_projects_of_the_workspace_are_what_the_templates_make() -> anyhow::Result<()> {
    let how = "SETPOINT_BLESS=1 cargo test -p setpoint-codegen --test templates";
    for (name, project) in projects()? {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/projects").join(name);
        let (made, mut there) = (made(&project)?, Files::new());
        read(&root, Path::new(""), &mut there)?;
        if std::env::var_os("SETPOINT_BLESS").is_some() {
            for path in there.keys().filter(|path| !made.contains_key(*path)) {
                std::fs::remove_file(root.join(path))?;
            }
            for (path, text) in &made {
                std::fs::create_dir_all(root.join(path).parent().unwrap_or(&root))?;
                std::fs::write(root.join(path), text)?;
            }
            continue;
        }
        let both = made.keys().chain(there.keys());
        let stale: Vec<&PathBuf> = both.filter(|path| made.get(*path) != there.get(*path)).collect();
        assert!(stale.is_empty(), "tests/projects/{name} is stale: {stale:?}; run `{how}`, then compile it");
    }
    Ok(())
}
