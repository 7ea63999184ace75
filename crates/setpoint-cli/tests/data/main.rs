//! `setpoint up --data`: what is left of a server that is gone.

mod backup;
mod crash;
mod failing_disk;
mod server;

use std::os::unix::fs::PermissionsExt;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::config::Kubeconfig;
use server::{Server, create_config_map, refused};

#[tokio::test]
async fn objects_and_certificates_survive_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path()).await;
    let created = create_config_map(&server.client().await, "stays").await;
    let before = server.kubeconfig();
    server.kill().await;

    let server = Server::start(folder.path()).await;
    let after = server.kubeconfig();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client().await);
    assert_eq!(maps.get("stays").await.unwrap(), created);
    let authority =
        |config: &Kubeconfig| config.clusters[0].cluster.clone().unwrap().certificate_authority_data;
    assert!(authority(&before).is_some());
    assert_eq!(authority(&before), authority(&after), "who trusted the server trusts it still");
    let client =
        |config: &Kubeconfig| config.auth_infos[0].auth_info.clone().unwrap().client_certificate_data;
    assert_eq!(client(&before), client(&after));
}

#[tokio::test]
async fn the_folder_and_what_is_in_it_is_for_its_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let _server = Server::start(folder.path()).await;
    let data = folder.path().join("data");
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&data), mode(&data.join("pki"))), (0o700, 0o700));
    for file in ["objects.redb", "kubeconfig", "pki/ca.crt", "pki/ca.key", "pki/server.key", "pki/admin.key"]
    {
        assert_eq!(mode(&data.join(file)), 0o600, "{file}");
    }
}

#[tokio::test]
async fn a_second_server_on_the_same_folder_is_an_error_that_leaves_the_first_alone() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path()).await;
    refused(
        folder.path(),
        "data",
        "in use by another process; stop that one; or choose another folder with --data",
    )
    .await;
    create_config_map(&server.client().await, "still-there").await;
}

#[tokio::test]
async fn folders_that_cannot_be_used_are_one_line_errors() {
    let folder = tempfile::tempdir().unwrap();
    let make = |name: &str, contents: &[u8]| {
        std::fs::create_dir(folder.path().join(name)).unwrap();
        std::fs::write(folder.path().join(name).join("objects.redb"), contents).unwrap();
    };
    make("text", b"this is no store");
    make("short", b"redb\x1a\x0a\xa9\x0d\x0a");
    std::fs::write(folder.path().join("file"), "").unwrap();
    let damaged = "restore a backup (setpoint store restore), or move it away to start empty; or choose another folder with --data";
    for (data, hint) in [
        ("text", damaged),
        ("short", damaged),
        ("file", "cannot create the folder"),
        ("file/data", "cannot create the folder"),
        ("/proc/setpoint", "cannot create the folder"),
    ] {
        refused(folder.path(), data, hint).await;
    }
}

#[tokio::test]
async fn a_damaged_authority_is_a_one_line_error() {
    let folder = tempfile::tempdir().unwrap();
    Server::start(folder.path()).await.kill().await;
    std::fs::write(folder.path().join("data/pki/ca.key"), "gone").unwrap();
    refused(folder.path(), "data", "restore it, or remove it and let clients trust a new one").await;
}
