//! A context for unit tests: caches of given objects, and a client that takes notes of what is asked of a server.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Weak};
use std::task::{self, Poll};

use futures::future::BoxFuture;
use http::{Method, Request as HttpRequest, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::api::PostParams;
use kube::client::Body;
use kube::core::Request as PathRequest;
use parking_lot::Mutex;
use serde_json::Value;
use setpoint_env::Env;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Service};

use super::context::Shared;
use super::listers::Listers;
use super::{Context, Watches};
use crate::ensure::memory::Memory;
use crate::watch::{IntoWatch, Watchable};
use crate::{Held, Indexer, Lister, MapStore, Reasons, Recorder};

/// A request that a reconcile made in a test.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The HTTP method.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The query; empty if there is none.
    pub query: String,
    /// The body; [`Value::Null`] if there is none, or if it is not JSON.
    pub body: Value,
}

/// `POST /api/v1/namespaces/default/configmaps`
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

type Log = Arc<Mutex<Vec<Request>>>;

/// What a reconcile function is called with in a unit test. See [`Context::for_test`].
#[must_use = "call the reconcile function with its `context()`"]
pub struct TestContext {
    server: Client,
    log: Log,
    listers: Arc<Listers>,
    state: Option<Arc<dyn Any + Send + Sync>>,
    env: Env,
}

impl Context {
    /// The context of a reconcile that no controller runs, for unit tests: with caches of the objects that it is given, and
    /// a client that sends what the reconcile asks for to the server behind `client`, and takes notes of it.
    ///
    /// Any client will do. That of a `setpoint-apiserver` in the test gives the answers that a cluster gives, in
    /// microseconds. (How a controller behaves over time, with caches that lag and answers that are lost, is what
    /// `setpoint-sim` is for.) Call it within a tokio runtime.
    ///
    /// ```
    /// use setpoint::k8s_openapi::api::core::v1::{ConfigMap, Namespace};
    /// use setpoint::kube::Api;
    /// use setpoint::{Action, Context, ObjectKey, ReconcileError};
    /// use setpoint_apiserver::ApiServer;
    ///
    /// /// Every namespace has a greeting.
    /// async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    ///     let greeting = ObjectKey::namespaced(key.name(), "greeting");
    ///     if cx.lister::<Namespace>()?.get(&key).is_some() && cx.lister::<ConfigMap>()?.get(&greeting).is_none() {
    ///         let map = serde_json::from_str(r#"{"metadata": {"name": "greeting"}}"#)?;
    ///         Api::<ConfigMap>::namespaced(cx.client(), key.name()).create(&Default::default(), &map).await?;
    ///     }
    ///     Ok(Action::done())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let team: Namespace = serde_json::from_str(r#"{"metadata": {"name": "team"}}"#)?;
    /// let test = Context::for_test(ApiServer::builder().build().client());
    /// let test = test.stored([team]).await?.cached::<ConfigMap>(.., []);
    /// assert_eq!(reconcile("team".into(), test.context()).await.unwrap(), Action::done());
    /// assert_eq!(test.writes(), ["POST /api/v1/namespaces/team/configmaps"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn for_test(client: Client) -> TestContext {
        TestContext {
            server: client,
            log: Log::default(),
            listers: Arc::default(),
            state: None,
            env: Env::seeded(0),
        }
    }
}

impl TestContext {
    /// A cache of these objects, with the indices of the watch, as [`Context::lister`] and [`Context::lister_of`] read it. The
    /// server may have others: so a test can say what the reconcile sees while its cache is behind.
    pub fn cached<T: Watchable>(
        self,
        watch: impl IntoWatch<T>,
        objects: impl IntoIterator<Item = T>,
    ) -> TestContext {
        let (watch, indexer) = (watch.into_watch(), Indexer::from_box(Box::new(MapStore::default())));
        for (name, function) in watch.indices() {
            // A name that is taken keeps a controller from starting; here there is none.
            let _taken = indexer.ensure_index(name, function);
        }
        indexer.write(|writer| {
            for object in objects.into_iter().filter_map(Held::named) {
                writer.put(object);
            }
        });
        self.listers.add((watch.id(), watch.to_string()), Lister::new(Arc::new(indexer)));
        self
    }

    /// The same with objects that the server has, too: each is created, with its status, and cached as the server stored
    /// it. No notes are taken of these requests.
    pub async fn stored<K>(self, objects: impl IntoIterator<Item = K>) -> Result<TestContext, kube::Error>
    where
        K: Watchable + kube::Resource<DynamicType = (), Scope: 'static>,
    {
        let mut stored = Vec::new();
        for object in objects {
            stored.push(self.store(&object).await?);
        }
        Ok(self.cached(.., stored))
    }

    async fn store<K>(&self, object: &K) -> Result<K, kube::Error>
    where
        K: Watchable + kube::Resource<DynamicType = ()>,
    {
        let requests = PathRequest::new(K::url_path(&(), object.meta().namespace.as_deref()));
        let body = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
        let bytes = |value: &Value| serde_json::to_vec(value).map_err(kube::Error::SerdeError);
        let request = requests.create(&PostParams::default(), bytes(&body)?);
        let mut stored: Value = self.server.request(request.map_err(kube::Error::BuildRequest)?).await?;
        if let Some(status) = body.get("status").filter(|status| stored.get("status") != Some(status)) {
            stored["status"] = status.clone();
            let name = object.meta().name.as_deref().unwrap_or_default();
            let request =
                requests.replace_subresource("status", name, &PostParams::default(), bytes(&stored)?);
            stored = self.server.request(request.map_err(kube::Error::BuildRequest)?).await?;
        }
        serde_json::from_value(stored).map_err(kube::Error::SerdeError)
    }

    /// What the reconcile gets from [`Context::state`].
    pub fn state(mut self, state: impl Any + Send + Sync) -> TestContext {
        self.state = Some(Arc::new(state));
        self
    }

    /// Where the reconcile's time and randomness come from.
    pub fn env(mut self, env: Env) -> TestContext {
        self.env = env;
        self
    }

    /// What to call the reconcile function with. Events that it records go to the server, and are not among the
    /// [requests](TestContext::requests).
    pub fn context(&self) -> Context {
        let name = "test".to_owned();
        let recorder = Recorder::builder(self.server.clone(), name.clone()).env(self.env.clone()).build();
        let watches: Watches = Watches::new(watch::Sender::new(Weak::new()).subscribe(), None);
        let shared = Shared {
            name,
            recorder,
            listers: self.listers.clone(),
            watches: Box::new(watches),
            state: self.state.clone(),
            env: self.env.clone(),
            stopping: CancellationToken::new(),
            memory: Memory::default(),
        };
        let noted = Noted { server: self.server.clone(), log: self.log.clone() };
        let client = Client::new(noted, self.server.default_namespace().to_owned());
        Context {
            shared: Arc::new(shared),
            untracked: client.clone(),
            client,
            reasons: Arc::new(Reasons::default()),
            id: 0,
        }
    }

    /// All that was asked of the server, in order.
    pub fn requests(&self) -> Vec<Request> {
        self.log.lock().clone()
    }

    /// The requests that were writes, each as `METHOD /path`, in order.
    pub fn writes(&self) -> Vec<String> {
        let log = self.log.lock();
        log.iter().filter(|request| request.method != Method::GET.as_str()).map(ToString::to_string).collect()
    }
}

impl fmt::Debug for TestContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestContext").field("requests", &*self.log.lock()).finish_non_exhaustive()
    }
}

/// A client that takes notes.
#[derive(Clone)]
struct Noted {
    server: Client,
    log: Log,
}

impl Service<HttpRequest<Body>> for Noted {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _cx: &mut task::Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        let Noted { server, log } = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect().await?.to_bytes();
            log.lock().push(Request {
                method: parts.method.to_string(),
                path: parts.uri.path().to_owned(),
                query: parts.uri.query().unwrap_or_default().trim_start_matches(['?', '&']).to_owned(),
                body: serde_json::from_slice(&bytes).unwrap_or_default(),
            });
            Ok(server.send(HttpRequest::from_parts(parts, Body::from(bytes.to_vec()))).await?)
        })
    }
}
