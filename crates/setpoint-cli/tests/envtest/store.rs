//! Where the objects are: the etcd says it.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::environment::{Environment, Folder, HANG, free_port};

async fn create(client: Client, name: &str) {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    Api::default_namespaced(client).create(&PostParams::default(), &map).await.unwrap();
}

async fn names(environment: &Environment<'_>) -> Vec<String> {
    let maps: Api<ConfigMap> = Api::default_namespaced(environment.admin());
    let found = maps.list(&ListParams::default()).await.unwrap();
    found.into_iter().filter_map(|map| map.metadata.name).collect()
}

#[tokio::test]
async fn a_control_plane_that_starts_again_on_its_folder_finds_its_objects() {
    let (folder, other) = (Folder::new(), Folder::new());
    let mut environment = folder.start(&[]).await;
    create(environment.admin(), "kept").await;
    let neighbour = other.start(&[]).await;
    assert_eq!(names(&neighbour).await, [""; 0], "two environments never share anything");
    create(neighbour.admin(), "elsewhere").await;
    environment.stop().await;
    let mut again = folder.start(&[]).await;
    assert_eq!(names(&again).await, ["kept"]);
    create(again.admin(), "new").await;
    // However it ends.
    again.server.kill().await.unwrap();
    again.etcd.kill().await.unwrap();
    drop(again);
    assert_eq!(names(&folder.start(&[]).await).await, ["kept", "new"]);
    assert_eq!(names(&neighbour).await, ["elsewhere"]);
}

async fn refused(folder: &Folder, etcd: u16, flags: &[&str]) -> String {
    let mut server = folder.program("kube-apiserver");
    let ended = server.args(folder.server_flags(free_port(), etcd, flags)).status();
    assert_eq!(tokio::time::timeout(HANG, ended).await.unwrap().unwrap().code(), Some(1));
    folder.log("kube-apiserver")
}

#[tokio::test]
async fn an_etcd_that_cannot_be_used_is_refused_in_words_that_say_what_to_do() {
    let folder = Folder::new();
    // As etcd answers whatever it does not know.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = async {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await.unwrap();
            let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").await;
        }
    };
    let said = tokio::select! {
        said = refused(&folder, port, &[]) => said,
        () = answer => unreachable!(),
    };
    let advice =
        if cfg!(feature = "etcd") { "check that it runs" } else { "build it with `--features etcd`" };
    assert!(said.contains(&format!("http://127.0.0.1:{port}")) && said.contains(advice), "{said}");
}

#[tokio::test]
async fn an_etcd_that_is_not_there_is_waited_for_as_long_as_was_said() {
    let folder = Folder::new();
    let said = refused(&folder, free_port(), &["--storage-initialization-timeout=300ms"]).await;
    assert!(said.contains("did not answer within"), "{said}");

    // One that comes late is found.
    let (port, etcd) = (free_port(), free_port());
    let mut server =
        folder.program("kube-apiserver").args(folder.server_flags(port, etcd, &[])).spawn().unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let _etcd = folder.program("etcd").args(folder.etcd_flags(etcd)).spawn().unwrap();
    let opened = async {
        while !folder.path("data/setpoint").exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(HANG, opened).await.unwrap();
    assert!(server.try_wait().unwrap().is_none());
}

#[tokio::test]
async fn two_servers_on_one_folder_are_one_too_many() {
    let folder = Folder::new();
    let etcd = free_port();
    let _etcd = folder.program("etcd").args(folder.etcd_flags(etcd)).spawn().unwrap();
    let _first =
        folder.program("kube-apiserver").args(folder.server_flags(free_port(), etcd, &[])).spawn().unwrap();
    let opened = async {
        while !folder.path("data/setpoint/objects.redb").exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(HANG, opened).await.unwrap();
    let said = refused(&folder, etcd, &[]).await;
    assert!(said.contains("data/setpoint"), "{said}");
}
