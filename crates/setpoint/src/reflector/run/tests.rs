//! A reflector whose fifo nobody drains. (How it lists and watches is tested from outside, in `tests/informers`.)

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::json;
use setpoint_env::Env;

use crate::reflector::{Decoder, Keep, Reflector, ReflectorConfig, ReflectorMetrics, Target};
use crate::{DeltaFifo, Indexer, Metrics, Scope};

type Chunks = BoxStream<'static, Result<Frame<Bytes>, Infallible>>;

const EVENTS: u64 = 200;
const SIZE: usize = 100 << 10;

fn map(version: u64) -> serde_json::Value {
    let metadata =
        json!({"name": "hot", "namespace": "default", "uid": "u", "resourceVersion": version.to_string()});
    json!({"metadata": metadata, "data": {"padding": "x".repeat(SIZE)}})
}

/// Lists one object at version 1; sends 200 changes of it; has forgotten everything when it is asked again.
fn answer(nth: usize) -> Response<StreamBody<Chunks>> {
    let list = |version: u64| {
        let metadata = json!({"resourceVersion": version.to_string()});
        json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": [map(version)]})
            .to_string()
    };
    let event = |version| format!("{}\n", json!({"type": "MODIFIED", "object": map(version)}));
    let (code, body): (u16, BoxStream<'static, String>) = match nth {
        0 => (200, stream::iter([list(1)]).boxed()),
        1 => (200, stream::iter(2..2 + EVENTS).map(event).boxed()),
        2 => (410, stream::iter([json!({"code": 410, "reason": "Expired"}).to_string()]).boxed()),
        3 => (200, stream::iter([list(1000)]).boxed()),
        _ => (200, stream::pending().boxed()),
    };
    let body: Chunks = body.map(|text| Ok(Frame::data(Bytes::from(text)))).boxed();
    Response::builder().status(code).body(StreamBody::new(body)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_reflector_that_is_held_back_reads_no_more_and_loses_nothing() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let service = tower::service_fn(move |_: Request<Body>| {
        let nth = count.fetch_add(1, Ordering::Relaxed);
        async move { Ok::<_, Infallible>(answer(nth)) }
    });
    let target = Target {
        resource: "configmaps".to_owned(),
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        path: "/api/v1/configmaps".to_owned(),
        scope: Scope::Cluster,
        label_selector: None,
        field_selector: None,
        metadata_only: false,
        protobuf: false,
        again: Arc::default(),
    };
    let (indexer, metrics) = (Arc::new(Indexer::<ConfigMap>::default()), Metrics::default());
    let bound = 1 << 20;
    let fifo = Arc::new(DeltaFifo::new(indexer.clone(), Scope::Cluster, 4096).most_bytes(bound));
    let config = ReflectorConfig { streaming: false, ..ReflectorConfig::default() };
    let env = Env::seeded(1);
    let reflector = Arc::new(Reflector {
        client: Client::new(service, "default"),
        metrics: ReflectorMetrics::new(metrics.clone(), env.clone(), &target),
        target,
        decoder: Decoder::new(false, Keep::Lazy, None, Arc::new(|map: ConfigMap| map)),
        indexer: indexer.clone(),
        fifo: fifo.clone(),
        config,
        env: env.clone(),
        facts: crate::Facts::default(),
        cache: 1,
        on_error: None,
        trouble: Arc::new(Mutex::new(None)),
    });
    let _running = env.spawn(reflector.run());
    let received = || {
        let labels = [("name", "configmaps"), ("namespace", "")];
        metrics.value("informer_received_bytes_total", &labels).unwrap() as usize
    };
    tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
    assert_eq!(fifo.len(), 1, "one key");
    // Beside what waits in the fifo, a few blocks are being decoded.
    assert!((bound..bound + (1 << 20)).contains(&received()), "{}", received());
    assert_eq!(asked.load(Ordering::Relaxed), 2, "the watch is still open");

    let mut seen = Vec::new();
    while seen.last() != Some(&1000) {
        let batch = fifo.drain().await;
        for (_, deltas) in batch.deltas() {
            seen.extend(deltas.iter().map(|delta| {
                let object = delta.object().expect("nothing is deleted");
                object.version().unwrap().to_string().parse::<u64>().unwrap()
            }));
        }
    }
    let expected: Vec<u64> = (1..2 + EVENTS).chain([1000]).collect();
    assert_eq!(seen, expected, "every change, then the list that a 410 led to");
}
