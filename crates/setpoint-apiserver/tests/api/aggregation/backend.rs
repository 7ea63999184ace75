//! Servers behind the server.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use setpoint_apiserver::pki::{self, CertificateAuthority, Identity};
use setpoint_apiserver::{User, serve};
use setpoint_env::{Env, Task};
use tokio::net::TcpListener;

pub(crate) const GROUP: &str = "wardle.example.com";

pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, std::io::Error>>;
type Answers =
    dyn Fn(Request<Incoming>) -> Result<BoxFuture<'static, Answer>, Request<Incoming>> + Send + Sync;

type Instead = dyn Fn(&str) -> Option<Answer> + Send + Sync;

/// How a backend behaves.
pub(crate) struct Setup {
    /// What it says that it has, in the older form of discovery; it changes with this.
    pub(crate) resources: Arc<Mutex<Value>>,
    /// Whether it has the newer form too.
    pub(crate) is_new: bool,
    /// What its certificate is for.
    pub(crate) host: &'static str,
    /// Paths that it never answers.
    pub(crate) silent: &'static [&'static str],
    /// What it answers by the path, in the place of a document.
    pub(crate) instead: Arc<Instead>,
    /// Its own answers to some requests.
    pub(crate) answers: Arc<Answers>,
}

impl Default for Setup {
    fn default() -> Setup {
        let resources = json!([{"name": "flunders", "singularName": "flunder", "namespaced": true,
            "kind": "Flunder", "verbs": ["get", "list", "watch"]}]);
        Setup {
            resources: Arc::new(Mutex::new(resources)),
            is_new: true,
            host: "api.wardle.svc",
            silent: &[],
            instead: Arc::new(|_: &str| None),
            answers: Arc::new(Err),
        }
    }
}

impl Setup {
    pub(crate) fn answering(
        answers: impl Fn(Request<Incoming>) -> Result<BoxFuture<'static, Answer>, Request<Incoming>>
        + Send
        + Sync
        + 'static,
    ) -> Setup {
        Setup { answers: Arc::new(answers), ..Setup::default() }
    }
}

/// The authority of front proxies, and the certificate of one.
pub(crate) fn front_proxy() -> (CertificateAuthority, Identity) {
    let authority = CertificateAuthority::generate(&Env::system()).unwrap();
    let identity = authority.issue_client(&User::new("front-proxy-client", [""; 0])).unwrap();
    (authority, identity)
}

/// A server that answers with what it was asked.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    /// The authority of its certificate, and the certificate itself.
    pub(crate) bundle: String,
    pub(crate) leaf: String,
    asked: Arc<AtomicUsize>,
    serving: Task<()>,
}

impl Backend {
    pub(crate) async fn start(proxies: &CertificateAuthority, setup: Setup) -> Backend {
        let env = Env::system();
        let ca = CertificateAuthority::generate(&env).unwrap();
        let identity = ca.issue_server([setup.host]).unwrap();
        let tls = pki::server_config(&env, &identity, &[proxies.certificate_der().clone()]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let (count, setup) = (Arc::clone(&asked), Arc::new(setup));
        let service = tower::service_fn(move |request: Request<Incoming>| {
            let (count, setup) = (Arc::clone(&count), Arc::clone(&setup));
            async move { Ok::<_, Infallible>(answer(&count, &setup, request).await) }
        });
        let options = serve::Options { env: env.clone(), ..serve::Options::default() };
        let serving = env.spawn(serve::serve(service, listener, tls, options));
        let leaf = identity.to_pem().certificate;
        Backend { address, bundle: ca.certificate_pem().to_owned(), leaf, asked, serving }
    }

    /// Ends it, and waits until nobody listens any more.
    pub(crate) async fn stop(self) {
        self.serving.stop().await;
    }

    /// How many requests for objects have come.
    pub(crate) fn count(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

pub(crate) fn full(text: impl Into<Bytes>) -> UnsyncBoxBody<Bytes, std::io::Error> {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn document(media: &'static str, value: &Value) -> Answer {
    Response::builder().header(header::CONTENT_TYPE, media).body(full(value.to_string())).unwrap()
}

async fn answer(count: &AtomicUsize, setup: &Setup, request: Request<Incoming>) -> Answer {
    let resources = setup.resources.lock().clone();
    let path = request.uri().path().to_owned();
    if setup.silent.contains(&path.as_str()) {
        return std::future::pending().await;
    }
    if let Some(answer) = (setup.instead)(&path) {
        return answer;
    }
    match path.as_str() {
        "/apis/wardle.example.com/v1" => {
            let list = json!({"kind": "APIResourceList", "groupVersion": "wardle.example.com/v1", "resources": resources});
            return document("application/json", &list);
        }
        "/apis" if setup.is_new => {
            return document(
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
                &aggregated(&resources),
            );
        }
        "/openapi/v3" => {
            let url = format!("/openapi/v3/apis/{GROUP}/v1?hash={}", resources.to_string().len());
            let index = json!({"paths": {(format!("apis/{GROUP}/v1")): {"serverRelativeURL": url}}});
            return document("application/json", &index);
        }
        "/openapi/v3/apis/wardle.example.com/v1" => return document("application/json", &open_api()),
        "/apis" => return Response::builder().status(404).body(full("")).unwrap(),
        _ => {}
    }
    count.fetch_add(1, Ordering::Relaxed);
    let certificate = User::of(request.extensions()).map(|user| user.name.clone());
    let request = match (setup.answers)(request) {
        Ok(answer) => return answer.await,
        Err(request) => request,
    };
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let mut headers = Map::new();
    for (name, value) in &parts.headers {
        let values = headers.entry(name.as_str()).or_insert_with(|| json!([]));
        values.as_array_mut().unwrap().push(value.to_str().unwrap().into());
    }
    let seen = json!({
        "method": parts.method.as_str(), "path": path, "query": parts.uri.query(), "headers": headers,
        "certificate": certificate, "body": String::from_utf8_lossy(&body),
    });
    let code = if parts.method == "POST" { 201 } else { 200 };
    let answer =
        Response::builder().status(code).header("x-of-backend", "yes").header("keep-alive", "timeout=5");
    answer.header(header::CONTENT_TYPE, "application/json").body(full(seen.to_string())).unwrap()
}

fn aggregated(resources: &Value) -> Value {
    let resources: Vec<Value> = resources
        .as_array()
        .unwrap()
        .iter()
        .map(|resource| {
            json!({"resource": resource["name"], "responseKind": {"group": "", "version": "", "kind": resource["kind"]},
                "scope": "Namespaced", "singularResource": resource["singularName"], "verbs": resource["verbs"]})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": [
        {"metadata": {"name": GROUP}, "versions": [{"version": "v1", "resources": resources, "freshness": "Current"}]}]})
}

fn open_api() -> Value {
    json!({"openapi": "3.0.0", "info": {"title": "wardle", "version": "1"},
    "paths": {
        "/apis/wardle.example.com/v1/flunders": {"get": {"operationId": "listFlunders", "responses": {}}},
        "/api/v1/pods": {"get": {"operationId": "stolen"}},
    },
    "components": {"schemas": {
        "com.example.wardle.v1.Flunder": {"type": "object", "description": "A flunder."},
        "io.k8s.api.core.v1.Pod": {"description": "stolen"},
    }}})
}
