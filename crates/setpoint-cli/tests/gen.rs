//! `setpoint gen`, as a program.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context, ensure};
use tempfile::TempDir;

fn setpoint(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_setpoint"));
    command.args(arguments).current_dir(folder);
    command
}

fn works(mut command: Command) -> anyhow::Result<String> {
    let output = command.output()?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn fails(mut command: Command) -> anyhow::Result<(String, String)> {
    let Output { status, stdout, stderr } = command.output()?;
    ensure!(!status.success(), "{command:?} should fail");
    Ok((String::from_utf8(stdout)?, String::from_utf8(stderr)?))
}

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> anyhow::Result<TempDir> {
    let folder = tempfile::tempdir()?;
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text)?;
    }
    Ok(folder)
}

/// A CRD with this schema at `spec`.
fn crd(schema: &str) -> String {
    format!(
        "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: foos.example.com}}
spec:
  group: example.com
  names: {{kind: Foo, plural: foos}}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {{openAPIV3Schema: {{type: object, properties: {{spec: {schema}}}}}}}
"
    )
}

#[test]
fn types_are_written_kept_checked_and_overwritten() -> anyhow::Result<()> {
    let folder = folder(&[("crd.yaml", &crd("{type: object, properties: {type: {type: string}}}"))])?;
    let types = |more: &[&str]| {
        let mut command = setpoint(folder.path(), &["gen", "types", "--crd", "crd.yaml"]);
        command.args(more);
        command
    };
    let code = works(types(&[]))?;
    assert!(code.contains("pub r#type: Option<String>"), "{code}");
    assert!(works(types(&["--out", "foo.rs", "--dry-run"]))?.contains("would create foo.rs"));
    assert!(!folder.path().join("foo.rs").exists());
    assert!(works(types(&["--out", "foo.rs"]))?.contains("created foo.rs"));
    works(types(&["--out", "foo.rs", "--check"]))?;

    std::fs::write(folder.path().join("foo.rs"), "// mine")?;
    assert!(fails(types(&["--out", "foo.rs", "--check"]))?.1.contains("stale: foo.rs"));
    assert!(fails(types(&["--out", "foo.rs"]))?.1.contains("with --force"));
    assert!(works(types(&["--out", "foo.rs", "--force"]))?.contains("changed foo.rs"));
    assert!(fails(types(&["--check"]))?.1.contains("--check needs --out"));
    Ok(())
}

#[test]
fn standard_input_is_read_too() -> anyhow::Result<()> {
    let folder = folder(&[])?;
    let mut command = setpoint(folder.path(), &["gen", "types", "--crd", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    child.stdin.take().context("a pipe")?.write_all(crd("{type: object}").as_bytes())?;
    let output = child.wait_with_output()?;
    assert!(String::from_utf8(output.stdout)?.contains("pub struct FooSpec"));
    Ok(())
}

#[test]
fn what_is_no_good_crd_is_refused_with_file_and_path() -> anyhow::Result<()> {
    let at = "spec.versions[0].schema.openAPIV3Schema.properties[spec]";
    let cases = [
        ("kind: Pod\n".to_owned(), "bad.yaml: not a CustomResourceDefinition, but a Pod".to_owned()),
        ("a: [".to_owned(), "bad.yaml: not YAML: ".to_owned()),
        (String::new(), "bad.yaml: there is no CustomResourceDefinition in it".to_owned()),
        (crd("{}"), format!("bad.yaml: {at}.type: is missing: the schema is not structural")),
        (
            crd("{type: object, properties: {next: {$ref: '#/spec'}}}"),
            format!("bad.yaml: {at}.properties[next].$ref: a CRD cannot refer to other schemas"),
        ),
        (crd("&a {type: object, properties: {next: *a}}"), "bad.yaml: not YAML: ".to_owned()),
    ];
    for (text, words) in cases {
        let folder = folder(&[("bad.yaml", &text)])?;
        let (_, error) =
            fails(setpoint(folder.path(), &["gen", "types", "--crd", "bad.yaml", "--out", "x.rs"]))?;
        assert!(error.contains(&words), "{text}\n{error}");
        assert!(!folder.path().join("x.rs").exists());
    }
    let folder = folder(&[])?;
    let (_, error) = fails(setpoint(folder.path(), &["gen", "types", "--crd", "none.yaml"]))?;
    assert!(error.contains("none.yaml: No such file"), "{error}");
    let (_, error) = fails(setpoint(folder.path(), &["gen", "types", "--crd", "."]))?;
    assert!(error.contains("contains no YAML or JSON file"), "{error}");
    Ok(())
}

#[test]
fn odd_names_and_clashes_and_nothing_at_all_become_code() -> anyhow::Result<()> {
    let odd = "{type: object, properties: {x-y: {type: string}, x_y: {type: string}, xY: {type: string}, \
               self: {type: string}, $ref: {type: string}, '1st': {type: string}, Ä: {type: string}, '': {type: string}}}";
    let folder = folder(&[("odd.yaml", &crd(odd)), ("empty.yaml", &crd("{type: object}"))])?;
    for file in ["odd.yaml", "empty.yaml"] {
        works(setpoint(folder.path(), &["gen", "types", "--crd", file, "--out", "out.rs", "--force"]))?;
        let mut rustfmt = Command::new("rustfmt");
        rustfmt.args(["--edition", "2024", "--check", "out.rs"]).current_dir(folder.path());
        works(rustfmt)?;
    }
    let code = works(setpoint(folder.path(), &["gen", "types", "--crd", "odd.yaml"]))?;
    let fields: Vec<&str> = code
        .lines()
        .filter_map(|line| line.trim().strip_prefix("pub ")?.split_once(": Option<String>"))
        .map(|(name, _)| name)
        .collect();
    let mut unique = fields.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!((fields.len(), unique.len()), (8, 8), "{code}");
    Ok(())
}

/// Ends the server with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_crds_of_a_cluster_become_types() -> anyhow::Result<()> {
    let folder = folder(&[])?;
    let mut up = setpoint(folder.path(), &["up", "--memory", "--no-controllers", "--listen", "127.0.0.1:0"]);
    let mut server = Server(up.args(["--kubeconfig", "kubeconfig"]).stdout(Stdio::piped()).spawn()?);
    let lines = BufReader::new(server.0.stdout.take().context("a pipe")?).lines();
    for line in lines {
        if line?.starts_with("ready in ") {
            break;
        }
    }
    let types = |more: &[&str]| {
        let mut command = setpoint(folder.path(), &["gen", "types", "--cluster"]);
        command.args(more).env("KUBECONFIG", folder.path().join("kubeconfig"));
        command
    };
    assert!(fails(types(&[]))?.1.contains("the cluster has no CRDs"));
    create_crd(folder.path())?;
    assert!(works(types(&[]))?.contains("pub struct FooSpec"));
    assert!(works(types(&["foos.example.com"]))?.contains("pub struct FooSpec"));
    let (_, error) = fails(types(&["bars.example.com"]))?;
    assert!(error.contains("cannot get the CRD bars.example.com"), "{error}");
    Ok(())
}

fn create_crd(folder: &Path) -> anyhow::Result<()> {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    let crd: CustomResourceDefinition =
        serde_saphyr::from_str(&crd("{type: object, properties: {a: {type: string}}}"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = setpoint::ClientConfig::new().kubeconfig(folder.join("kubeconfig")).connect().await?;
        let crds: kube::Api<CustomResourceDefinition> = kube::Api::all(client);
        crds.create(&kube::api::PostParams::default(), &crd).await?;
        Ok(())
    })
}

const AUDIT: &str = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","verb":"list","user":{"username":"foo"},"objectRef":{"resource":"foos","apiGroup":"example.com"}}
{"kind":"Event","apiVersion":"audit.k8s.io/v1","verb":"delete","user":{"username":"foo"},"objectRef":{"resource":"secrets","name":"x"}}
{"kind":"Event","apiVersion":"audit.k8s.io/v1","verb":"get","user":{"username":"other"},"objectRef":{"resource":"pods"}}
"#;

const DECLARED: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: foo}
rules:
- {apiGroups: [example.com], resources: [foos], verbs: [list, watch]}
";

#[test]
fn an_audit_log_becomes_a_role_and_a_difference() -> anyhow::Result<()> {
    let folder = folder(&[("audit.log", AUDIT), ("rbac.yaml", DECLARED)])?;
    let rbac = |more: &[&str]| {
        let mut command =
            setpoint(folder.path(), &["gen", "rbac", "--from-audit", "audit.log", "--user", "foo"]);
        command.args(more);
        command
    };
    let role = works(rbac(&["--name", "least"]))?;
    assert!(role.contains("name: least") && role.contains("secrets") && !role.contains("pods"), "{role}");
    assert!(!role.contains("# "), "there is nothing to compare with: {role}");

    let compared = works(rbac(&["--declared", "rbac.yaml"]))?;
    assert!(compared.contains("# used, not declared: delete secrets"), "{compared}");
    assert!(compared.contains("# declared, not used: watch foos.example.com"), "{compared}");
    assert!(!compared.contains("list foos"), "{compared}");
    let (_, error) = fails(rbac(&["--declared", "rbac.yaml", "--check"]))?;
    assert!(error.contains("rbac.yaml differs from the audit log"), "{error}");

    let (_, error) =
        fails(setpoint(folder.path(), &["gen", "rbac", "--from-audit", "audit.log", "--user", "nobody"]))?;
    assert!(error.contains("check --user"), "{error}");
    std::fs::write(folder.path().join("audit.log"), "{}\n")?;
    assert!(fails(rbac(&[]))?.1.contains("audit.log: line 1: not an Event of audit.k8s.io/v1"));
    std::fs::write(folder.path().join("audit.log"), "kind: Event\n")?;
    assert!(fails(rbac(&[]))?.1.contains("audit.log: line 1: not JSON: "));
    Ok(())
}

/// The project's own example does the work, which takes a compiler: here it is a script in cargo's place, in `cargo xtask
/// real --only codegen` a project.
#[test]
fn crds_and_roles_come_from_the_projects_example() -> anyhow::Result<()> {
    let folder = folder(&[("cargo", "#!/bin/sh\necho \"$@\"\n[ ! -e stale ]\n")])?;
    let cargo = folder.path().join("cargo");
    std::fs::set_permissions(&cargo, std::fs::Permissions::from_mode(0o755))?;
    let with_cargo = |arguments: &[&str]| {
        let mut command = setpoint(folder.path(), arguments);
        command.env("CARGO", &cargo);
        command
    };
    assert_eq!(
        works(with_cargo(&["gen", "crd"]))?.trim(),
        "run --quiet --example manifests -- crd --out config/crd"
    );
    assert_eq!(
        works(with_cargo(&["gen", "crd", "--check", "--package", "foo", "--example", "x", "--out", "crds"]))?
            .trim(),
        "run --quiet --example x --package foo -- crd --out crds --check"
    );
    assert_eq!(
        works(with_cargo(&["gen", "crd", "--dry-run"]))?.trim(),
        "run --quiet --example manifests -- crd --out config/crd --dry-run"
    );
    assert_eq!(
        works(with_cargo(&["gen", "rbac", "--force"]))?.trim(),
        "run --quiet --example manifests -- rbac --out config/rbac --force"
    );
    assert_eq!(
        works(with_cargo(&["gen", "rbac", "--check"]))?.trim(),
        "run --quiet --example manifests -- rbac --out config/rbac --check"
    );
    std::fs::write(folder.path().join("stale"), "")?;
    assert!(fails(with_cargo(&["gen", "crd", "--check"]))?.1.contains("the example \"manifests\" failed"));
    std::fs::write(&cargo, "#!/bin/sh\nexit 101\n")?;
    let (_, error) = fails(with_cargo(&["gen", "rbac"]))?;
    assert!(error.contains("the example \"manifests\" cannot be run (--project"), "{error}");
    Ok(())
}
