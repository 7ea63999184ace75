//! How long it takes from a change of an object until its reconcile is called.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use setpoint::controller::Runtime;
use setpoint::{Action, Context, Controller, Env, ObjectKey, ReconcileError};
use setpoint_apiserver::kubeconfig;
use setpoint_apiserver::pki::CertificateAuthority;
use setpoint_apiserver::serve::CancellationToken;
use setpoint_apiserver::{ApiServer, User};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// Changes an object `changes` times, one after another, in-process and over TLS.
pub(crate) async fn run(changes: usize, as_json: bool) -> Result<()> {
    let server = ApiServer::builder().build();
    let in_process = measure(server.client(), server.client(), changes).await?;

    let (serving, config) = serve(ApiServer::builder().build()).await?;
    // The controller and whoever makes the change are two programs: each has connections of its own.
    let (controller, writer) = (Client::try_from(config.clone())?, Client::try_from(config)?);
    let over_tls = measure(controller, writer, changes).await?;
    serving.stop().await;
    if as_json {
        let times =
            |times: &[Duration]| json!({"p50_us": micros(at(times, 0.5)), "p99_us": micros(at(times, 0.99))});
        println!("{}", json!({"in_process": times(&in_process), "over_tls": times(&over_tls)}));
        return Ok(());
    }
    println!("object changed → reconcile called, {changes} changes one after another");
    report("in-process", &in_process);
    report("over TLS", &over_tls);
    Ok(())
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The time that this share of the sorted times does not exceed.
fn at(sorted: &[Duration], share: f64) -> Duration {
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}

fn report(name: &str, times: &[Duration]) {
    println!(
        "{name:<12} p50 {:>9.1?}   p90 {:>9.1?}   p99 {:>9.1?}   max {:>9.1?}",
        at(times, 0.5),
        at(times, 0.9),
        at(times, 0.99),
        at(times, 1.0)
    );
}

/// How long each change took, the shortest first.
async fn measure(controller: Client, writer: Client, changes: usize) -> Result<Vec<Duration>> {
    let maps: Api<ConfigMap> = Api::default_namespaced(writer);
    let mut map = ConfigMap::default();
    map.metadata.name = Some("m".into());
    maps.create(&PostParams::default(), &map).await?;

    let (sender, mut called) = mpsc::unbounded_channel::<(String, Instant)>();
    let sender = Arc::new(sender);
    let reconcile = move |key: ObjectKey, cx: Context| {
        let now = Instant::now();
        let map = cx.lister::<ConfigMap>().ok().and_then(|maps| maps.get(&key));
        let number = map.and_then(|map| map.data.clone()?.remove("n")).unwrap_or_default();
        let _ended = sender.send((number, now));
        async { Ok::<_, ReconcileError>(Action::done()) }
    };
    let runtime = Runtime::new(controller);
    let running = {
        let runtime = runtime.clone();
        tokio::spawn(async move { Controller::of::<ConfigMap>(.., "latency", reconcile).run(&runtime).await })
    };
    called.recv().await.context("the controller has started")?;

    let mut times = Vec::with_capacity(changes);
    for n in 0..changes {
        let number = n.to_string();
        let patch = Patch::Merge(json!({"data": BTreeMap::from([("n", &number)])}));
        let parameters = PatchParams::default();
        let start = Instant::now();
        let write = maps.patch("m", &parameters, &patch);
        let seen = async {
            while let Some((seen, at)) = called.recv().await {
                if seen == number {
                    return Some(at);
                }
            }
            None
        };
        let (written, seen) = tokio::join!(write, seen);
        written?;
        times.push(seen.context("the controller runs")?.duration_since(start));
    }
    runtime.shutdown().cancel();
    running.await??;
    runtime.informers().shutdown().await;
    times.sort_unstable();
    Ok(times)
}

/// A server on a port of its own, until it is told to stop.
struct Serving {
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Serving {
    async fn stop(self) {
        self.shutdown.cancel();
        let _ended = self.task.await;
    }
}

async fn serve(server: ApiServer) -> Result<(Serving, Config)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("https://{}", listener.local_addr()?);
    let authority = CertificateAuthority::generate(&Env::system())?;
    let tls = authority.server_config(&authority.issue_server(["127.0.0.1"])?)?;
    let admin = authority.issue_client(&User::admin())?;
    let yaml = kubeconfig::Kubeconfig::new(&url, &authority, &admin).as_yaml().to_owned();
    let config =
        Config::from_custom_kubeconfig(Kubeconfig::from_yaml(&yaml)?, &KubeConfigOptions::default()).await?;
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    let task = tokio::spawn(async move { server.serve(listener, tls, stop).await });
    Ok((Serving { shutdown, task }, config))
}
