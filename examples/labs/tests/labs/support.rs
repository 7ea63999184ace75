//! What the tests of the labs share.

use std::sync::Arc;
use std::time::Duration;

use example_labs::Print;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;

const LIMIT: Duration = Duration::from_secs(30);

/// The lines that a lab has printed.
#[derive(Clone, Default)]
pub(crate) struct Lines {
    lines: Arc<Mutex<Vec<String>>>,
    printed: Arc<Notify>,
}

impl Lines {
    pub(crate) fn print(&self) -> Print {
        let this = self.clone();
        Arc::new(move |line| {
            this.lines.lock().push(line);
            this.printed.notify_waiters();
        })
    }

    pub(crate) fn get(&self) -> Vec<String> {
        self.lines.lock().clone()
    }

    /// Waits until a line like this was printed.
    pub(crate) async fn wait_for(&self, start: &str) {
        let found = async {
            loop {
                let printed = self.printed.notified();
                if self.lines.lock().iter().any(|line| line.starts_with(start)) {
                    return;
                }
                printed.await;
            }
        };
        if tokio::time::timeout(LIMIT, found).await.is_err() {
            panic!("no line starts with {start:?}: {:?}", self.get());
        }
    }
}

pub(crate) async fn create_pod(client: &Client, name: &str, node: Option<&str>) {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"name": "web", "image": "nginx"}]},
    }))
    .unwrap();
    pods(client).create(&PostParams::default(), &pod).await.unwrap();
}

pub(crate) async fn set_phase(client: &Client, name: &str, phase: &str) {
    let patch = Patch::Merge(json!({"status": {"phase": phase}}));
    pods(client).patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

pub(crate) async fn delete_pod(client: &Client, name: &str) {
    pods(client).delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
}

pub(crate) async fn create_node(client: &Client, name: &str) {
    let node: Node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let status = Patch::Merge(json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
    nodes.patch_status(name, &PatchParams::default(), &status).await.unwrap();
}

fn pods(client: &Client) -> Api<Pod> {
    Api::default_namespaced(client.clone())
}
