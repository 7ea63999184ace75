//! How it ends: by a signal, with its parent; and what runs beside it.

use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams, PostParams, WatchParams};
use rustix::process::{Signal, kill_process, test_kill_process};

use crate::environment::{Folder, HANG, free_port, now, pid, status, terminate};

#[tokio::test]
async fn open_watches_do_not_hold_it_up() {
    let folder = Folder::new();
    let mut environment = folder.start(&[]).await;
    let client = environment.admin();
    let mut watches = Vec::new();
    for _ in 0..200 {
        let maps: Api<ConfigMap> = Api::all(client.clone());
        watches.push(Box::pin(maps.watch(&WatchParams::default(), "0").await.unwrap()));
    }
    let took = environment.stop().await;
    assert!(took < Duration::from_secs(1), "{took:?}");
    for mut watch in watches {
        // Whatever it gets, it is no longer open.
        let rest =
            tokio::time::timeout(HANG, async { while let Ok(Some(_)) = watch.try_next().await {} }).await;
        rest.expect("the watch has ended");
    }
}

#[tokio::test]
async fn it_can_be_stopped_while_it_waits_for_its_etcd() {
    let folder = Folder::new();
    let port = free_port();
    let mut server = folder.program("kube-apiserver");
    let mut server = server.args(folder.server_flags(port, free_port(), &[])).spawn().unwrap();
    let begun = now();
    while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        assert!(now().saturating_duration_since(begun) < HANG);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    terminate(&server);
    let ended = tokio::time::timeout(Duration::from_secs(10), server.wait()).await;
    assert_eq!(ended.expect("it does not stop").unwrap().code(), Some(0));
}

/// Whether a process is there.
fn runs(id: u32) -> bool {
    // One that has ended and that nobody waits for is not.
    let state = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let is_zombie = state.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'));
    test_kill_process(pid(id)).is_ok() && !is_zombie
}

#[tokio::test]
async fn a_parent_that_is_killed_leaves_no_orphans() {
    let folder = Folder::new();
    let (port, etcd_port) = (free_port(), free_port());
    let quoted = |program: &str, flags: Vec<String>| {
        format!("{}/{program} {} & echo $!", folder.path("assets").display(), flags.join(" "))
    };
    let script = format!(
        "{}; {}; wait",
        quoted("etcd", folder.etcd_flags(etcd_port)),
        quoted("kube-apiserver", folder.server_flags(port, etcd_port, &[]))
    );
    let mut shell = tokio::process::Command::new("sh");
    let mut shell =
        shell.args(["-c", &script]).stdout(std::process::Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines =
        tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(shell.stdout.take().unwrap()));
    let mut children = Vec::new();
    for _ in 0..2 {
        children.push(lines.next_line().await.unwrap().unwrap().parse::<u32>().unwrap());
    }
    let begun = now();
    // Whoever listens knows its parent.
    for port in [port, etcd_port] {
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            assert!(now().saturating_duration_since(begun) < HANG);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    assert!(children.iter().all(|id| runs(*id)));
    kill_process(pid(shell.id().unwrap()), Signal::KILL).unwrap();
    shell.wait().await.unwrap();
    let begun = now();
    while children.iter().any(|id| runs(*id)) {
        assert!(now().saturating_duration_since(begun) < HANG, "{children:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a thread that ends is what this is about")]
fn a_thread_of_the_parent_that_ends_is_not_the_end_of_the_parent() {
    let folder = Folder::new();
    let (port, etcd_port) = (free_port(), free_port());
    let start = |name: &str, flags: Vec<String>| {
        let mut command = std::process::Command::new(folder.path("assets").join(name));
        command.args(flags);
        std::thread::spawn(move || command.spawn().unwrap()).join().unwrap()
    };
    let mut children = [
        start("etcd", folder.etcd_flags(etcd_port)),
        start("kube-apiserver", folder.server_flags(port, etcd_port, &[])),
    ];
    std::thread::sleep(Duration::from_millis(1500));
    let ended = children.each_mut().map(|child| child.try_wait().unwrap());
    for child in &mut children {
        let _ = child.kill();
        child.wait().unwrap();
    }
    assert_eq!(ended, [None, None]);
}

#[tokio::test]
async fn controllers_run_beside_it_if_they_are_asked_for() {
    let map = |name: &str| ConfigMap {
        metadata: kube::api::ObjectMeta { name: Some(name.to_owned()), ..Default::default() },
        ..ConfigMap::default()
    };
    for is_asked in [false, true] {
        let folder = Folder::new();
        let variables: &[(&str, &str)] =
            if is_asked { &[("SETPOINT_CONTROLLERS", "garbage-collector,namespace")] } else { &[] };
        let mut environment = folder.start_with(&[], variables).await;
        let client = environment.admin();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some("short".to_owned());
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
        let owner = maps.create(&PostParams::default(), &map("owner")).await.unwrap();
        let mut owned = map("owned");
        owned.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            name: "owner".to_owned(),
            uid: owner.metadata.uid.unwrap(),
            ..OwnerReference::default()
        }]);
        maps.create(&PostParams::default(), &owned).await.unwrap();
        namespaces.delete("short", &DeleteParams::default()).await.unwrap();
        maps.delete("owner", &DeleteParams::default()).await.unwrap();

        let are_gone = async {
            while maps.get_opt("owned").await.unwrap().is_some()
                || namespaces.get_opt("short").await.unwrap().is_some()
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let limit = if is_asked { HANG } else { Duration::from_secs(2) };
        assert_eq!(tokio::time::timeout(limit, are_gone).await.is_ok(), is_asked);
        if !is_asked {
            assert!(maps.get_opt("owned").await.unwrap().is_some(), "suites rely on it");
            let left = namespaces.get("short").await.unwrap();
            assert_eq!(left.status.unwrap().phase.as_deref(), Some("Terminating"));
        }
        assert_eq!(status(&client, "/readyz").await, Some(200));
        environment.stop().await;
    }
}

#[tokio::test]
async fn a_controller_that_does_not_exist_is_refused() {
    let folder = Folder::new();
    let mut server = folder.program("kube-apiserver");
    let flags = folder.server_flags(free_port(), free_port(), &[]);
    let ended = server.args(flags).env("SETPOINT_CONTROLLERS", "nobody").status();
    assert_eq!(tokio::time::timeout(HANG, ended).await.unwrap().unwrap().code(), Some(1));
    let said = folder.log("kube-apiserver");
    assert!(said.contains("SETPOINT_CONTROLLERS=nobody") && said.contains("garbage-collector"), "{said}");
}
