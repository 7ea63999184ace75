//! A change, until all watchers have its event.

use anyhow::{Context as _, Result, ensure};
use http::Request;
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::client::Body;
use serde_json::json;
use setpoint_apiserver::ApiServer;

const WATCHERS: usize = 8;

pub(super) async fn run(n: usize) -> Result<()> {
    let client = ApiServer::builder().build().client();
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let map = serde_json::from_value(json!({"metadata": {"name": "m"}, "data": {"text": "x".repeat(256)}}))?;
    let created = maps.create(&PostParams::default(), &map).await?;
    let version = created.metadata.resource_version.context("a version")?;
    let mut watchers = Vec::new();
    for _ in 0..WATCHERS {
        let path = "/api/v1/namespaces/default/configmaps";
        let request = Request::get(format!("{path}?watch=true&resourceVersion={version}"));
        let response = client.send(request.body(Body::empty())?).await?;
        ensure!(response.status() == 200, "a watch was answered with {}", response.status());
        watchers.push(response.into_body());
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
