//! Many watchers of the same objects, each on a connection of its own: how many events reach them a second, and how
//! long after the change.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use futures::stream::{self, StreamExt, TryStreamExt};
use http::Request;
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Client, Resource as _};
use memchr::memmem;
use serde_json::json;

use crate::e2e::child::{AT, now};

/// How many objects are changed in turn.
const OBJECTS: usize = 64;
/// How many watches begin at once.
const OPENING: usize = 32;
/// How long a watcher waits for the next event.
const LIMIT: Duration = Duration::from_secs(10);

#[derive(clap::Args)]
pub(crate) struct Options {
    kubeconfig: PathBuf,
    #[arg(long, default_value_t = 100)]
    watchers: usize,
    /// How many changes a second are tried.
    #[arg(long, default_value_t = 100)]
    rate: u32,
    /// How many changes.
    #[arg(long, default_value_t = 500)]
    changes: usize,
}

/// What a watcher has seen: how long after the change, in nanoseconds, and when the last came.
struct Seen {
    delays: Vec<u64>,
    last: Instant,
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    let client = crate::fill::client(&options.kubeconfig).await?;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    prepare(&maps).await?;
    let version = maps.list(&ListParams::default()).await?.metadata.resource_version.context("a version")?;
    let open = stream::iter(0..options.watchers).map(|_| watch(&client, &version));
    let bodies: Vec<Body> = open.buffer_unordered(OPENING).try_collect().await?;
    let changes = options.changes;
    let watchers: Vec<_> = bodies.into_iter().map(|body| tokio::spawn(follow(body, changes))).collect();
    let begun = Instant::now();
    change(&maps, options.rate, changes).await?;
    let changed = begun.elapsed();
    let seen = try_join_all(watchers).await?;
    let last = seen.iter().filter(|seen| !seen.delays.is_empty()).map(|seen| seen.last).max();
    let took = last.context("no event came")?.duration_since(begun).as_secs_f64();
    let expected = changes * options.watchers;
    let mut delays: Vec<u64> = seen.into_iter().flat_map(|seen| seen.delays).collect();
    delays.sort_unstable();
    let within = |share: f64| delays[((delays.len() - 1) as f64 * share) as usize] as f64 / 1e6;
    println!(
        "{}",
        json!({
            "deliveries_per_second": delays.len() as f64 / took,
            "changes_per_second": changes as f64 / changed.as_secs_f64(),
            "p50_ms": within(0.5),
            "p99_ms": within(0.99),
            "missed": expected - delays.len(),
        })
    );
    Ok(())
}

fn name(number: usize) -> String {
    format!("fan-out-{:02}", number % OBJECTS)
}

async fn prepare(maps: &Api<ConfigMap>) -> Result<()> {
    for number in 0..OBJECTS {
        let mut map = ConfigMap::default();
        map.meta_mut().name = Some(name(number));
        map.meta_mut().labels = Some([("app".to_owned(), "fan-out".to_owned())].into());
        match maps.create(&PostParams::default(), &map).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            created => drop(created?),
        }
    }
    Ok(())
}

/// Begins a watch: the answer's head is there, so the server knows of it.
async fn watch(client: &Client, version: &str) -> Result<Body> {
    let path = "/api/v1/namespaces/default/configmaps";
    let uri = format!("{path}?watch=true&labelSelector=app%3Dfan-out&resourceVersion={version}");
    let response = client.send(Request::get(uri).body(Body::empty())?).await?;
    ensure!(response.status() == 200, "a watch was answered with {}", response.status());
    Ok(response.into_body())
}

/// Reads events until all have come, the server ends the watch, or nothing comes any more.
async fn follow(mut body: Body, count: usize) -> Seen {
    const FIELD: &[u8] = b"\"at\":\"";
    let mut seen = Seen { delays: Vec::with_capacity(count), last: Instant::now() };
    let mut buffer = Vec::new();
    while seen.delays.len() < count {
        let Ok(Some(Ok(frame))) = tokio::time::timeout(LIMIT, body.frame()).await else { break };
        let Some(data) = frame.data_ref() else { continue };
        buffer.extend_from_slice(data);
        let Some(end) = memchr::memrchr(b'\n', &buffer) else { continue };
        let now = now();
        for at in memmem::find_iter(&buffer[..end], FIELD) {
            let digits = &buffer[at + FIELD.len()..];
            let digits = &digits[..memchr::memchr(b'"', digits).unwrap_or(0)];
            let at: Option<u128> = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
            seen.delays.extend(at.map(|at| now.saturating_sub(at) as u64));
        }
        seen.last = Instant::now();
        buffer.drain(..=end);
    }
    seen
}

/// Changes one object after another, at a steady rate if the server can follow: a change that comes late makes none of
/// those after it late.
async fn change(maps: &Api<ConfigMap>, rate: u32, changes: usize) -> Result<()> {
    let mut clock = tokio::time::interval(Duration::from_secs(1) / rate);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
    let ticks = stream::poll_fn(|context| clock.poll_tick(context).map(Some)).take(changes).enumerate();
    let change = |(number, _)| async move {
        let patch = Patch::Merge(json!({"data": {AT: now().to_string()}}));
        maps.patch(&name(number), &PatchParams::default(), &patch).await
    };
    // Fewer than there are objects: two changes of one object are never under way at once.
    ticks.map(change).buffer_unordered(OBJECTS / 2).try_collect::<Vec<_>>().await?;
    Ok(())
}
