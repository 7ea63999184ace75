//! A server that does what a test says, to try the fault layer without a real one.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::future::{Ready, ready};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use parking_lot::Mutex;
use setpoint_env::Env;
use setpoint_sim::Faults;
use tower::{Layer, Service};

type Body = UnsyncBoxBody<Bytes, Infallible>;

#[derive(Clone, Default)]
pub(crate) struct Scripted {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    committed: Vec<String>,
    watches: Vec<UnboundedSender<Bytes>>,
}

impl Scripted {
    /// A server, the faults before it, and a client called `client` that goes through them.
    pub(crate) fn start() -> (Scripted, Faults, Api<ConfigMap>) {
        Scripted::seeded(0)
    }

    pub(crate) fn seeded(seed: u64) -> (Scripted, Faults, Api<ConfigMap>) {
        let server = Scripted::default();
        let faults = Faults::new(Env::seeded(seed), seed);
        let api = server.client(&faults, "client");
        (server, faults, api)
    }

    pub(crate) fn client(&self, faults: &Faults, name: &str) -> Api<ConfigMap> {
        Api::default_namespaced(Client::new(faults.layer(name).layer(self.clone()), "default"))
    }

    /// What has reached the server, without reads.
    pub(crate) fn committed(&self) -> Vec<String> {
        self.state.lock().committed.clone()
    }

    /// Sends bytes into every open watch.
    pub(crate) fn send(&self, bytes: &str) {
        let bytes = Bytes::from(bytes.to_owned());
        self.state.lock().watches.retain(|watch| watch.unbounded_send(bytes.clone()).is_ok());
    }

    /// Sends the event that the ConfigMap `name` has changed.
    pub(crate) fn event(&self, name: &str) {
        self.send(&line(name));
    }

    /// Ends every open watch.
    pub(crate) fn end(&self) {
        self.state.lock().watches.clear();
    }
}

pub(crate) fn object(name: &str) -> String {
    format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"default","resourceVersion":"7"}}}}"#
    )
}

pub(crate) fn line(name: &str) -> String {
    format!("{{\"type\":\"MODIFIED\",\"object\":{}}}\n", object(name))
}

pub(crate) fn config_map(name: &str) -> ConfigMap {
    serde_json::from_str(&object(name)).unwrap()
}

impl Service<Request<Full<Bytes>>> for Scripted {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        let mut state = self.state.lock();
        let query = request.uri().query().unwrap_or_default();
        if query.contains("watch=true") {
            let (sender, receiver) = unbounded();
            state.watches.push(sender);
            let frames = futures::StreamExt::map(receiver, |bytes| Ok(Frame::data(bytes)));
            return ready(Ok(Response::new(StreamBody::new(frames).boxed_unsync())));
        }
        let path = request.uri().path();
        let body = if request.method() == http::Method::GET && path.ends_with("configmaps") {
            format!(r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{}]}}"#, object("a"))
        } else {
            object("a")
        };
        if request.method() != http::Method::GET {
            state.committed.push(format!("{} {path}", request.method()));
        }
        ready(Ok(Response::new(Full::new(Bytes::from(body)).boxed_unsync())))
    }
}
