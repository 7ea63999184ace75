//! Seven ways to talk to a Kubernetes API server, from a raw request to an informer with a work queue.
//!
//! Each lab is a folder: `lab.rs` has the code, `main.rs` runs it, `README.md` says what to see.

#[path = "../discovery-client/lab.rs"]
pub mod discovery_client;
#[path = "../dynamic-client/lab.rs"]
pub mod dynamic_client;
#[path = "../informer/lab.rs"]
pub mod informer;
#[path = "../informer-workqueue/lab.rs"]
pub mod informer_workqueue;
#[path = "../list-watch/lab.rs"]
pub mod list_watch;
#[path = "../rest-client/lab.rs"]
pub mod rest_client;
#[path = "../typed-client/lab.rs"]
pub mod typed_client;

use std::io::Write;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use setpoint::{ClientConfig, Permissions, Verb};

/// Where a lab writes its lines: standard output in its program, a list in its test.
pub type Print = Arc<dyn Fn(String) + Send + Sync>;

/// Where the server is. Without flags: `KUBECONFIG`, `~/.kube/config`, or the service account of the pod.
#[derive(clap::Args, Debug)]
pub struct Connection {
    /// The URL of the API server, or of `kubectl proxy`
    #[arg(long, value_name = "URL")]
    master: Option<String>,
    /// The kubeconfig to use
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<std::path::PathBuf>,
}

impl Connection {
    /// Connects as the flags say.
    pub async fn client(self) -> anyhow::Result<Client> {
        tracing_subscriber::fmt().with_writer(std::io::stderr).init();
        let mut config = ClientConfig::new();
        if let Some(url) = self.master {
            config = config.master(url);
        }
        if let Some(path) = self.kubeconfig {
            config = config.kubeconfig(path);
        }
        Ok(config.connect().await?)
    }
}

/// What an API server has to allow somebody who runs all labs, with Deployments for the dynamic client.
pub fn permissions() -> Permissions {
    let mut needs = Permissions::default();
    needs.allow::<Pod>(&[Verb::Get, Verb::List, Verb::Watch]);
    needs.allow::<Node>(&[Verb::List]);
    needs.allow::<Deployment>(&[Verb::List]);
    needs
}

/// Prints to standard output, a line at once, also into a pipe.
pub fn stdout() -> Print {
    Arc::new(|line| {
        let mut out = std::io::stdout().lock();
        // Whoever reads this may have gone, as `head` does.
        let _closed = writeln!(out, "{line}").and_then(|()| out.flush());
    })
}
