//! A server that says exactly what a test tells it to, in the form that it is asked for, and shows what it is asked.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use setpoint::{Env, InformerBuilder, Metrics, ReflectorConfig, SharedInformer};
use setpoint_kinds::protobuf;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

type Chunk = Result<Frame<Bytes>, std::io::Error>;
type Answer = Result<Response<StreamBody<futures::stream::BoxStream<'static, Chunk>>>, std::io::Error>;

/// The error that a body panics at instead of handing it on.
const PANIC: &str = "panic";

/// The test's end of the server.
pub(crate) struct Server {
    requests: mpsc::UnboundedReceiver<Asked>,
}

/// A request that waits for its answer.
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) headers: http::HeaderMap,
    pub(crate) at: Instant,
    format: Format,
    answer: oneshot::Sender<Answer>,
}

/// What a server speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    #[default]
    Json,
    Protobuf,
}

impl Format {
    /// What a request asks for.
    pub(crate) fn asked(headers: &http::HeaderMap) -> Format {
        match headers["accept"].to_str().unwrap().starts_with(protobuf::MEDIA_TYPE) {
            true => Format::Protobuf,
            false => Format::Json,
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Format::Json => "application/json",
            Format::Protobuf => protobuf::MEDIA_TYPE,
        }
    }

    pub(crate) fn body(self, object: &Value) -> Vec<u8> {
        match self {
            Format::Json => object.to_string().into_bytes(),
            Format::Protobuf => {
                let mut object = object.clone();
                if object["kind"].is_null() || object["apiVersion"].is_null() {
                    (object["apiVersion"], object["kind"]) = (json!("v1"), json!("ConfigMap"));
                }
                protobuf::encode(&object).unwrap()
            }
        }
    }

    pub(crate) fn event(self, kind: &str, object: &Value) -> Vec<u8> {
        match self {
            Format::Json => format!("{}\n", json!({"type": kind, "object": object})).into_bytes(),
            Format::Protobuf => {
                let mut frame = Vec::new();
                protobuf::append_event(kind, &self.body(object), &mut frame);
                frame
            }
        }
    }
}

/// The server's end of a watch.
pub(crate) struct Watch {
    format: Format,
    chunks: mpsc::UnboundedSender<Chunk>,
}

pub(crate) fn server() -> (Client, Server) {
    server_of(Format::asked)
}

/// A server that knows JSON only, whatever it is asked for.
pub(crate) fn json_server() -> (Client, Server) {
    server_of(|_| Format::Json)
}

fn server_of(format: fn(&http::HeaderMap) -> Format) -> (Client, Server) {
    let (sender, requests) = mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (answer, answered) = oneshot::channel();
        let query = request.uri().query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let decode =
            |text: &str| percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned();
        let query = query.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let asked = Asked {
            path: request.uri().path().to_owned(),
            query: query.map(|(name, value)| (decode(name), decode(value))).collect(),
            headers: request.headers().clone(),
            at: Instant::now(),
            format: format(request.headers()),
            answer,
        };
        let _ = sender.send(asked);
        async move {
            answered.await.unwrap_or_else(|_| Err(std::io::Error::other("connection refused by the script")))
        }
    });
    (Client::new(service, "default"), Server { requests })
}

impl Server {
    /// The next request. Virtual time passes until it comes.
    pub(crate) async fn next(&mut self) -> Asked {
        let next = timeout(Duration::from_secs(3600), self.requests.recv()).await;
        next.expect("a request within an hour").expect("a client")
    }

    /// Nothing is asked for this long.
    pub(crate) async fn quiet_for(&mut self, time: Duration) {
        if let Ok(Some(asked)) = timeout(time, self.requests.recv()).await {
            panic!("asked for {} {:?}", asked.path, asked.query);
        }
    }
}

impl Asked {
    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str)
    }

    pub(crate) fn is_watch(&self) -> bool {
        self.param("watch") == Some("true")
    }

    pub(crate) fn is_streaming_list(&self) -> bool {
        self.is_watch() && self.param("sendInitialEvents") == Some("true")
    }

    /// Answers with these bytes.
    pub(crate) fn answer(self, code: u16, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) {
        let chunk: Chunk = Ok(Frame::data(Bytes::from(body.into())));
        let body: futures::stream::BoxStream<'static, Chunk> = Box::pin(futures::stream::iter([chunk]));
        let mut answer = Response::builder().status(StatusCode::from_u16(code).unwrap());
        for (name, value) in headers {
            answer = answer.header(*name, *value);
        }
        let _ = self.answer.send(Ok(answer.body(StreamBody::new(body)).unwrap()));
    }

    /// Answers with this object.
    pub(crate) fn object(self, body: &Value) {
        let format = self.format;
        self.answer(200, &[("content-type", format.content_type())], format.body(body));
    }

    pub(crate) fn list(self, version: &str, items: &[Value]) {
        self.object(&list(version, items));
    }

    pub(crate) fn fail(self, code: u16, reason: &str, message: &str) {
        let (format, status) = (self.format, status(code, reason, message));
        self.answer(code, &[("content-type", format.content_type())], format.body(&status));
    }

    /// The connection breaks before there is an answer.
    pub(crate) fn refuse(self) {
        drop(self.answer);
    }

    /// Never answers.
    pub(crate) fn hang(self) {
        std::mem::forget(self.answer);
    }

    /// Begins a watch.
    pub(crate) fn watch(self) -> Watch {
        assert!(self.is_watch(), "a watch was asked for, not {:?}", self.query);
        self.in_pieces(200)
    }

    /// Answers with what comes later.
    pub(crate) fn in_pieces(self, code: u16) -> Watch {
        let (chunks, mut receiver) = mpsc::unbounded_channel();
        let body =
            futures::stream::poll_fn(move |context| receiver.poll_recv(context)).inspect(|chunk: &Chunk| {
                assert!(!chunk.as_ref().is_err_and(|error| error.to_string() == PANIC), "as planned");
            });
        let body: futures::stream::BoxStream<'static, Chunk> = Box::pin(body);
        let answer = Response::builder().status(StatusCode::from_u16(code).unwrap());
        let answer = answer.header("content-type", self.format.content_type());
        let _ = self.answer.send(Ok(answer.body(StreamBody::new(body)).unwrap()));
        Watch { format: self.format, chunks }
    }

    /// Answers a streaming list with these objects and goes on as a watch.
    pub(crate) fn stream_list(self, version: &str, items: &[Value]) -> Watch {
        assert!(self.is_streaming_list(), "a streaming list was asked for, not {:?}", self.query);
        let watch = self.watch();
        for item in items {
            watch.event("ADDED", item);
        }
        watch.end_of_list(version);
        watch
    }
}

impl Watch {
    pub(crate) fn raw(&self, bytes: impl Into<Vec<u8>>) {
        let _ = self.chunks.send(Ok(Frame::data(Bytes::from(bytes.into()))));
    }

    pub(crate) fn event(&self, kind: &str, object: &Value) {
        self.raw(self.format.event(kind, object));
    }

    /// Events in one piece.
    pub(crate) fn events<'a>(&self, kind: &str, objects: impl IntoIterator<Item = &'a Value>) {
        let events = objects.into_iter().map(|object| self.format.event(kind, object));
        self.raw(events.collect::<Vec<_>>().concat());
    }

    pub(crate) fn bookmark(&self, version: &str) {
        self.event("BOOKMARK", &json!({"kind": "ConfigMap", "metadata": {"resourceVersion": version}}));
    }

    pub(crate) fn end_of_list(&self, version: &str) {
        let annotations = json!({"k8s.io/initial-events-end": "true"});
        let metadata = json!({"resourceVersion": version, "annotations": annotations});
        self.event("BOOKMARK", &json!({"kind": "ConfigMap", "metadata": metadata}));
    }

    pub(crate) fn error(&self, code: u16, reason: &str, message: &str) {
        self.event("ERROR", &status(code, reason, message));
    }

    /// The connection breaks.
    pub(crate) fn reset(self) {
        let _ = self.chunks.send(Err(std::io::Error::other("reset by the script")));
    }

    /// Whoever reads on panics.
    pub(crate) fn panic(self) {
        let _ = self.chunks.send(Err(std::io::Error::other(PANIC)));
    }

    /// The server ends the watch in good order.
    pub(crate) fn close(self) {}

    /// Whether the client still listens.
    pub(crate) fn is_open(&self) -> bool {
        !self.chunks.is_closed()
    }
}

pub(crate) fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message})
}

pub(crate) fn list(version: &str, items: &[Value]) -> Value {
    json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items})
}

/// A config map in the namespace `default`; its uid is its name.
pub(crate) fn object(name: &str, version: u64) -> Value {
    object_of(name, name, version)
}

pub(crate) fn object_of(name: &str, uid: &str, version: u64) -> Value {
    let version = version.to_string();
    json!({"metadata": {"name": name, "namespace": "default", "uid": uid, "resourceVersion": version}})
}

/// An informer of config maps, on a fixed seed, that caches them in the form that this program tests.
pub(crate) fn builder(client: Client) -> InformerBuilder<ConfigMap> {
    super::form(SharedInformer::<ConfigMap>::builder(client).env(Env::seeded(1)))
}

/// Settings for lists without streaming.
pub(crate) fn plain() -> ReflectorConfig {
    ReflectorConfig { streaming: false, ..ReflectorConfig::default() }
}

/// An informer that lists without streaming, started.
pub(crate) fn start_plain(client: Client) -> SharedInformer<ConfigMap> {
    let informer = builder(client).config(plain()).build();
    informer.start();
    informer
}

/// An informer with the default settings, started; and its metrics.
pub(crate) fn start(client: Client) -> (SharedInformer<ConfigMap>, Metrics) {
    let metrics = Metrics::default();
    let informer = builder(client).metrics(metrics.clone()).build();
    informer.start();
    (informer, metrics)
}

/// Lets every task do what it can without time passing.
pub(crate) async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// What is cached, as `name@version`, ordered by name.
pub(crate) fn cached(informer: &SharedInformer<ConfigMap>) -> Vec<String> {
    let mut objects: Vec<_> = informer.lister().list().iter().map(|object| words(object)).collect();
    objects.sort_unstable();
    objects
}

pub(crate) fn words(object: &ConfigMap) -> String {
    let metadata = &object.metadata;
    format!("{}@{}", metadata.name.as_deref().unwrap(), metadata.resource_version.as_deref().unwrap())
}
