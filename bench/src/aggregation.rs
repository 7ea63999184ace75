//! An extension server behind an API server: creates that are handed on, and a watch of many events. The extension server is in this
//! process, the same whoever is in front.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use http::Request;
use http_body_util::BodyExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Client, CustomResource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use setpoint::Env;
use setpoint_apiserver::extension::{Beside, Delegation, ExtensionServer, Kind};
use setpoint_apiserver::serve::CancellationToken;
use tokio::net::TcpListener;

const NAME: &str = "bench-parcels";
/// How long something may take that comes by itself.
const LIMIT: Duration = Duration::from_secs(120);

#[derive(clap::Args)]
pub(crate) struct Options {
    kubeconfig: PathBuf,
    /// How many connections create, each with one request at a time.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// For how long.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// How many events are watched.
    #[arg(long, default_value_t = 10_000)]
    events: usize,
}

/// Something to be carried.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bench.example.com", version = "v1", kind = "Parcel", plural = "parcels", namespaced)]
struct ParcelSpec {
    text: String,
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    let client = crate::fill::client(&options.kubeconfig).await?;
    let env = Env::system();
    let server = ExtensionServer::builder()
        .kind(Kind::<Parcel>::stored())
        .delegation(Delegation::to(client.clone()))
        .build(&env)
        .await?;
    let listener = TcpListener::bind("localhost:0").await?;
    let (own, admin) = (server.clone(), client.clone());
    let _serving = env.spawn(async move {
        let beside = Beside::new(NAME, NAME);
        own.serve_beside(&admin, &beside, listener, CancellationToken::new()).await
    });
    let parcels: Api<Parcel> = Api::default_namespaced(client.clone());
    ready(&parcels).await?;
    let direct: Api<Parcel> = Api::default_namespaced(server.client());

    let (creates, times) = create(&options.kubeconfig, options).await?;
    let watched = watch(&client, &parcels, &direct, options.events).await?;
    let within = |share: f64| times[((times.len() - 1) as f64 * share) as usize] * 1e3;
    println!(
        "{}",
        json!({
            "creates_per_second": creates, "created": times.len(), "p50_ms": within(0.5), "p99_ms": within(0.99),
            "events_per_second": options.events as f64 / watched.as_secs_f64(),
        })
    );
    server.close().await;
    Ok(())
}

async fn ready(parcels: &Api<Parcel>) -> Result<()> {
    let begun = Instant::now();
    while let Err(error) = parcels.list(&ListParams::default()).await {
        if begun.elapsed() > LIMIT {
            return Err(error).context("the group-version is not handed on");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Creates for a while; how many a second, and the seconds of each, the shortest first.
async fn create(kubeconfig: &Path, options: &Options) -> Result<(f64, Vec<f64>)> {
    let counter = Arc::new(AtomicUsize::new(0));
    let mut clients = Vec::new();
    for _ in 0..options.connections {
        let parcels: Api<Parcel> = Api::default_namespaced(crate::fill::client(kubeconfig).await?);
        parcels.list(&ListParams::default().limit(1)).await?;
        clients.push(parcels);
    }
    let (begun, length) = (Instant::now(), Duration::try_from_secs_f64(options.seconds)?);
    let workers = clients.into_iter().map(|parcels| {
        let counter = Arc::clone(&counter);
        tokio::spawn(async move {
            let mut times = Vec::new();
            while begun.elapsed() < length {
                let name = format!("parcel-{:08}", counter.fetch_add(1, Ordering::Relaxed));
                let parcel = Parcel::new(&name, ParcelSpec { text: "x".repeat(256) });
                let asked = Instant::now();
                parcels.create(&PostParams::default(), &parcel).await?;
                times.push(asked.elapsed().as_secs_f64());
            }
            Ok::<_, kube::Error>(times)
        })
    });
    let all: Vec<Vec<f64>> = try_join_all(workers).await?.into_iter().collect::<Result<_, _>>()?;
    let took = begun.elapsed().as_secs_f64();
    let mut times: Vec<f64> = all.into_iter().flatten().collect();
    times.sort_by(f64::total_cmp);
    ensure!(!times.is_empty(), "nothing was created");
    Ok((times.len() as f64 / took, times))
}

/// Makes changes in the extension server itself, and then reads all of them in one watch that is handed on.
async fn watch(
    client: &Client,
    parcels: &Api<Parcel>,
    direct: &Api<Parcel>,
    events: usize,
) -> Result<Duration> {
    let version = parcels
        .list(&ListParams::default().limit(1))
        .await?
        .metadata
        .resource_version
        .context("a version")?;
    direct.create(&PostParams::default(), &Parcel::new("watched", ParcelSpec::default())).await?;
    for number in 1..events {
        let patch = Patch::Merge(json!({"spec": {"text": format!("{number:0256}")}}));
        direct.patch("watched", &PatchParams::default(), &patch).await?;
    }
    let path = "/apis/bench.example.com/v1/namespaces/default/parcels";
    let uri = format!("{path}?watch=true&fieldSelector=metadata.name%3Dwatched&resourceVersion={version}");
    let begun = Instant::now();
    let response = client.send(Request::get(uri).body(Body::empty())?).await?;
    ensure!(response.status() == 200, "a watch was answered with {}", response.status());
    let (mut body, mut seen) = (response.into_body(), 0);
    while seen < events {
        let frame = tokio::time::timeout(LIMIT, body.frame()).await?.context("the watch ended early")??;
        seen += frame.data_ref().map_or(0, |data| memchr::memchr_iter(b'\n', data).count());
    }
    Ok(begun.elapsed())
}
