//! The REST client: any request, to any path. You write the path, the query and the type of the answer.

use http::Request;
use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt};

use crate::Print;

/// Lists the pods of a namespace by a GET that is put together by hand.
pub async fn list_pods(client: &Client, namespace: &str, print: &Print) -> kube::Result<()> {
    let path = format!("/api/v1/namespaces/{namespace}/pods?limit=500");
    let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    let pods: List<Pod> = client.request(request).await?;
    for pod in &pods.items {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        print(format!("{} {} {}", namespace, pod.name_any(), phase.unwrap_or("Unknown")));
    }
    print(format!("{} pods at resourceVersion {}", pods.items.len(), version(&pods)));
    Ok(())
}

fn version(pods: &List<Pod>) -> &str {
    pods.metadata.resource_version.as_deref().unwrap_or("none")
}
