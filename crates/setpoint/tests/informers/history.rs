//! A small server with a history: objects come and go, watches follow, old versions are forgotten, and
//! requests and watches break when told to.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::script::{Format, object_of, status};

type Chunk = Result<Frame<Bytes>, std::io::Error>;
type Stream = StreamBody<futures::stream::BoxStream<'static, Chunk>>;

/// Name → (uid, version).
pub(crate) type Objects = BTreeMap<String, (String, u64)>;

/// What happens to the next request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Refused,
    TooMany,
    Internal,
    Html,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) version: u64,
    pub(crate) objects: Objects,
    /// What the server had at each version.
    pub(crate) past: BTreeMap<u64, Objects>,
    events: Vec<(u64, &'static str, Value)>,
    forgotten: u64,
    watches: Vec<mpsc::UnboundedSender<Chunk>>,
    pub(crate) faults: Vec<Fault>,
    /// Say "too old" in the stream instead of at the start of a watch.
    pub(crate) expire_in_stream: bool,
    uids: u64,
    /// What it was asked for.
    format: Format,
    /// Every request: when and what.
    pub(crate) log: Vec<String>,
}

#[derive(Clone)]
pub(crate) struct History {
    state: Arc<Mutex<State>>,
    start: Instant,
}

impl History {
    pub(crate) fn new() -> (History, Client) {
        let state = State { version: 1, past: [(1, Objects::new())].into(), ..State::default() };
        let history = History { state: Arc::new(Mutex::new(state)), start: Instant::now() };
        let server = history.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = server.answer(request.uri(), request.headers());
            async move { answer }
        });
        (history, Client::new(service, "default"))
    }

    pub(crate) fn with<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        change(&mut self.state.lock())
    }

    fn answer(&self, uri: &http::Uri, headers: &http::HeaderMap) -> Result<Response<Stream>, std::io::Error> {
        let state = &mut *self.state.lock();
        state.format = Format::asked(headers);
        let format = state.format;
        state.log.push(format!("{:?} {uri}", self.start.elapsed()));
        let query: BTreeMap<&str, &str> =
            uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('=')).collect();
        let refuse = |code, reason| Ok(answer(code, format, &status(code, reason, "as planned")));
        match state.faults.pop() {
            Some(Fault::Refused) => return Err(std::io::Error::other("refused as planned")),
            Some(Fault::TooMany) => return refuse(429, "TooManyRequests"),
            Some(Fault::Internal) => return refuse(500, "InternalError"),
            Some(Fault::Html) => return Ok(respond(200, "text/html", "<html>not today</html>\n")),
            None => {}
        }
        let version = query.get("resourceVersion").and_then(|version| version.parse::<u64>().ok());
        if !query.contains_key("watch") {
            return Ok(state.list(&query));
        }
        let is_streaming = query.contains_key("sendInitialEvents");
        let is_too_old = !is_streaming && version.is_some_and(|version| version < state.forgotten);
        if is_too_old && !state.expire_in_stream {
            return refuse(410, "Expired");
        }
        let (sender, mut receiver) = mpsc::unbounded_channel();
        if is_too_old {
            send(format, &sender, "ERROR", &status(410, "Expired", "too old, as planned"));
        } else if is_streaming {
            state.objects.iter().for_each(|(name, (uid, version))| {
                send(format, &sender, "ADDED", &object_of(name, uid, *version));
            });
            let annotations = json!({"k8s.io/initial-events-end": "true"});
            let metadata = json!({"resourceVersion": state.version.to_string(), "annotations": annotations});
            send(format, &sender, "BOOKMARK", &json!({"metadata": metadata}));
            state.watches.push(sender);
        } else {
            let from = version.unwrap_or_default();
            state
                .events
                .iter()
                .filter(|(at, ..)| *at > from)
                .for_each(|(_, kind, object)| send(format, &sender, kind, object));
            state.watches.push(sender);
        }
        let body = futures::stream::poll_fn(move |context| receiver.poll_recv(context));
        let answer = Response::builder().header("content-type", format.content_type());
        Ok(answer.body(StreamBody::new(Box::pin(body) as _)).unwrap())
    }
}

impl State {
    /// Pages are of the present state; a token names the version that its list began at.
    fn list(&self, query: &BTreeMap<&str, &str>) -> Response<Stream> {
        let limit = query.get("limit").and_then(|limit| limit.parse::<usize>().ok());
        let token = query.get("continue").and_then(|token| token.split_once('-'));
        let (version, skip) = match token {
            Some((version, skip)) => (version.parse().unwrap(), skip.parse().unwrap()),
            None => (self.version, 0),
        };
        if version < self.forgotten {
            return answer(410, self.format, &status(410, "Expired", "the page is gone"));
        }
        let all = &self.past[&version];
        let take = limit.unwrap_or(usize::MAX);
        let page: Vec<Value> = all
            .iter()
            .skip(skip)
            .take(take)
            .map(|(name, (uid, version))| object_of(name, uid, *version))
            .collect();
        let next = (skip + page.len() < all.len()).then(|| format!("{version}-{}", skip + page.len()));
        let metadata = json!({"resourceVersion": version.to_string(), "continue": next});
        let list = json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": page});
        answer(200, self.format, &list)
    }

    /// Creates or updates.
    pub(crate) fn put(&mut self, name: &str) {
        self.version += 1;
        let (kind, uid) = match self.objects.get(name) {
            Some((uid, _)) => ("MODIFIED", uid.clone()),
            None => {
                self.uids += 1;
                ("ADDED", format!("uid-{}", self.uids))
            }
        };
        self.objects.insert(name.to_owned(), (uid.clone(), self.version));
        self.record(kind, object_of(name, &uid, self.version));
    }

    pub(crate) fn delete(&mut self, name: &str) {
        if let Some((uid, _)) = self.objects.remove(name) {
            self.version += 1;
            self.record("DELETED", object_of(name, &uid, self.version));
        }
    }

    fn record(&mut self, kind: &'static str, object: Value) {
        self.past.insert(self.version, self.objects.clone());
        self.watches.retain(|watch| !watch.is_closed());
        self.watches.iter().for_each(|watch| send(self.format, watch, kind, &object));
        self.events.push((self.version, kind, object));
    }

    pub(crate) fn bookmark(&self) {
        let bookmark = json!({"metadata": {"resourceVersion": self.version.to_string()}});
        self.watches.iter().for_each(|watch| send(self.format, watch, "BOOKMARK", &bookmark));
    }

    /// Forgets everything before now.
    pub(crate) fn compact(&mut self) {
        self.forgotten = self.version;
        self.events.clear();
    }

    /// Ends every watch: in good order, by a reset, or in the middle of a line.
    pub(crate) fn break_watches(&mut self, how: u64) {
        for watch in self.watches.drain(..) {
            let _ = match how {
                0 => Ok(()),
                1 => watch.send(Err(std::io::Error::other("reset as planned"))),
                _ => watch.send(Ok(Frame::data(Bytes::from_static(b"{\"type\":\"ADDED\",\"obj")))),
            };
        }
    }

    pub(crate) fn expire_watches(&mut self) {
        for watch in self.watches.drain(..) {
            send(self.format, &watch, "ERROR", &status(410, "Expired", "too old, as planned"));
        }
    }
}

fn answer(code: u16, format: Format, object: &Value) -> Response<Stream> {
    respond(code, format.content_type(), format.body(object))
}

fn respond(code: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Response<Stream> {
    let chunk: Chunk = Ok(Frame::data(Bytes::from(body.into())));
    let body: futures::stream::BoxStream<'static, Chunk> = Box::pin(futures::stream::iter([chunk]));
    let answer = Response::builder().status(code).header("content-type", content_type);
    answer.body(StreamBody::new(body)).unwrap()
}

fn send(format: Format, watch: &mpsc::UnboundedSender<Chunk>, kind: &str, object: &Value) {
    let _ = watch.send(Ok(Frame::data(Bytes::from(format.event(kind, object)))));
}
