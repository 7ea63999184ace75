use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use example_labs::{Print, discovery_client, dynamic_client, list_watch, rest_client, typed_client};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use serde_json::json;
use setpoint::Permissions;
use tokio::time::{sleep, timeout};

use crate::NAMESPACE;
use crate::scene::Scene;

pub(crate) fn permissions() -> Permissions {
    example_labs::permissions()
}

pub(crate) async fn scenario(scene: Scene) -> Result<()> {
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let written = lines.clone();
    let print: Print = Arc::new(move |line| written.lock().push(line));
    let pods: Api<Pod> = Api::namespaced(scene.user(), NAMESPACE);
    let pod = |name: &str| -> Result<Pod> {
        let spec = json!({"containers": [{"name": "web", "image": "nginx"}]});
        Ok(serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?)
    };
    pods.create(&PostParams::default(), &pod("one")?).await?;
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "node-1"}}))?;
    Api::<Node>::all(scene.user()).create(&PostParams::default(), &node).await?;

    let client = &scene.client;
    rest_client::list_pods(client, NAMESPACE, &print).await?;
    typed_client::show_pod(client, NAMESPACE, "one", &print).await?;
    typed_client::count_running(client).await?;
    typed_client::show_nodes(client, &print).await?;
    dynamic_client::list(client, "apps", "v1", "deployments", &print).await?;
    discovery_client::api_versions(client, &print).await?;
    discovery_client::api_resources(client, &print).await?;
    let later = async {
        sleep(Duration::from_secs(1)).await;
        pods.create(&PostParams::default(), &pod("two")?).await?;
        anyhow::Ok(())
    };
    let watching = timeout(Duration::from_secs(10), list_watch::pods(client, NAMESPACE, 1, &print));
    let (watched, made) = futures::join!(watching, later);
    made?;
    watched??;
    ensure!(lines.lock().iter().any(|line| line.starts_with("ADDED two")), "{:?}", lines.lock());
    Ok(())
}
