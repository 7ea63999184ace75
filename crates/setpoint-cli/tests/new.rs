//! `setpoint new`, as a program. Whether the projects compile, pass their tests and run is `cargo xtask real --only
//! codegen`: it takes minutes.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::ensure;

fn setpoint(folder: &Path, arguments: &[&str]) -> anyhow::Result<Output> {
    Ok(Command::new(env!("CARGO_BIN_EXE_setpoint")).args(arguments).current_dir(folder).output()?)
}

fn works(folder: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = setpoint(folder, arguments)?;
    ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn fails(folder: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = setpoint(folder, arguments)?;
    ensure!(!output.status.success(), "{arguments:?} should fail");
    Ok(String::from_utf8(output.stderr)?)
}

const CRD: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gizmos.acme.org}
spec:
  group: acme.org
  names: {kind: Gizmo, plural: gizmos}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, required: [color], properties: {
      color: {type: string, pattern: '^PATTERN$'}}}}}}
";

#[test]
fn a_project_is_formatted_and_resolves_without_a_network() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("crd.yaml"), CRD.replace("PATTERN", "a"))?;
    let variants: [&[&str]; 4] = [
        &["new", "my-app"],
        &[
            "new",
            "shop",
            "--kind",
            "Context",
            "--cluster-scoped",
            "--owns",
            "deployment",
            "--owns",
            "secret",
            "--webhook",
        ],
        &["new", "gizmo", "--from-crd", "crd.yaml", "--owns", "service"],
        &["new", "tides", "--extension-server"],
    ];
    for arguments in variants {
        // The binary may be outside of the checkout: cargo's target folder can be anywhere.
        let arguments = [arguments, &["--checkout", env!("CARGO_MANIFEST_DIR")]].concat();
        works(folder.path(), &arguments)?;
        let project = folder.path().join(arguments[1]);
        let mut rustfmt = Command::new("rustfmt");
        rustfmt.args(["--edition", "2024", "--check", "src/lib.rs", "src/main.rs"]);
        let rest = ["examples/manifests.rs", "tests/reconcile.rs", "tests/server.rs"];
        rustfmt.args(rest.iter().filter(|file| project.join(file).exists())).current_dir(&project);
        let output = rustfmt.output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        // `tree` looks at this platform's crates alone: those are what building this workspace has downloaded.
        let tree = Command::new(env!("CARGO"))
            .args(["tree", "--offline", "--prefix", "none", "--format", "{p}"])
            .current_dir(&project)
            .output()?;
        ensure!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
        let tree = String::from_utf8(tree.stdout)?;
        let names: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
        assert!(names.contains(&arguments[1]) && names.contains("setpoint"), "{names:?}");
    }
    Ok(())
}

#[test]
fn what_is_there_is_kept_unless_it_is_forced() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let told = works(folder.path(), &["new", "my-app", "--dry-run"])?;
    assert!(told.contains("would create my-app/src/main.rs"), "{told}");
    assert!(!folder.path().join("my-app").exists());

    works(folder.path(), &["new", "my-app"])?;
    let main = folder.path().join("my-app/src/main.rs");
    std::fs::write(&main, "mine")?;
    let error = fails(folder.path(), &["new", "my-app"])?;
    assert!(error.contains("my-app/src/main.rs") && error.contains("--force"), "{error}");
    assert_eq!(std::fs::read_to_string(&main)?, "mine");
    assert!(
        works(folder.path(), &["new", "my-app", "--dry-run"])?.contains("would change my-app/src/main.rs")
    );
    assert!(works(folder.path(), &["new", "my-app", "--force"])?.contains("changed my-app/src/main.rs"));
    assert_ne!(std::fs::read_to_string(&main)?, "mine");
    Ok(())
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_written() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("pod.yaml"), "kind: Pod\n")?;
    let two = format!("{CRD}---{}", CRD.replace("Gizmo", "Gadget").replace("gizmos", "gadgets"));
    std::fs::write(folder.path().join("two.yaml"), two)?;
    let cases: [(&[&str], &str); 11] = [
        (&["new", "MyApp"], "such as my-app"),
        (&["new", "type"], "is a keyword of Rust; call it type-operator"),
        (&["new", "2go"], "beginning with a letter"),
        (&["new", "x", "--kind", "fooBar"], "such as FooBar"),
        (&["new", "x", "--group", "apps.k8s.io"], "belongs to Kubernetes"),
        (&["new", "x", "--owns", "pod"], "there are: ConfigMap"),
        (&["new", "x", "--from-crd", "pod.yaml"], "pod.yaml: not a CustomResourceDefinition, but a Pod"),
        (&["new", "x", "--from-crd", "two.yaml"], "has several kinds; choose one with --kind: Gizmo, Gadget"),
        (&["new", "x", "--from-crd", "none.yaml"], "none.yaml: No such file"),
        (&["new", "x", "--extension-server", "--webhook"], "cannot be used with"),
        (&["new", "x", "--checkout", "."], ".: not a checkout of Setpoint"),
    ];
    for (arguments, words) in cases {
        let error = fails(folder.path(), arguments)?;
        assert!(error.contains(words), "{arguments:?}: {error}");
        assert!(!folder.path().join(arguments[1]).exists());
    }
    works(folder.path(), &["new", "x", "--from-crd", "two.yaml", "--kind", "Gadget"])?;
    let crd = std::fs::read_to_string(folder.path().join("x/config/crd/gadgets.acme.org.yaml"))?;
    assert!(!crd.contains("Gizmo"), "{crd}");
    Ok(())
}

#[test]
fn a_sample_that_a_server_would_refuse_says_so() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let sample = folder.path().join("x/config/samples/gizmo.yaml");
    for (pattern, is_refused) in [("a", false), ("[0-9]{7}", true)] {
        std::fs::write(folder.path().join("crd.yaml"), CRD.replace("PATTERN", pattern))?;
        works(folder.path(), &["new", "x", "--from-crd", "crd.yaml", "--force"])?;
        let text = std::fs::read_to_string(&sample)?;
        assert_eq!(text.contains("would refuse it"), is_refused, "{text}");
    }
    Ok(())
}
