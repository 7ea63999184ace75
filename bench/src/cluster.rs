//! A whole cluster in one process: from the creation of Deployments until all their pods are ready.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures::stream::{self, StreamExt, TryStreamExt};
use http::{Request, Response};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, ListParams, PostParams};
use kube::client::Body;
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;
use setpoint_apiserver::ApiServer;
use setpoint_cluster::Cluster;
use tower::Service;

use crate::measure;

/// How many pods a node takes.
const PODS_PER_NODE: usize = 100;
/// Nobody waits longer.
const LIMIT: Duration = Duration::from_secs(600);

/// Creates so many Deployments of so many pods, and waits until all are ready.
pub(crate) async fn run(deployments: usize, replicas: usize, as_json: bool) -> Result<()> {
    let server = ApiServer::builder().build();
    let requests = Requests::default();
    let nodes = (deployments * replicas).div_ceil(PODS_PER_NODE);
    let cluster = Cluster::builder(requests.count(server.client())).nodes(nodes).start();
    let api: Api<Deployment> = Api::default_namespaced(server.client());
    // What the nodes need to say that they are there is not measured.
    tokio::time::sleep(Duration::from_secs(3)).await;
    requests.reset();
    let (start, cpu) = (Instant::now(), measure::cpu());
    let create = |number: usize| {
        let api = &api;
        async move { api.create(&PostParams::default(), &deployment(number, replicas)?).await.context("create") }
    };
    stream::iter(0..deployments).map(create).buffer_unordered(32).try_collect::<Vec<_>>().await?;
    let created = start.elapsed();
    while !all_ready(&api, deployments).await? {
        if start.elapsed() > LIMIT {
            bail!("not all pods are ready after {LIMIT:?}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (time, cpu) = (start.elapsed(), measure::cpu() - cpu);
    let pods = deployments * replicas;
    if as_json {
        let result = json!({
            "seconds": time.as_secs_f64(),
            "pods_per_second": pods as f64 / time.as_secs_f64(),
            "cpu_seconds": cpu.as_secs_f64(),
            "peak_rss_mb": measure::status("VmHWM") / 1024,
            "requests": requests.total(),
        });
        println!("{result}");
        return Ok(cluster.stop().await?);
    }
    println!("{pods} pods over {deployments} Deployments on {nodes} nodes, in one process");
    println!("created {created:.2?}, all ready {time:.2?}, {:.0} pods/s", pods as f64 / time.as_secs_f64());
    println!(
        "CPU {cpu:.2?}, RSS {} MB, peak {} MB",
        measure::status("VmRSS") / 1024,
        measure::status("VmHWM") / 1024
    );
    println!("requests of controllers and nodes: {}", requests.total());
    for (name, number) in requests.by_kind() {
        println!("  {number:>7}  {name}");
    }
    cluster.stop().await?;
    Ok(())
}

fn deployment(number: usize, replicas: usize) -> Result<Deployment> {
    let labels = json!({"app": format!("web-{number}")});
    let value = json!({
        "metadata": {"name": format!("web-{number}")},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "web", "image": "nginx"}]},
        }},
    });
    Ok(serde_json::from_value(value)?)
}

async fn all_ready(api: &Api<Deployment>, deployments: usize) -> Result<bool> {
    let list = api.list(&ListParams::default()).await?;
    let is_ready = |deployment: &Deployment| {
        let status = deployment.status.as_ref();
        status.and_then(|status| status.ready_replicas) == deployment.spec.replicas
            && !deployment.name_any().is_empty()
    };
    Ok(list.items.len() == deployments && list.items.iter().all(is_ready))
}

/// Counts requests by verb and resource.
#[derive(Clone, Default)]
struct Requests {
    total: Arc<AtomicUsize>,
    kinds: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Requests {
    fn count(&self, client: Client) -> Client {
        Client::new(Counted { client, requests: self.clone() }, "default")
    }

    fn note(&self, request: &Request<Body>) {
        self.total.fetch_add(1, Ordering::Relaxed);
        let path: Vec<&str> = request.uri().path().split('/').filter(|part| !part.is_empty()).collect();
        let skipped = if path.first() == Some(&"api") { 2 } else { 3 };
        let rest = path.get(skipped..).unwrap_or_default();
        let rest = if rest.first() == Some(&"namespaces") { rest.get(2..).unwrap_or_default() } else { rest };
        let subresource = rest.get(2).map(|name| format!("/{name}")).unwrap_or_default();
        let name = format!("{} {}{subresource}", request.method(), rest.first().unwrap_or(&""));
        *self.kinds.lock().entry(name).or_default() += 1;
    }

    fn reset(&self) {
        self.total.store(0, Ordering::Relaxed);
        self.kinds.lock().clear();
    }

    fn total(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// The most frequent first.
    fn by_kind(&self) -> Vec<(String, usize)> {
        let mut kinds: Vec<_> = self.kinds.lock().clone().into_iter().collect();
        kinds.sort_by_key(|(_, number)| std::cmp::Reverse(*number));
        kinds
    }
}

#[derive(Clone)]
struct Counted {
    client: Client,
    requests: Requests,
}

impl Service<Request<Body>> for Counted {
    type Response = Response<Body>;
    type Error = tower::BoxError;
    type Future = futures::future::BoxFuture<'static, Result<Response<Body>, tower::BoxError>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), tower::BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.requests.note(&request);
        let client = self.client.clone();
        Box::pin(async move { Ok(client.send(request).await?) })
    }
}
