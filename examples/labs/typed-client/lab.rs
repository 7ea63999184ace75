//! The typed client (client-go's ClientSet): `Api<K>` knows the path, the verbs and the type of a kind.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use crate::Print;

/// How many objects a page has: lists of any length come in pieces.
const PAGE: u32 = 500;

/// Prints what there is to know about one pod.
pub async fn show_pod(client: &Client, namespace: &str, name: &str, print: &Print) -> kube::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    match pods.get_opt(name).await? {
        None => print(format!("there is no pod {namespace}/{name}")),
        Some(pod) => {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            print(format!("pod {namespace}/{name} is {} on {}", phase(&pod), node.unwrap_or("no node yet")));
            for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
                print(format!("  {} runs {}", container.name, container.image.as_deref().unwrap_or("?")));
            }
        }
    }
    Ok(())
}

/// How many pods of all namespaces run.
pub async fn count_running(client: &Client) -> kube::Result<usize> {
    let pods: Api<Pod> = Api::all(client.clone());
    // The server does the choosing: only what runs is sent.
    let mut wanted = ListParams::default().fields("status.phase=Running").limit(PAGE);
    let mut running = 0;
    loop {
        let page = pods.list(&wanted).await?;
        running += page.items.len();
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => wanted = wanted.continue_token(&token),
            None => return Ok(running),
        }
    }
}

/// Prints every node, and the pods on it.
pub async fn show_nodes(client: &Client, print: &Print) -> kube::Result<()> {
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?;
    for node in &nodes {
        let name = node.name_any();
        let ready = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let is_ready = ready.clone().any(|found| found.type_ == "Ready" && found.status == "True");
        print(format!("node {name} {}", if is_ready { "Ready" } else { "NotReady" }));
        let on_it = ListParams::default().fields(&format!("spec.nodeName={name}"));
        for pod in &Api::<Pod>::all(client.clone()).list(&on_it).await? {
            print(format!("  {}/{} {}", pod.namespace().unwrap_or_default(), pod.name_any(), phase(pod)));
        }
    }
    Ok(())
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Unknown")
}
