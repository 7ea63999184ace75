//! The hand of somebody else, who writes to objects that a controller is about to write.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::{Service, ServiceExt};

use super::{Act, Interference};
use crate::request::{RequestInfo, Verb};

/// The annotation that [`Act::Touch`] writes.
pub(crate) const TOUCHED: &str = "sim.setpoint.dev/touched";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const JSON: &str = "application/json";
/// How many bytes of requests are kept, to be able to make objects anew.
const MOST_MADE: usize = 64 << 20;

type Sender = dyn Fn(Request<Full<Bytes>>) -> BoxFuture<'static, Option<Response<Bytes>>> + Send + Sync;

/// Does to objects what somebody else might do.
#[derive(Clone)]
pub(crate) struct Hand {
    send: Arc<Sender>,
    /// The requests that made the objects, by their paths in the API.
    made: Arc<Mutex<Requests>>,
}

#[derive(Default)]
struct Requests {
    by_path: BTreeMap<String, Made>,
    bytes: usize,
}

/// The request that made an object: what its author said, without what the server has added.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    /// Of the object.
    path: String,
    method: Method,
    uri: Uri,
    media: Option<HeaderValue>,
    body: Bytes,
}

impl Made {
    /// The request, if it can make an object whose name it says.
    pub(crate) fn by(info: &RequestInfo, parts: &Parts, body: &Bytes) -> Option<Made> {
        if !info.subresource.is_empty() || info.name.is_empty() {
            return None;
        }
        let path = match info.verb {
            Verb::Create => format!("{}/{}", info.bare_path(), info.name),
            Verb::Patch => info.bare_path().to_owned(),
            _ => return None,
        };
        let media = parts.headers.get(header::CONTENT_TYPE).cloned();
        Some(Made { path, method: parts.method.clone(), uri: parts.uri.clone(), media, body: body.clone() })
    }
}

impl fmt::Debug for Hand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hand").finish_non_exhaustive()
    }
}

impl Hand {
    /// A hand that reaches the server directly.
    pub(crate) fn new<S, R>(server: S) -> Hand
    where
        S: Service<Request<Full<Bytes>>, Response = Response<R>> + Clone + Send + Sync + 'static,
        S::Future: Send,
        R: http_body::Body<Data = Bytes> + Send + 'static,
    {
        let send = move |request| {
            let server = server.clone();
            async move {
                let (parts, body) = server.oneshot(request).await.ok()?.into_parts();
                let body = body.collect().await.ok()?.to_bytes();
                Some(Response::from_parts(parts, body))
            }
            .boxed()
        };
        Hand { send: Arc::new(send), made: Arc::default() }
    }

    pub(crate) async fn interfere(
        &self,
        interference: &Interference,
        request: &RequestInfo,
        made: Option<&Made>,
    ) {
        if interference.act == Act::Create {
            let Some(made) = made.filter(|made| made.method == Method::POST) else { return };
            return self.make(made.clone()).await;
        }
        let path = match &interference.object {
            Some(path) => path.clone(),
            None if request.verb == Verb::Create => return,
            None => request.object_path(),
        };
        self.act(interference.act, &path).await;
    }

    /// Does it, if the object is there.
    pub(crate) async fn act(&self, act: Act, path: &str) {
        match act {
            Act::Touch => {
                let version =
                    self.get(path).await.map(|object| object["metadata"]["resourceVersion"].clone());
                let patch = json!({"metadata": {"annotations": {TOUCHED: version}}});
                self.send(Method::PATCH, path, MERGE, Some(&patch)).await;
            }
            Act::Delete => self.delete(path, json!({})).await,
            Act::Recreate => self.recreate(path).await,
            // Only a request says how.
            Act::Create => {}
        }
    }

    /// Sends the request that makes an object.
    async fn make(&self, made: Made) {
        let request = Request::builder().method(made.method.clone()).uri(made.uri.clone());
        if self.exchange(request, made.media.clone(), made.body.clone()).await.is_some() {
            self.remember(made);
        }
    }

    async fn recreate(&self, path: &str) {
        let Some(object) = self.get(path).await else { return };
        // Finalizers would keep the old one; whoever deletes by force removes them.
        let free = json!({"metadata": {"finalizers": null}});
        self.send(Method::PATCH, path, MERGE, Some(&free)).await;
        self.delete(path, json!({"gracePeriodSeconds": 0})).await;
        let made = self.made.lock().by_path.get(path).cloned();
        match made {
            Some(made) => {
                let request = Request::builder().method(made.method).uri(made.uri);
                self.exchange(request, made.media, made.body).await;
            }
            // Nobody has seen how it was made: what is stored has to do, without what is surely the server's.
            None => {
                self.apply(path, &without_servers_own(object)).await;
            }
        }
    }

    /// Applies an object as the user does, and remembers it: that is how the user would make it anew.
    pub(crate) async fn apply(&self, path: &str, object: &Value) -> Option<Value> {
        let uri: Uri = format!("{path}?fieldManager=user&force=true").parse().ok()?;
        let media = HeaderValue::from_static(APPLY);
        let body = Bytes::from(object.to_string());
        let (path, method) = (path.to_owned(), Method::PATCH);
        let made = Made { path, method, uri, media: Some(media), body };
        let request = Request::builder().method(made.method.clone()).uri(made.uri.clone());
        let answer = self.exchange(request, made.media.clone(), made.body.clone()).await;
        if answer.is_some() {
            self.remember(made);
        }
        answer
    }

    /// Keeps the request that made an object, as long as there is room.
    pub(crate) fn remember(&self, made: Made) {
        let mut requests = self.made.lock();
        if let Some(before) = requests.by_path.remove(&made.path) {
            requests.bytes = requests.bytes.saturating_sub(before.body.len());
        }
        let bytes = requests.bytes.saturating_add(made.body.len());
        if bytes <= MOST_MADE {
            requests.bytes = bytes;
            requests.by_path.insert(made.path.clone(), made);
        }
    }

    /// Deletes as kubectl does: what hangs on the object goes, too.
    pub(crate) async fn delete(&self, path: &str, mut options: Value) {
        options["propagationPolicy"] = "Background".into();
        self.send(Method::DELETE, path, JSON, Some(&options)).await;
    }

    pub(crate) async fn get(&self, path: &str) -> Option<Value> {
        self.send(Method::GET, path, JSON, None).await
    }

    /// The answer, if it is a good one.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        media: &'static str,
        body: Option<&Value>,
    ) -> Option<Value> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = Request::builder().method(method).uri(path);
        self.exchange(request, Some(HeaderValue::from_static(media)), body.into()).await
    }

    async fn exchange(
        &self,
        request: http::request::Builder,
        media: Option<HeaderValue>,
        body: Bytes,
    ) -> Option<Value> {
        let request = match media {
            Some(media) => request.header(header::CONTENT_TYPE, media),
            None => request,
        };
        let response = (self.send)(request.body(Full::new(body)).ok()?).await?;
        let is_success = response.status().is_success();
        serde_json::from_slice(response.body()).ok().filter(|_| is_success)
    }
}

fn without_servers_own(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|key, _| ["name", "namespace", "labels", "annotations"].contains(&key.as_str()));
    }
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
    }
    object
}
