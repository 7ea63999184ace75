//! The controller in the README is the example, and the example works; so does its test.

#[path = "docs/config_map.rs"]
mod config_map;

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use setpoint_apiserver::kubeconfig::Kubeconfig;
use setpoint_apiserver::pki::CertificateAuthority;
use setpoint_apiserver::serve::CancellationToken;
use setpoint_apiserver::{ApiServer, User};
use setpoint_env::Env;
use tokio::net::TcpListener;

const EXAMPLE: &str = include_str!("../examples/quota.rs");
const TEST: &str = include_str!("docs/config_map.rs");
const README: &str = include_str!("../../../README.md");

#[test]
fn the_readme_shows_the_example_as_it_is() {
    assert!(README.contains(EXAMPLE), "copy crates/setpoint/examples/quota.rs into README.md");
    assert!(EXAMPLE.lines().count() <= 60);
    assert!(README.contains(TEST), "copy crates/setpoint/tests/docs/config_map.rs into README.md");
}

/// Ends with the test, also if that fails.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _ended = self.0.wait();
    }
}

/// Cargo builds examples beside the tests, unless it was asked for this test alone.
fn example() -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    let folder = test.parent().and_then(|deps| deps.parent()).expect("it is in target/*/deps");
    let example = folder.join("examples").join("quota");
    if !example.exists() {
        let build =
            Command::new(env!("CARGO")).args(["build", "-p", "setpoint", "--example", "quota"]).status();
        assert!(build.is_ok_and(|status| status.success()), "the example does not build");
    }
    example
}

async fn wait_for(quotas: &Api<ResourceQuota>, uid_other_than: Option<&str>) -> ResourceQuota {
    for _ in 0..1000 {
        if let Some(quota) = quotas.get_opt("small").await.expect("the server answers")
            && quota.metadata.uid.as_deref() != uid_other_than
        {
            return quota;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the controller makes no quota");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_works_against_a_server_over_tls() {
    let env = Env::system();
    let server = ApiServer::builder().build();
    let listener = TcpListener::bind((IpAddr::V4(Ipv4Addr::LOCALHOST), 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let authority = CertificateAuthority::generate(&env).unwrap();
    let tls = authority.server_config(&authority.issue_server(["127.0.0.1"]).unwrap()).unwrap();
    let admin = authority.issue_client(&User::admin()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    let url = format!("https://{address}");
    Kubeconfig::new(&url, &authority, &admin).write(&path).unwrap();
    let shutdown = CancellationToken::new();
    let serving = {
        let (server, shutdown) = (server.clone(), shutdown.clone());
        env.spawn(async move { server.serve(listener, tls, shutdown).await })
    };

    let mut command = Command::new(example());
    command.env("KUBECONFIG", &path).stdout(Stdio::null());
    let mut process = Process(command.spawn().expect("cargo test builds the example"));

    let namespaces: Api<Namespace> = Api::all(server.client());
    let team = json!({"metadata": {"name": "team", "labels": {"quota": "small"}}});
    let team: Namespace = serde_json::from_value(team).unwrap();
    namespaces.create(&PostParams::default(), &team).await.unwrap();
    let quotas: Api<ResourceQuota> = Api::namespaced(server.client(), "team");
    let quota = wait_for(&quotas, None).await;
    assert_eq!(quota.spec.unwrap().hard.unwrap()["pods"].0, "10");

    quotas.delete("small", &DeleteParams::default()).await.unwrap();
    wait_for(&quotas, quota.metadata.uid.as_deref()).await;

    let pid = process.0.id().to_string();
    Command::new("kill").args(["-TERM", &pid]).status().expect("there is a kill");
    let mut status = None;
    for _ in 0..500 {
        status = process.0.try_wait().unwrap();
        if status.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(status.expect("it ends when it is told to").success());
    shutdown.cancel();
    serving.await.unwrap();
}
