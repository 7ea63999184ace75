//! What watchers of an API server are told.

use anyhow::{Context as _, Result, ensure};
use http::Request;
use http::header::ACCEPT;
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Client, ResourceExt as _};
use memchr::memmem;
use serde_json::json;
use setpoint_apiserver::ApiServer;

const WATCHERS: usize = 8;

/// Changes an object, and waits until all watchers have the event, `n` times.
pub(super) async fn changes(n: usize) -> Result<()> {
    let client = ApiServer::builder().build().client();
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let map = serde_json::from_value(json!({"metadata": {"name": "m"}, "data": {"text": "x".repeat(256)}}))?;
    let created = maps.create(&PostParams::default(), &map).await?;
    let version = created.metadata.resource_version.context("a version")?;
    let mut watchers = Vec::new();
    for _ in 0..WATCHERS {
        let query = format!("configmaps?watch=true&resourceVersion={version}");
        watchers.push(watch(&client, &query, "application/json").await?);
    }
    for n in 0..n {
        let patch = Patch::Merge(json!({"data": {"n": n.to_string()}}));
        maps.patch("m", &PatchParams::default(), &patch).await?;
        for watcher in &mut watchers {
            watcher.frame().await.context("the watch has ended")??;
        }
    }
    Ok(())
}

/// Begins `n` watches, one after another, each of which is told of all Pods.
pub(super) async fn watches(n: usize, accept: &str) -> Result<()> {
    let client = ApiServer::builder().build().client();
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    for text in super::texts() {
        let mut pod: Pod = serde_json::from_str(&text)?;
        pod.metadata.namespace = None;
        pod.metadata.resource_version = None;
        pod.managed_fields_mut().clear();
        pods.create(&PostParams::default(), &pod).await?;
    }
    for _ in 0..n {
        let query = "pods?watch=true&sendInitialEvents=true&allowWatchBookmarks=true\
                     &resourceVersionMatch=NotOlderThan";
        let mut watcher = watch(&client, query, accept).await?;
        loop {
            let frame = watcher.frame().await.context("the watch has ended")??;
            if frame.data_ref().is_some_and(|data| memmem::find(data, b"initial-events-end").is_some()) {
                break;
            }
        }
    }
    Ok(())
}

async fn watch(client: &Client, query: &str, accept: &str) -> Result<Body> {
    let request = Request::get(format!("/api/v1/namespaces/default/{query}")).header(ACCEPT, accept);
    let response = client.send(request.body(Body::empty())?).await?;
    ensure!(response.status() == 200, "a watch was answered with {}", response.status());
    Ok(response.into_body())
}
