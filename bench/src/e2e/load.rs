//! Makes and changes sources, and watches their children.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};

use super::UNCHANGED;
use super::child::{AT, RECONCILED, now};

/// How many creates are under way at once.
const CREATES: usize = 16;
/// Between the creation of the last child and the first change.
const SETTLE: Duration = Duration::from_millis(500);
/// Nobody waits longer for a child.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(clap::Args)]
pub(crate) struct Options {
    kubeconfig: std::path::PathBuf,
    /// How many sources there are.
    #[arg(long, default_value_t = 2000)]
    sources: usize,
    /// How many changes a second.
    #[arg(long, default_value_t = 100)]
    rate: u32,
    /// How many changes.
    #[arg(long, default_value_t = 2000)]
    changes: usize,
}

/// Says `created` when all sources are there: the controller may start. Its result is the last line.
pub(crate) async fn run(options: &Options) -> Result<()> {
    let sources: Api<ConfigMap> = Api::default_namespaced(client(&options.kubeconfig).await?);
    let children: Api<Secret> = Api::default_namespaced(client(&options.kubeconfig).await?);
    // What an earlier run has left: one server may serve several.
    sources.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    children.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    create(&sources, options.sources).await?;
    let mut children = watch(&children).await?;
    println!("created");
    let reconciles = first_children(&mut children, options.sources).await?;
    tokio::time::sleep(SETTLE).await;
    let changing = tokio::spawn(change(sources, options.sources, options.rate, options.changes));
    let mut times = Times::default();
    while times.seen.len() < options.changes {
        times.note(&next(&mut children).await?);
    }
    changing.await??;
    println!("{}", times.report(reconciles));
    Ok(())
}

async fn client(kubeconfig: &Path) -> Result<Client> {
    Ok(Client::try_from(super::config(kubeconfig).await?)?)
}

fn name(number: usize) -> String {
    format!("source-{number:05}")
}

async fn create(sources: &Api<ConfigMap>, count: usize) -> Result<()> {
    let create = |number: usize| async move {
        let mut source = ConfigMap::default();
        source.metadata.name = Some(name(number));
        source.data = Some([(AT.to_owned(), UNCHANGED.to_owned())].into());
        sources.create(&PostParams::default(), &source).await
    };
    stream::iter(0..count).map(create).buffer_unordered(CREATES).try_collect::<Vec<_>>().await?;
    Ok(())
}

type Children = BoxStream<'static, kube::Result<WatchEvent<Secret>>>;

async fn watch(children: &Api<Secret>) -> Result<Children> {
    let version = children.list(&ListParams::default().limit(1)).await?.metadata.resource_version;
    let parameters = WatchParams::default().timeout(290);
    Ok(children.watch(&parameters, &version.context("a version")?).await?.boxed())
}

async fn next(children: &mut Children) -> Result<Secret> {
    loop {
        let event =
            tokio::time::timeout(LIMIT, children.next()).await.context("a child was never written")?;
        match event.context("the watch has ended")?? {
            WatchEvent::Added(child) | WatchEvent::Modified(child) => return Ok(child),
            WatchEvent::Bookmark(_) => {}
            event @ (WatchEvent::Deleted(_) | WatchEvent::Error(_)) => bail!("the watch says {event:?}"),
        }
    }
}

/// How many children are made a second, from the first to the last.
async fn first_children(children: &mut Children, count: usize) -> Result<f64> {
    ensure!(count > 1, "one source makes no rate");
    next(children).await?;
    let first = Instant::now();
    for _ in 1..count {
        next(children).await?;
    }
    Ok((count - 1) as f64 / first.elapsed().as_secs_f64())
}

/// Changes one source after another, at a steady rate.
async fn change(sources: Api<ConfigMap>, count: usize, rate: u32, changes: usize) -> Result<()> {
    let mut clock = tokio::time::interval(Duration::from_secs(1) / rate);
    let ticks = stream::poll_fn(|context| clock.poll_tick(context).map(Some)).take(changes).enumerate();
    let change = |(number, _)| {
        let sources = sources.clone();
        async move {
            let patch = Patch::Merge(json!({"data": {AT: now().to_string()}}));
            sources.patch(&name(number % count), &PatchParams::default(), &patch).await
        }
    };
    ticks.map(change).buffer_unordered(256).try_collect::<Vec<_>>().await?;
    Ok(())
}

/// Milliseconds from a change until the reconcile was called and until the child was seen.
#[derive(Default)]
struct Times {
    reconciled: Vec<f64>,
    seen: Vec<f64>,
}

impl Times {
    fn note(&mut self, child: &Secret) {
        let stamp = |field: &str| {
            let bytes = &child.data.as_ref()?.get(field)?.0;
            std::str::from_utf8(bytes).ok()?.parse::<u128>().ok()
        };
        // A child of a source that was not changed yet may come again.
        if let (Some(at), Some(reconciled)) = (stamp(AT), stamp(RECONCILED))
            && at > 0
        {
            let since = |time: u128| time.saturating_sub(at) as f64 / 1e6;
            self.reconciled.push(since(reconciled));
            self.seen.push(since(now()));
        }
    }

    fn report(&self, reconciles: f64) -> Value {
        json!({
            "reconciles_per_second": reconciles,
            "reconciled_p50_ms": at(&self.reconciled, 0.5),
            "reconciled_p99_ms": at(&self.reconciled, 0.99),
            "seen_p50_ms": at(&self.seen, 0.5),
            "seen_p99_ms": at(&self.seen, 0.99),
        })
    }
}

/// The time that this share of all does not exceed.
fn at(times: &[f64], share: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}
