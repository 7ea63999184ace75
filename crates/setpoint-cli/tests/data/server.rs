//! A server on a folder that outlives it.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

/// Anything that takes longer hangs.
const HANG: Duration = Duration::from_secs(60);

/// A server that has said that it is ready.
pub(crate) struct Server {
    child: Child,
    kubeconfig: Kubeconfig,
    /// How long that took.
    pub(crate) started_in: Duration,
}

impl Server {
    /// Starts it on the folder `data` in `folder`.
    pub(crate) async fn start(folder: &Path) -> Server {
        Server::start_under(folder, &[]).await
    }

    /// The same under another program, which is given the command.
    pub(crate) async fn start_under(folder: &Path, program: &[&str]) -> Server {
        let begun = now();
        let mut child = setpoint_under(folder, "data", program).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        loop {
            let line = tokio::time::timeout(HANG, lines.next_line()).await.unwrap().unwrap();
            if line.expect("the server ended before it was ready").starts_with("ready in ") {
                break;
            }
        }
        let kubeconfig = Kubeconfig::read_from(folder.join("data/kubeconfig")).unwrap();
        Server { child, kubeconfig, started_in: now() - begun }
    }

    /// How to reach it.
    pub(crate) fn kubeconfig(&self) -> Kubeconfig {
        self.kubeconfig.clone()
    }

    /// A client with a connection of its own.
    pub(crate) async fn client(&self) -> Client {
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(self.kubeconfig.clone(), &options).await.unwrap();
        Client::try_from(config).unwrap()
    }

    /// Waits until it has ended by itself: its code, and what it said.
    pub(crate) async fn ended(&mut self) -> (Option<i32>, String) {
        let mut stderr = String::new();
        let mut pipe = self.child.stderr.take().unwrap();
        let said = tokio::time::timeout(HANG, pipe.read_to_string(&mut stderr)).await;
        said.expect("the server ends").unwrap();
        (self.child.wait().await.unwrap().code(), stderr)
    }

    /// Ends it as suddenly as can be.
    pub(crate) async fn kill(&mut self) {
        // SIGKILL.
        self.child.kill().await.unwrap();
    }
}

#[allow(clippy::disallowed_methods, reason = "this measures a real process")]
fn now() -> Instant {
    Instant::now()
}

fn setpoint(folder: &Path, data: &str) -> Command {
    setpoint_under(folder, data, &[])
}

fn setpoint_under(folder: &Path, data: &str, program: &[&str]) -> Command {
    // `cargo xtask load kill` names another build.
    let binary = std::env::var("SETPOINT_BINARY").unwrap_or(env!("CARGO_BIN_EXE_setpoint").to_owned());
    let words = [program, &[binary.as_str()]].concat();
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .args(["up", "--no-controllers", "--listen", ":0", "--data", data])
        .current_dir(folder)
        .kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The server refuses to start on this folder: in one line, with `hint` in it.
pub(crate) async fn refused(folder: &Path, data: &str, hint: &str) {
    let output = tokio::time::timeout(HANG, setpoint(folder, data).output()).await.unwrap().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("setpoint: ") && stderr.contains(hint), "{stderr}");
}

/// Creates a ConfigMap with no more than a name.
pub(crate) async fn create_config_map(client: &Client, name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    Api::default_namespaced(client.clone()).create(&PostParams::default(), &map).await.unwrap()
}
