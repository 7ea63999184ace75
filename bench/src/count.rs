//! Work for counting instructions: `cargo xtask counts` runs each case twice under callgrind, for `n` and for
//! `2 n` operations; the difference is what `n` operations take, without everything around them.
//!
//! All on one thread and without a network, so that the counts hardly differ between runs.

#[cfg(feature = "apiserver")]
mod watch;

use std::convert::Infallible;
use std::hint::black_box;

use anyhow::{Result, ensure};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use http::header::CONTENT_TYPE;
use http::{Request, Response};
use http_body_util::StreamBody;
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use setpoint::facts::Subscription;
use setpoint::{Facts, HandlerFns, Held, ObjectKey, ReflectorConfig, Scope, SharedInformer, WorkQueue};

use crate::pods::PodText;
use crate::replay::{Format, last_version};

#[derive(clap::ValueEnum, Clone, Copy)]
pub(crate) enum Case {
    /// A Pod of a first list, until it is in the cache and a handler was told.
    List,
    /// A change of a Pod, until it is in the cache and a handler was told.
    Event,
    /// The same in protobuf.
    ProtobufEvent,
    /// The same in a compact cache.
    CompactEvent,
    /// The same as the first, and somebody listens to the facts.
    HeardEvent,
    /// The same, and somebody has listened and ceased.
    CeasedEvent,
    /// A Pod of the cache that is read for the first time: its decoding.
    Decode,
    /// The same in protobuf.
    ProtobufDecode,
    /// A key that is added to a work queue, taken and done.
    Queue,
    /// The same in a queue that would tell its facts; nobody listens.
    UnheardQueue,
    /// The same, and somebody listens.
    HeardQueue,
    /// The same, and somebody has listened and ceased.
    CeasedQueue,
    /// A change of a ConfigMap in an API server, until eight watchers have its event.
    #[cfg(feature = "apiserver")]
    Change,
    /// A watch that is told of 64 Pods, in JSON.
    #[cfg(feature = "apiserver")]
    Watch,
    /// The same in protobuf.
    #[cfg(feature = "apiserver")]
    WatchProtobuf,
}

/// How many Pods there are when events come.
const PODS: usize = 64;
/// How many Pods there are to be decoded.
const DECODED: usize = 400;

pub(crate) async fn run(case: Case, n: usize) -> Result<()> {
    match case {
        Case::List => drop(informer(Format::Json, n, 0, false, &Facts::default()).await?),
        Case::Event => drop(informer(Format::Json, PODS, n, false, &Facts::default()).await?),
        Case::ProtobufEvent => drop(informer(Format::Protobuf, PODS, n, false, &Facts::default()).await?),
        Case::CompactEvent => drop(informer(Format::Json, 1000, n, true, &Facts::default()).await?),
        Case::HeardEvent => {
            let facts = Facts::default();
            let listening = tokio::spawn(hear(facts.subscribe()));
            drop(informer(Format::Json, PODS, n, false, &facts).await?);
            listening.abort();
        }
        Case::CeasedEvent => {
            let facts = Facts::default();
            drop(facts.subscribe());
            drop(informer(Format::Json, PODS, n, false, &facts).await?);
        }
        Case::Decode => decode(Format::Json, n).await?,
        Case::ProtobufDecode => decode(Format::Protobuf, n).await?,
        #[cfg(feature = "apiserver")]
        Case::Change => watch::changes(n).await?,
        #[cfg(feature = "apiserver")]
        Case::Watch => watch::watches(n, "application/json").await?,
        #[cfg(feature = "apiserver")]
        Case::WatchProtobuf => watch::watches(n, "application/vnd.kubernetes.protobuf;stream=watch").await?,
        Case::Queue => work(&WorkQueue::new(), n, || {}).await,
        Case::UnheardQueue => {
            let facts = Facts::default();
            work(&WorkQueue::builder().facts("bench", &facts).build(), n, || {}).await;
        }
        Case::HeardQueue => {
            let facts = Facts::default();
            let mut heard = facts.subscribe();
            let queue = WorkQueue::builder().facts("bench", &facts).build();
            work(&queue, n, || while black_box(heard.try_next()).is_some() {}).await;
        }
        Case::CeasedQueue => {
            let facts = Facts::default();
            let heard = facts.subscribe();
            let queue = WorkQueue::builder().facts("bench", &facts).build();
            drop(heard);
            work(&queue, n, || {}).await;
        }
    }
    Ok(())
}

/// Adds, takes and does keys; `then` is called after each.
async fn work(queue: &WorkQueue<ObjectKey>, n: usize, mut then: impl FnMut()) {
    let keys: Vec<_> = (0..1000).map(|n| ObjectKey::from(format!("default/object-{n}").as_str())).collect();
    for n in 0..n {
        queue.add(keys[n % keys.len()].clone());
        if let Some(item) = queue.get().await {
            item.done();
        }
        then();
    }
}

/// Takes every fact, forever.
async fn hear(mut facts: Subscription) {
    while black_box(facts.next().await).is_some() {}
}

async fn decode(format: Format, n: usize) -> Result<()> {
    let lister = informer(format, DECODED, 0, false, &Facts::default()).await?.lister();
    let keys = lister.keys();
    ensure!(n <= keys.len(), "there are only {} Pods", keys.len());
    keys[..n].iter().for_each(|key| drop(black_box(lister.get(key))));
    Ok(())
}

/// An informer that has seen `pods` Pods and `events` changes.
async fn informer(
    format: Format,
    pods: usize,
    events: usize,
    compact: bool,
    facts: &Facts,
) -> Result<SharedInformer<Pod>> {
    let service = tower::service_fn(move |request: Request<Body>| async move {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let chunks: BoxStream<'static, Bytes> = match is_watch {
            true => {
                let pods: Vec<_> = (0..PODS).map(|n| format.pod(n)).collect();
                stream::iter((0..events).map(move |n| event(format, n, &pods)))
                    .chain(stream::pending())
                    .boxed()
            }
            false if format == Format::Protobuf => {
                let pods: Vec<_> = (0..pods).map(|n| format.pod(n)).collect();
                stream::iter([Bytes::from(format.list((last_version(0) - DECODED as u64..).zip(&pods), ""))])
                    .boxed()
            }
            false => stream::iter(list(pods)).boxed(),
        };
        let body = StreamBody::new(chunks.map(|chunk| Ok::<_, Infallible>(http_body::Frame::data(chunk))));
        let response = Response::builder().header(CONTENT_TYPE, format.content_type(is_watch)).body(body);
        Ok::<_, Infallible>(response.expect("a content type is a header"))
    });
    let client = kube::Client::new(service, "default");
    let protobuf = format == Format::Protobuf;
    let config = ReflectorConfig { streaming: false, protobuf, ..ReflectorConfig::default() };
    let builder = SharedInformer::<Pod>::builder(client).config(config).facts(facts);
    let informer = if compact { builder.compact().build() } else { builder.build() };
    let handler = informer.add_handler(HandlerFns::new().on_update(|_, new: &Held<Pod>| {
        black_box(new.key());
    }));
    informer.start();
    handler.wait_for_sync().await;
    informer
        .wait_for_version(&Scope::Cluster, &last_version(events as u64).to_string().as_str().into())
        .await;
    while handler.backlog() > 0 {
        tokio::task::yield_now().await;
    }
    Ok(informer)
}

fn list(pods: usize) -> impl Iterator<Item = Bytes> {
    let head = format!(
        r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{}"}},"items":["#,
        last_version(0)
    );
    let texts: Vec<String> = texts().collect();
    let item = move |n: usize| {
        // Each in a namespace of its own: making a Pod takes longer than what is counted.
        let text = texts[n % PODS].replacen("\"namespace\":\"", &format!("\"namespace\":\"n{n}-"), 1);
        Bytes::from(if n > 0 { format!(",{text}") } else { text })
    };
    std::iter::once(Bytes::from(head)).chain((0..pods).map(item)).chain([Bytes::from_static(b"]}")])
}

/// The texts of [`PODS`] Pods.
fn texts() -> impl Iterator<Item = String> {
    (0..PODS).map(|n| {
        let mut text = Vec::new();
        PodText::new(n).write(n as u64 + 1, &mut text);
        String::from_utf8(text).expect("JSON is text")
    })
}

fn event(format: Format, n: usize, pods: &[PodText]) -> Bytes {
    let mut event = Vec::new();
    format.event(&mut event, "MODIFIED", last_version(n as u64 + 1), &pods[n % pods.len()]);
    event.into()
}
