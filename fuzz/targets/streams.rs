//! What a server may send to an informer: lists and watches in JSON and protobuf. Wherever the bytes are cut, the cache and
//! what is reported are the same; and what a plain decoder makes of a list is what the cache has.
//!
//! The first byte says what follows: `l` a list, `w` the events of a watch, in capitals in protobuf. The second byte seeds
//! where it is cut. With `e` or `E`, pairs of a length and as many bytes follow, and each is the object of an event.

#![no_main]

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::client::Body;
use libfuzzer_sys::fuzz_target;
use parking_lot::Mutex;
use serde_json::Value;
use setpoint::{Env, ReflectorConfig, ReflectorFailure, SharedInformer};
use setpoint_fuzz::{JSON, Lab, PROTOBUF, start};
use setpoint_kinds::protobuf::{self, Envelope};
use tokio::sync::Notify;

fuzz_target!(|data: &[u8]| start(data, case));

/// What an answer leaves behind.
#[derive(Debug, PartialEq)]
struct Outcome {
    cached: Vec<Value>,
    reports: Vec<String>,
}

fn case(lab: &Lab, input: &[u8]) {
    let Some(([form, seed], rest)) = input.split_first_chunk::<2>() else { return };
    let media = if form.is_ascii_uppercase() { PROTOBUF } else { JSON };
    let (is_list, body) = match form.to_ascii_lowercase() {
        b'l' => (true, rest.to_vec()),
        b'w' => (false, rest.to_vec()),
        b'e' => (false, events(media, rest)),
        _ => return,
    };
    let whole = lab.block_on(outcome(is_list, media, vec![Bytes::from(body.clone())]));
    for most in [1, 7, 64] {
        let cut = lab.block_on(outcome(is_list, media, cut(&body, *seed, most)));
        assert_eq!(whole, cut, "whole, and in pieces of up to {most} bytes");
    }
    if is_list && media == JSON {
        compare(&whole, &body);
    }
}

/// What serde makes of a list that it likes, the informer has.
fn compare(whole: &Outcome, body: &[u8]) {
    let Ok(list) = serde_json::from_slice::<List<Pod>>(body) else { return };
    if list.metadata.resource_version.is_none_or(|version| version.is_empty()) || !whole.reports.is_empty() {
        return;
    }
    let mut expected: Vec<Value> = list.items.iter().map(to_value).collect();
    expected.sort_by_key(ToString::to_string);
    // Of two objects of one name the last counts.
    assert!(whole.cached.iter().all(|pod| expected.contains(pod)), "{expected:?} became {whole:?}");
}

/// The events that these objects make.
fn events(media: &str, mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some((&[kind, length], more)) = rest.split_first_chunk::<2>() {
        let (object, more) = more.split_at(more.len().min(usize::from(length)));
        let kind = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "x"][usize::from(kind) % 6];
        if media == PROTOBUF {
            let mut envelope = Envelope::default();
            (envelope.api_version, envelope.kind, envelope.raw) = ("v1", "Pod", object);
            protobuf::append_event(kind, &envelope.write(), &mut body);
        } else {
            body.extend_from_slice(format!("{{\"type\":{kind:?},\"object\":").as_bytes());
            body.extend(object.iter().filter(|byte| **byte != b'\n'));
            body.extend_from_slice(b"}\n");
        }
        rest = more;
    }
    body
}

/// The body in pieces of up to `most` bytes.
fn cut(body: &[u8], seed: u8, most: usize) -> Vec<Bytes> {
    let (mut pieces, mut rest, mut state) = (Vec::new(), body, u64::from(seed) + 1);
    while !rest.is_empty() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (piece, more) = rest.split_at(rest.len().min((state >> 33) as usize % most + 1));
        pieces.push(Bytes::copy_from_slice(piece));
        rest = more;
    }
    pieces
}

/// What an informer has, and what it has reported, when it asks for the next answer.
async fn outcome(is_list: bool, media: &'static str, body: Vec<Bytes>) -> Outcome {
    let first = Bytes::from_static(
        br#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"10"},"items":[{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"3"}}]}"#,
    );
    let mut answers = VecDeque::new();
    if !is_list {
        answers.push_back((JSON, vec![first]));
    }
    answers.push_back((media, body));
    let (answers, is_done) = (Arc::new(Mutex::new(answers)), Arc::new(Notify::new()));
    let done = Arc::clone(&is_done);
    let service = tower::service_fn(move |_: Request<Body>| {
        let (answer, done) = (answers.lock().pop_front(), Arc::clone(&done));
        async move {
            let Some((media, pieces)) = answer else {
                done.notify_one();
                return std::future::pending().await;
            };
            let frames = pieces.into_iter().map(|piece| Ok::<_, std::io::Error>(Frame::data(piece)));
            let body = StreamBody::new(futures::stream::iter(frames));
            Ok::<_, std::io::Error>(
                Response::builder().header("content-type", media).body(body).expect("it is one"),
            )
        }
    });
    let reports = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&reports);
    let informer = SharedInformer::<Pod>::builder(Client::new(service, "default"))
        .env(Env::seeded(1))
        .config(ReflectorConfig { streaming: false, protobuf: true, ..ReflectorConfig::default() })
        .on_error(move |error| told.lock().push(words(&error.failure)))
        .build();
    informer.start();
    is_done.notified().await;
    // What was decoded before is on its way to the cache.
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    let mut cached: Vec<Value> = informer.lister().list().iter().map(|pod| to_value(pod)).collect();
    cached.sort_by_key(ToString::to_string);
    let reports = reports.lock().clone();
    Outcome { cached, reports }
}

/// What went wrong, without the beginning of what came: that is quoted as it came.
fn words(failure: &ReflectorFailure) -> String {
    match failure {
        ReflectorFailure::Malformed { expected, .. } => format!("not {expected}"),
        failure => failure.to_string(),
    }
}

fn to_value(pod: &Pod) -> Value {
    let mut pod = pod.clone();
    // A cache drops them.
    pod.metadata.managed_fields = None;
    serde_json::to_value(pod).expect("a pod can be written")
}
