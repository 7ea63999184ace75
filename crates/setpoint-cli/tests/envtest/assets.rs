//! The folder, the command and the tarball.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

fn setpoint(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_setpoint"));
    command.args(arguments);
    command
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

/// A folder for PATH with a kubectl in it.
fn with_kubectl(folder: &Path) -> String {
    let kubectl = folder.join("kubectl");
    std::fs::write(&kubectl, "#!/bin/sh\necho kubectl\n").unwrap();
    std::fs::set_permissions(&kubectl, PermissionsExt::from_mode(0o755)).unwrap();
    folder.display().to_string()
}

#[test]
fn it_prints_a_folder_with_the_binaries_and_nothing_else() {
    let (cache, bin) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for _ in 0..2 {
        let output = succeed(
            setpoint(&["envtest"]).env("XDG_CACHE_HOME", cache.path()).env("PATH", with_kubectl(bin.path())),
        );
        let folder = text(&output.stdout).strip_suffix('\n').unwrap();
        assert!(Path::new(folder).starts_with(cache.path()) && output.stderr.is_empty(), "{output:?}");
        for (name, version) in [("kube-apiserver", "Kubernetes v1.37."), ("etcd", "etcd Version: 3.")] {
            let output = succeed(Command::new(Path::new(folder).join(name)).arg("--version"));
            assert!(text(&output.stdout).starts_with(version), "{output:?}");
        }
        let kubectl = succeed(&mut Command::new(Path::new(folder).join("kubectl")));
        assert_eq!(text(&kubectl.stdout), "kubectl\n");
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 3, "nothing is left over");
    }
}

#[test]
fn the_probes_of_envtest_find_what_they_look_for() {
    let folder = tempfile::tempdir().unwrap();
    super::environment::assets(folder.path());
    let help = |name: &str| succeed(Command::new(folder.path().join(name)).arg("--help"));
    let server = help("kube-apiserver");
    let lines: Vec<&str> = text(&server.stdout).lines().map(str::trim_start).collect();
    assert!(!lines.iter().any(|line| line.starts_with("--insecure-port")), "it was refused before 1.24");
    for heading in ["Generic:", "Etcd:", "Secure serving:", "Auditing:", "Authentication:", "Admission:"] {
        assert!(lines.contains(&heading), "{heading}");
    }
    assert!(lines.iter().any(|line| line.starts_with("--service-account-signing-key-file")));
    assert!(text(&help("etcd").stdout).contains("--unsafe-no-fsync"));
}

#[test]
fn a_command_is_run_with_the_folder_and_its_exit_code_is_kept() {
    let cache = tempfile::tempdir().unwrap();
    let script = "echo $KUBEBUILDER_ASSETS; test -x $KUBEBUILDER_ASSETS/etcd && exit 7";
    let output =
        setpoint(&["envtest", "--", "sh", "-c", script]).env("XDG_CACHE_HOME", cache.path()).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert!(text(&output.stdout).starts_with(&cache.path().display().to_string()), "{output:?}");

    let missing =
        setpoint(&["envtest", "--", "no-such-program"]).env("XDG_CACHE_HOME", cache.path()).output();
    let missing = missing.unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).starts_with("setpoint: cannot run no-such-program"), "{missing:?}");
}

#[test]
fn the_tarball_has_whole_programs() {
    let bin = tempfile::tempdir().unwrap();
    let output = succeed(setpoint(&["envtest", "--tarball"]).env("PATH", with_kubectl(bin.path())));
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(output.stdout.as_slice()));
    let mut found = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let header = entry.header();
        assert_eq!((header.entry_type(), header.mode().unwrap()), (tar::EntryType::Regular, 0o755));
        let name = entry.path().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        let original = match name.as_str() {
            "kubectl" => bin.path().join("kubectl"),
            _ => env!("CARGO_BIN_EXE_setpoint").into(),
        };
        assert!(bytes == std::fs::read(original).unwrap(), "{name} is cut");
        found.push(name);
    }
    found.sort();
    assert_eq!(found, ["etcd", "kube-apiserver", "kubectl"]);
}
