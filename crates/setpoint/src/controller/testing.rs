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
use serde::Serialize;
use serde_json::Value;
use setpoint_env::Env;
use setpoint_env::watch;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Service};

use super::context::Shared;
use super::listers::Listers;
use super::{Context, Watches};
use crate::ensure::memory::Memory;
use crate::events::EventLog;
use crate::watch::{IntoWatch, Watch, Watchable};
use crate::{Held, Indexer, Lister, MapStore, Reasons, Recorder, ScopedResource};

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
    events: EventLog,
    listers: Arc<Listers>,
    reasons: Reasons,
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
    /// It knows nothing of your [`Controller`](crate::Controller): each kind that the function reads with [`Context::lister`]
    /// needs a cache here, if only an empty one (`.cached::<Service>(.., [])`), and a [state](TestContext::state) is given
    /// here, too.
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
            events: EventLog::default(),
            listers: Arc::default(),
            reasons: Reasons::default(),
            state: None,
            env: Env::seeded(0),
        }
    }
}

impl TestContext {
    /// A cache of these objects, with the indices of the watch, as [`Context::lister`] and [`Context::lister_of`] read it. The
    /// server may have others: so a test can say what the reconcile sees while its cache is behind. Called again with an equal
    /// watch, it adds to the same cache. What the namespaces or labels of the watch leave out is not cached. An object that
    /// should be in a namespace and names none is in the client's default one.
    ///
    /// # Panics
    /// If an index has the name of another one of the same cache. A controller would not start.
    #[track_caller]
    pub fn cached<T: Watchable>(
        self,
        watch: impl IntoWatch<T>,
        objects: impl IntoIterator<Item = T>,
    ) -> TestContext {
        let watch = watch.into_watch();
        let indexer = self.cache_of(&watch);
        for (name, function) in watch.indices() {
            if let Err(error) = indexer.ensure_index(name, function) {
                panic!("{watch}: {error}");
            }
        }
        indexer.write(|writer| {
            for mut object in objects {
                if watch.kind().is_namespaced {
                    let namespace = || self.server.default_namespace().to_owned();
                    object.meta_mut().namespace.get_or_insert_with(namespace);
                }
                if let Some(object) = Some(object).filter(|object| watch.takes(object)).and_then(Held::named)
                {
                    writer.put(object);
                }
            }
        });
        self
    }

    /// What equal watches share.
    fn cache_of<T: Watchable>(&self, watch: &Watch<T>) -> Arc<Indexer<T>> {
        if let Ok(lister) = self.listers.of(&watch.id(), watch, "") {
            return lister.indexer().clone();
        }
        let indexer = Arc::new(Indexer::from_box(Box::new(MapStore::default())));
        self.listers.add((watch.id(), watch.to_string()), Lister::new(indexer.clone()));
        indexer
    }

    /// Objects that both the server and the cache of all objects of their kind have: each is created, with its status, and
    /// cached as the server stored it. No notes are taken of these requests. Of a custom kind the server must have the
    /// definition, which is an object as well: `.stored([Order::crd()])` comes first, or the answer is a 404.
    /// [`TestContext::cached`] does without.
    pub async fn stored<K>(self, objects: impl IntoIterator<Item = K>) -> Result<TestContext, kube::Error>
    where
        K: Watchable + kube::Resource<DynamicType = ()>,
    {
        self.stored_in(Watch::<K>::new(), objects).await
    }

    /// The same with the cache of a watch: one with indices or selectors, of a kind that is known at run time only, or of the
    /// metadata. The server has all objects, the cache those that the watch takes. They are given whole, as a value of their
    /// type or as JSON.
    ///
    /// ```
    /// use serde_json::json;
    /// use setpoint::k8s_openapi::api::core::v1::Pod;
    /// use setpoint::{Context, Watch};
    /// # use setpoint_apiserver::ApiServer;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pod = json!({
    ///     "metadata": {"name": "web", "namespace": "default", "labels": {"track": "canary"}},
    ///     "spec": {"containers": [{"name": "web", "image": "web"}]},
    /// });
    /// let canaries = Watch::<Pod>::metadata_only().labels("track=canary");
    /// let test = Context::for_test(ApiServer::builder().build().client());
    /// let test = test.stored_in(&canaries, [pod]).await?;
    /// assert_eq!(test.context().lister_of(&canaries)?.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn stored_in<T: Watchable, O: Serialize>(
        self,
        watch: impl IntoWatch<T>,
        objects: impl IntoIterator<Item = O>,
    ) -> Result<TestContext, kube::Error> {
        let watch = watch.into_watch();
        let mut stored = Vec::new();
        for object in objects {
            let object = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
            let object = store(&self.server, watch.kind(), object).await?;
            stored.push(serde_json::from_value(object).map_err(kube::Error::SerdeError)?);
        }
        Ok(self.cached(watch, stored))
    }

    /// What [`Context::reasons`] says: a [`Reason`](crate::Reason), or several as [`Reasons`].
    pub fn reasons(mut self, reasons: impl Into<Reasons>) -> TestContext {
        self.reasons = reasons.into();
        self
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

    /// What to call the reconcile function with. Each is that of one more reconcile of the same controller.
    pub fn context(&self) -> Context {
        let name = "test".to_owned();
        let recorder = Recorder::builder(self.server.clone(), name.clone()).env(self.env.clone());
        let recorder = recorder.log(&self.events).build();
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
            reasons: Arc::new(self.reasons.clone()),
            id: 0,
        }
    }

    /// The events that were recorded, in order, each as `Type Reason Kind/name note`: `Normal Created ConfigMap/greeting
    /// it was missing`. That they are sent to the server, too, is not among the [requests](TestContext::requests).
    pub fn events(&self) -> Vec<String> {
        self.events.all()
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

/// Creates an object, with its status. Gives it as it is stored.
async fn store(server: &Client, kind: &ScopedResource, mut object: Value) -> Result<Value, kube::Error> {
    for (field, value) in [("apiVersion", &kind.api.api_version), ("kind", &kind.api.kind)] {
        if object[field].is_null() {
            object[field] = value.clone().into();
        }
    }
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or(server.default_namespace());
    let requests = PathRequest::new(kind.path(Some(namespace)));
    let bytes = |value: &Value| serde_json::to_vec(value).map_err(kube::Error::SerdeError);
    let request = requests.create(&PostParams::default(), bytes(&object)?);
    let mut stored: Value = server.request(request.map_err(kube::Error::BuildRequest)?).await?;
    let status = object["status"].take();
    if status.is_null() || stored["status"] == status {
        return Ok(stored);
    }
    stored["status"] = status;
    let name = stored["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let request = requests.replace_subresource("status", &name, &PostParams::default(), bytes(&stored)?);
    server.request(request.map_err(kube::Error::BuildRequest)?).await
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
