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
use http::{Request, Response};
use http_body_util::StreamBody;
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use setpoint::{HandlerFns, Held, ObjectKey, ReflectorConfig, Scope, SharedInformer, WorkQueue};

use crate::pods::PodText;
use crate::replay::last_version;

#[derive(clap::ValueEnum, Clone, Copy)]
pub(crate) enum Case {
    /// A Pod of a first list, until it is in the cache and a handler was told.
    List,
    /// A change of a Pod, until it is in the cache and a handler was told.
    Event,
    /// The same in a compact cache.
    CompactEvent,
    /// A Pod of the cache that is read for the first time: its decoding.
    Decode,
    /// A key that is added to a work queue, taken and done.
    Queue,
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
        Case::List => drop(informer(n, 0, false).await?),
        Case::Event => drop(informer(PODS, n, false).await?),
        Case::CompactEvent => drop(informer(1000, n, true).await?),
        Case::Decode => {
            let lister = informer(DECODED, 0, false).await?.lister();
            let keys = lister.keys();
            ensure!(n <= keys.len(), "there are only {} Pods", keys.len());
            keys[..n].iter().for_each(|key| drop(black_box(lister.get(key))));
        }
        #[cfg(feature = "apiserver")]
        Case::Change => watch::changes(n).await?,
        #[cfg(feature = "apiserver")]
        Case::Watch => watch::watches(n, "application/json").await?,
        #[cfg(feature = "apiserver")]
        Case::WatchProtobuf => watch::watches(n, "application/vnd.kubernetes.protobuf;stream=watch").await?,
        Case::Queue => {
            let queue = WorkQueue::new();
            let keys: Vec<_> =
                (0..1000).map(|n| ObjectKey::from(format!("default/object-{n}").as_str())).collect();
            for n in 0..n {
                queue.add(keys[n % keys.len()].clone());
                if let Some(item) = queue.get().await {
                    item.done();
                }
            }
        }
    }
    Ok(())
}

/// An informer that has seen `pods` Pods and `events` changes.
async fn informer(pods: usize, events: usize, compact: bool) -> Result<SharedInformer<Pod>> {
    let service = tower::service_fn(move |request: Request<Body>| async move {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let chunks: BoxStream<'static, Bytes> = match is_watch {
            true => {
                let pods: Vec<_> = (0..PODS).map(PodText::new).collect();
                stream::iter((0..events).map(move |n| event(n, &pods))).chain(stream::pending()).boxed()
            }
            false => stream::iter(list(pods)).boxed(),
        };
        let body = StreamBody::new(chunks.map(|chunk| Ok::<_, Infallible>(http_body::Frame::data(chunk))));
        Ok::<_, Infallible>(Response::new(body))
    });
    let client = kube::Client::new(service, "default");
    let config = ReflectorConfig { streaming: false, ..ReflectorConfig::default() };
    let builder = SharedInformer::<Pod>::builder(client).config(config);
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

fn event(n: usize, pods: &[PodText]) -> Bytes {
    let mut line = br#"{"type":"MODIFIED","object":"#.to_vec();
    pods[n % pods.len()].write(last_version(n as u64 + 1), &mut line);
    line.extend_from_slice(b"}\n");
    line.into()
}
