//! What is between a controller and its server, to play with: pauses, slow motion, watches that are cut, lost answers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::header::{HeaderValue, USER_AGENT};
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::body::Frame;
use setpoint::kube::Client;
use setpoint::kube::client::Body;
use setpoint_apiserver::{ApiServer, User};
use setpoint_env::watch;
use tokio::sync::Semaphore;
use tower::{BoxError, ServiceExt, service_fn};

/// What a server says when it has forgotten the past.
const EXPIRED: &str = "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\"too old resource version\",\"reason\":\"Expired\",\"code\":410}}\n";

/// Clones are the same gate.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Inner>);

struct Inner {
    is_paused: watch::Sender<bool>,
    /// How many more messages may pass while it is paused.
    steps: Semaphore,
    slow_ms: AtomicU64,
    /// How often watches were cut, and how.
    cuts: watch::Sender<(u64, Cut)>,
    /// How many answers to writes are to be lost.
    to_lose: AtomicUsize,
    passed: AtomicU64,
}

/// How a watch ends.
#[derive(Clone, Copy, PartialEq)]
enum Cut {
    Reset,
    Expired,
}

type Data = Result<Frame<Bytes>, BoxError>;

impl Gate {
    pub(crate) fn new() -> Gate {
        Gate(Arc::new(Inner {
            is_paused: watch::Sender::new(false),
            steps: Semaphore::new(0),
            slow_ms: AtomicU64::new(0),
            cuts: watch::Sender::new((0, Cut::Reset)),
            to_lose: AtomicUsize::new(0),
            passed: AtomicU64::new(0),
        }))
    }

    pub(crate) fn is_paused(&self) -> bool {
        *self.0.is_paused.borrow()
    }

    pub(crate) fn pause(&self, is_paused: bool) {
        self.0.is_paused.send_replace(is_paused);
        // Steps that nobody has taken are not for the next pause.
        self.0.steps.forget_permits(usize::MAX);
    }

    /// Lets one message pass.
    pub(crate) fn step(&self) {
        self.0.steps.add_permits(1);
    }

    pub(crate) fn slow_ms(&self) -> u64 {
        self.0.slow_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn slow(&self, ms: u64) {
        self.0.slow_ms.store(ms, Ordering::Relaxed);
    }

    /// How many messages have passed.
    pub(crate) fn passed(&self) -> u64 {
        self.0.passed.load(Ordering::Relaxed)
    }

    pub(crate) fn cut_watches(&self) {
        self.0.cuts.send_modify(|(count, cut)| (*count, *cut) = (count.wrapping_add(1), Cut::Reset));
    }

    pub(crate) fn expire_watches(&self) {
        self.0.cuts.send_modify(|(count, cut)| (*count, *cut) = (count.wrapping_add(1), Cut::Expired));
    }

    pub(crate) fn lose_an_answer(&self) {
        self.0.to_lose.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn to_lose(&self) -> usize {
        self.0.to_lose.load(Ordering::Relaxed)
    }

    /// A client whose requests and watches go through this gate.
    pub(crate) fn client(&self, server: &ApiServer) -> Client {
        let (gate, service) = (self.clone(), server.as_user(User::admin()));
        let gated = service_fn(move |mut request: Request<Body>| {
            // Who wrote which field is told by this.
            request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("foo-controller"));
            let (gate, service) = (gate.clone(), service.clone());
            async move {
                gate.pass().await;
                let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
                let is_write = !matches!(*request.method(), Method::GET | Method::HEAD);
                let answer = service.oneshot(request).await?;
                if is_write && gate.loses() {
                    return Err(reset("the answer was lost on its way; what was written is written"));
                }
                let (head, body) = answer.into_parts();
                let frames = BodyStream::new(body).map(|frame| frame.map_err(BoxError::from));
                let body = match is_watch {
                    true => StreamBody::new(gate.stream(frames)).boxed_unsync(),
                    false => StreamBody::new(frames).boxed_unsync(),
                };
                Ok::<Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError>(Response::from_parts(head, body))
            }
        });
        Client::new(gated, "default")
    }

    /// Waits while it is paused, unless a step is taken; then as long as slow motion wants.
    async fn pass(&self) {
        let mut is_paused = self.0.is_paused.subscribe();
        let mut is_stepped = false;
        while *is_paused.borrow_and_update() && !is_stepped {
            tokio::select! {
                biased;
                Ok(step) = self.0.steps.acquire() => {
                    step.forget();
                    is_stepped = true;
                }
                _ = is_paused.changed() => {}
            }
        }
        // A step is taken while time may stand still: it waits for nothing.
        if !is_stepped {
            tokio::time::sleep(Duration::from_millis(self.slow_ms())).await;
        }
        self.0.passed.fetch_add(1, Ordering::Relaxed);
    }

    fn loses(&self) -> bool {
        let one_less = |count: usize| count.checked_sub(1);
        self.0.to_lose.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }

    /// The frames of a watch, each when it may pass, until the watch is cut.
    fn stream(self, frames: impl Stream<Item = Data> + Send + 'static) -> impl Stream<Item = Data> + Send {
        let cuts = self.0.cuts.subscribe();
        let state = (self, Box::pin(frames), cuts, false);
        futures::stream::unfold(state, async |(gate, mut frames, mut cuts, is_over)| {
            if is_over {
                return None;
            }
            let next = async {
                let frame = frames.next().await;
                gate.pass().await;
                frame
            };
            let frame = tokio::select! {
                biased;
                Ok(()) = cuts.changed() => None,
                frame = next => Some(frame?),
            };
            let (frame, is_over) = match frame {
                Some(frame) => (frame, false),
                None if cuts.borrow().1 == Cut::Expired => {
                    (Ok(Frame::data(Bytes::from_static(EXPIRED.as_bytes()))), true)
                }
                None => (Err(reset("the connection was cut")), true),
            };
            Some((frame, (gate, frames, cuts, is_over)))
        })
    }
}

fn reset(why: &'static str) -> BoxError {
    Box::new(io::Error::new(io::ErrorKind::ConnectionReset, why))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;
    use setpoint::kube::Api;
    use setpoint::kube::api::{PostParams, WatchEvent, WatchParams};

    use super::*;

    fn map(name: &str) -> ConfigMap {
        serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
    }

    #[tokio::test]
    async fn an_answer_is_lost_once_and_what_was_written_is_written() {
        let (server, gate) = (ApiServer::builder().build(), Gate::new());
        let maps: Api<ConfigMap> = Api::default_namespaced(gate.client(&server));
        gate.lose_an_answer();
        assert!(maps.create(&PostParams::default(), &map("a")).await.is_err());
        assert!(maps.get("a").await.is_ok());
        assert!(maps.create(&PostParams::default(), &map("b")).await.is_ok());
    }

    #[tokio::test]
    async fn a_pause_holds_requests_back_and_a_step_lets_one_pass() {
        let (server, gate) = (ApiServer::builder().build(), Gate::new());
        let maps: Api<ConfigMap> = Api::default_namespaced(gate.client(&server));
        gate.pause(true);
        let soon = Duration::from_millis(100);
        assert!(tokio::time::timeout(soon, maps.get_opt("a")).await.is_err());
        gate.step();
        assert!(maps.get_opt("a").await.is_ok());
        assert!(tokio::time::timeout(soon, maps.get_opt("a")).await.is_err(), "one step is one message");
        gate.pause(false);
        assert!(maps.get_opt("a").await.is_ok());
    }

    #[tokio::test]
    async fn a_watch_is_cut_or_told_that_the_past_is_forgotten() {
        let (server, gate) = (ApiServer::builder().build(), Gate::new());
        let maps: Api<ConfigMap> = Api::default_namespaced(gate.client(&server));
        for is_expired in [false, true] {
            let mut events = maps.watch(&WatchParams::default(), "0").await.unwrap().boxed();
            while tokio::time::timeout(Duration::from_millis(50), events.next()).await.is_ok() {}
            if is_expired {
                gate.expire_watches()
            } else {
                gate.cut_watches()
            };
            match events.next().await {
                Some(Ok(WatchEvent::Error(status))) => {
                    assert!(is_expired && status.code == 410, "{status:?}")
                }
                Some(Err(_)) | None => assert!(!is_expired),
                other => panic!("{other:?}"),
            }
        }
    }
}
