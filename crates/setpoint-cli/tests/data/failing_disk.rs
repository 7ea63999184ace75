//! Real disks that are full or fail.

use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt};

use crate::server::{Server, create_config_map};

/// A file system of its own, in memory. None where this user may not mount one.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path, megabytes: usize) -> Option<SmallDisk> {
        std::fs::create_dir(at).unwrap();
        let size = format!("size={megabytes}m");
        let mut mount = Command::new("mount");
        let done = mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at).output();
        done.is_ok_and(|output| output.status.success()).then(|| SmallDisk(at.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _unmounted = Command::new("umount").arg("--lazy").arg(&self.0).output();
    }
}

/// Creates an object of 400 KB; the code of the refusal if it is refused.
async fn create_large(client: &Client, name: &str) -> Result<(), u16> {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map.data = Some([("text".to_owned(), "x".repeat(400_000))].into());
    match Api::default_namespaced(client.clone()).create(&PostParams::default(), &map).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.code),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn on_a_full_disk_creates_are_507_and_deletes_make_room() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_disk) = SmallDisk::mount(&folder.path().join("data"), 40) else { return };
    let mut server = Server::start(folder.path()).await;
    let client = server.client().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let mut stored = Vec::new();
    let refusal = loop {
        let name = format!("large-{}", stored.len());
        match create_large(&client, &name).await {
            Ok(()) => stored.push(name),
            Err(code) => break code,
        }
        assert!(stored.len() < 500, "the disk is never full");
    };
    assert_eq!(refusal, 507, "after {} objects", stored.len());
    let half = stored.len() / 2;
    for name in stored.drain(half..) {
        maps.delete(&name, &DeleteParams::default()).await.expect("deletes work");
    }
    create_config_map(&client, "again").await;
    stored.push("again".to_owned());
    server.kill().await;

    let server = Server::start(folder.path()).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client().await);
    let mut found: Vec<_> =
        maps.list(&ListParams::default()).await.unwrap().iter().map(|m| m.name_any()).collect();
    found.sort_unstable();
    stored.sort_unstable();
    assert_eq!(found, stored);
}

#[tokio::test]
async fn a_sync_that_fails_ends_the_server_with_a_code_of_its_own_and_advice() {
    let folder = tempfile::tempdir().unwrap();
    let inject = "inject=fdatasync,fsync:error=EIO:when=40+";
    let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync,fsync", "-e", inject];
    if !Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]).status().is_ok_and(|s| s.success()) {
        return;
    }
    // What a new store has to write is written without trouble.
    Server::start(folder.path()).await.kill().await;
    let mut server = Server::start_under(folder.path(), &strace).await;
    let client = server.client().await;
    let mut stored = Vec::new();
    for number in 0..100 {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(format!("map-{number:03}"));
        if Api::default_namespaced(client.clone()).create(&PostParams::default(), &map).await.is_err() {
            break;
        }
        stored.push(map.name_any());
    }
    assert!(stored.len() < 100, "the disk never failed");
    let (code, stderr) = server.ended().await;
    assert_eq!(code, Some(74), "{stderr}");
    let last = stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("setpoint: ") && last.contains("start the server again"), "{stderr}");

    let server = Server::start(folder.path()).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client().await);
    let found: Vec<_> =
        maps.list(&ListParams::default()).await.unwrap().iter().map(|m| m.name_any()).collect();
    // The change that was under way may be there, as with any answer that is lost.
    assert!(found.starts_with(&stored) && found.len() <= stored.len() + 1, "{found:?} after {stored:?}");
}
