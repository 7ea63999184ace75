//! Fills an API server with Pods and ConfigMaps.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use futures::stream::{self, StreamExt, TryStreamExt};
use http::Request;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;

#[derive(clap::Args)]
pub(crate) struct Options {
    kubeconfig: PathBuf,
    /// Pods of about 5 KB.
    #[arg(long, default_value_t = 50_000)]
    pods: usize,
    /// ConfigMaps of about 1 KB.
    #[arg(long, default_value_t = 120_000)]
    config_maps: usize,
    /// How many creates are under way at once.
    #[arg(long, default_value_t = 64)]
    connections: usize,
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    let client = client(&options.kubeconfig).await?;
    create(&client, options.connections, "pods", options.pods, pod).await?;
    create(&client, options.connections, "configmaps", options.config_maps, config_map).await
}

pub(crate) async fn client(kubeconfig: &Path) -> Result<Client> {
    Ok(Client::try_from(crate::e2e::config(kubeconfig).await?)?)
}

async fn create(
    client: &Client,
    connections: usize,
    plural: &str,
    count: usize,
    body: fn(usize) -> String,
) -> Result<()> {
    let create = |number: usize| async move {
        let request = Request::post(format!("/api/v1/namespaces/default/{plural}"))
            .header("content-type", "application/json")
            .body(Body::from(body(number).into_bytes()))?;
        let response = client.send(request).await?;
        let status = response.status();
        let answer = response.into_body().collect().await?.to_bytes();
        ensure!(status == 201, "{status}: {}", String::from_utf8_lossy(&answer));
        Ok(())
    };
    stream::iter(0..count).map(create).buffer_unordered(connections).try_collect().await
}

/// Text that is another one for each number, and does not compress to nothing.
fn noise(number: usize, length: usize) -> String {
    let mut state = number as u64 + 1;
    let mut text = String::with_capacity(length + 16);
    while text.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(&format!("{:08x}", state >> 32));
    }
    text.truncate(length);
    text
}

fn pod(number: usize) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"pod-{number:06}","labels":{{"app":"web","shard":"{}"}},"annotations":{{"example.com/notes":"{}"}}}},"spec":{{"nodeName":"node-{}","containers":[{{"name":"web","image":"registry.example/web:1.2.3","ports":[{{"containerPort":8080}}],"env":[{{"name":"A","value":"b"}}]}}]}}}}"#,
        number % 100,
        noise(number, 3_000),
        number % 500
    )
}

fn config_map(number: usize) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"map-{number:06}","labels":{{"app":"web"}}}},"data":{{"text":"{}"}}}}"#,
        noise(number, 600)
    )
}
