//! `setpoint store`: backups of a server, running or not, and stores from backups.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, WatchParams};
use kube::{Client, ResourceExt};

use crate::server::{Server, create_config_map};

fn store(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_setpoint"));
    command.arg("store").args(arguments).current_dir(folder).output().unwrap()
}

fn done(folder: &Path, arguments: &[&str]) -> String {
    let output = store(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(folder: &Path, arguments: &[&str], hint: &str) {
    let output = store(folder, arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("setpoint: ") && stderr.contains(hint), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

async fn maps(client: &Client) -> Vec<(String, String)> {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let list = maps.list(&ListParams::default()).await.unwrap();
    list.iter().map(|map| (map.name_any(), map.resource_version().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_running_server_is_restored_with_newer_versions() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path()).await;
    let client = server.client().await;
    for name in ["one", "two"] {
        create_config_map(&client, name).await;
    }
    let before = maps(&client).await;
    let said = done(folder.path(), &["backup", "live", "--data", "data"]);
    assert!(said.contains("sha256") && said == done(folder.path(), &["verify", "live"]), "{said}");
    let mode = folder.path().join("live").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it has every Secret in it");
    let lost = create_config_map(&client, "too-late").await;
    refused(folder.path(), &["restore", "live", "--data", "data", "--force"], "in use by another process");
    server.kill().await;

    refused(folder.path(), &["restore", "live", "--data", "data"], "replace it with --force");
    done(folder.path(), &["restore", "live", "--data", "data", "--force"]);
    let kept = std::fs::read_dir(folder.path().join("data")).unwrap();
    let kept =
        kept.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains("replaced"));
    assert_eq!(kept.count(), 1);

    let server = Server::start(folder.path()).await;
    let client = server.client().await;
    assert_eq!(maps(&client).await, before, "as it was, to the version");
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let old = lost.resource_version().unwrap();
    let error = api.watch(&WatchParams::default(), &old).await.err();
    assert!(matches!(&error, Some(kube::Error::Api(status)) if status.code == 410), "{error:?}");
    let next = create_config_map(&client, "next").await;
    let number = |map: &ConfigMap| map.resource_version().unwrap().parse::<u64>().unwrap();
    assert!(number(&next) > number(&lost) + 1_000_000, "{:?}", next.resource_version());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_stopped_server_makes_the_same_store_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path()).await;
    create_config_map(&server.client().await, "one").await;
    let before = maps(&server.client().await).await;
    server.kill().await;
    done(folder.path(), &["backup", "cold", "--data", "data"]);
    std::fs::rename(folder.path().join("data"), folder.path().join("old")).unwrap();
    done(folder.path(), &["restore", "cold", "--data", "data"]);
    let server = Server::start(folder.path()).await;
    assert_eq!(maps(&server.client().await).await, before);
}

#[test]
fn files_and_folders_that_cannot_be_used_are_one_line_errors() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("text"), "this is no backup").unwrap();
    refused(folder.path(), &["restore", "text", "--data", "data"], "it is not a backup of setpoint");
    refused(folder.path(), &["restore", "none", "--data", "data"], "none cannot be restored");
    refused(folder.path(), &["verify", "text"], "it is not a backup of setpoint");
    refused(folder.path(), &["backup", "file", "--data", "data"], "there is no store at data/objects.redb");
    refused(folder.path(), &["backup", "no/such/file", "--data", "data"], "name another file");
    std::fs::write(folder.path().join("cut"), b"\xff\xfeabc").unwrap();
    for kubeconfig in ["none", "cut"] {
        let words = format!("the kubeconfig {kubeconfig} cannot be used");
        refused(folder.path(), &["backup", "file", "--kubeconfig", kubeconfig], &words);
    }
    assert!(!folder.path().join("data").exists() && !folder.path().join("file").exists());
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 2, "nothing is left over");
}
