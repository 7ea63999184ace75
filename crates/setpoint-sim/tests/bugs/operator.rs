//! A small operator in the manner of Go's first ones: caches that are filled by a list from any version and a watch, and a
//! loop that looks at every cluster when something has changed. Which mistakes it makes, each bug says for itself.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use http::{Method, Request};
use kube::Client;
use kube::core::WatchEvent;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_env::Task;
use setpoint_sim::Seat;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};

pub(crate) type Result<T = ()> = kube::Result<T>;

const RETRY: Duration = Duration::from_secs(1);
/// How long it waits before it looks again, whether or not something has changed.
const RESYNC: Duration = Duration::from_secs(30);
/// How long a lease lives after the renewal that another has seen, how long its holder trusts it, and how often it is renewed.
const LEASE: Duration = Duration::from_secs(15);
const DEADLINE: Duration = Duration::from_secs(10);
const RENEW: Duration = Duration::from_secs(3);
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const NAMESPACE: &str = "default";

/// The kinds that operators here know: plural, where the API has them, apiVersion, kind.
const KINDS: &[(&str, &str, &str, &str)] = &[
    ("configmaps", "/api/v1", "v1", "ConfigMap"),
    ("secrets", "/api/v1", "v1", "Secret"),
    ("pods", "/api/v1", "v1", "Pod"),
    ("persistentvolumeclaims", "/api/v1", "v1", "PersistentVolumeClaim"),
    ("services", "/api/v1", "v1", "Service"),
    ("poddisruptionbudgets", "/apis/policy/v1", "policy/v1", "PodDisruptionBudget"),
];

pub(crate) const CLUSTERS: &str = "configmaps";
pub(crate) const PODS: &str = "pods";
pub(crate) const CLAIMS: &str = "persistentvolumeclaims";
pub(crate) const SECRETS: &str = "secrets";
pub(crate) const SERVICES: &str = "services";
pub(crate) const BUDGETS: &str = "poddisruptionbudgets";

/// What a reconcile works with.
#[derive(Clone)]
pub(crate) struct Operator {
    client: Client,
    caches: BTreeMap<&'static str, Cache>,
    changed: Arc<Notify>,
    /// What it remembers; a crash ends it.
    memory: Arc<Mutex<BTreeMap<String, String>>>,
    /// What it knows of its lease, where one of several replicas works.
    term: Arc<Mutex<Term>>,
}

/// What a replica knows of its lease.
#[derive(Default)]
struct Term {
    is_elected: bool,
    /// Until when nobody else takes the lease.
    deadline: Option<Instant>,
    /// The renewal of another that was seen last, and when.
    seen: Option<(Value, Instant)>,
}

type Cache = Arc<Mutex<BTreeMap<String, Value>>>;

pub(crate) type Reconcile = fn(Operator, Value) -> BoxFuture<'static, Result>;

/// Runs an operator with caches of these kinds besides its clusters.
pub(crate) async fn run(
    seat: Seat,
    kinds: &'static [&'static str],
    is_elected: bool,
    reconcile: Reconcile,
) -> Result {
    let changed = Arc::new(Notify::new());
    let caches = [CLUSTERS].iter().chain(kinds).map(|kind| (*kind, Cache::default())).collect();
    let (client, memory, term) = (seat.client(), Arc::default(), Arc::default());
    let operator = Operator { client, caches, changed, memory, term };
    let mut watching: Vec<Task<()>> = Vec::new();
    if is_elected {
        let (operator, identity) = (operator.clone(), seat.identity());
        watching.push(seat.env().spawn(async move {
            loop {
                operator.stand_for_election(&identity).await;
                sleep(RENEW).await;
            }
        }));
    }
    for (kind, cache) in operator.caches.clone() {
        let version = operator.list(kind, &cache).await;
        let operator = operator.clone();
        watching.push(seat.env().spawn(async move { operator.watch(kind, &cache, version).await }));
    }
    loop {
        let clusters: Vec<Value> = operator.all(CLUSTERS).into_iter().filter(is_cluster).collect();
        let mut has_failed = false;
        for cluster in clusters {
            has_failed |= reconcile(operator.clone(), cluster).await.is_err();
        }
        if has_failed {
            sleep(RETRY).await;
        } else {
            let _resync = timeout(RESYNC, operator.changed.notified()).await;
        }
    }
}

/// The server has ConfigMaps of its own.
fn is_cluster(object: &Value) -> bool {
    object["metadata"]["labels"]["role"] == "cluster"
}

fn kind_of(plural: &str) -> (&'static str, &'static str, &'static str) {
    let (_, root, version, kind) =
        KINDS.iter().find(|(name, ..)| *name == plural).expect("a kind of the table");
    (*root, *version, *kind)
}

fn path(plural: &str) -> String {
    format!("{}/namespaces/{NAMESPACE}/{plural}", kind_of(plural).0)
}

pub(crate) fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

pub(crate) fn is_going(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// A number in the data of a cluster.
pub(crate) fn number(object: &Value, key: &str) -> u64 {
    object["data"][key].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

impl Operator {
    /// Fills a cache; from any version, which is the server's watch cache.
    async fn list(&self, kind: &str, cache: &Cache) -> String {
        loop {
            let uri = format!("{}?resourceVersion=0", path(kind));
            let list: Result<Value> = self.client.request(request(Method::GET, &uri, None)).await;
            if let Ok(list) = list {
                let items = list["items"].as_array().cloned().unwrap_or_default();
                *cache.lock() = items.into_iter().map(|item| (name(&item), item)).collect();
                self.changed.notify_one();
                return list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
            }
            sleep(RETRY).await;
        }
    }

    async fn watch(&self, kind: &str, cache: &Cache, mut version: String) {
        loop {
            let uri = format!("{}?watch=1&resourceVersion={version}", path(kind));
            let watch = self.client.request_events::<Value>(request(Method::GET, &uri, None)).await;
            let mut is_gone = false;
            if let Ok(events) = watch {
                let mut events = pin!(events);
                while let Some(event) = events.next().await {
                    let Ok(event) = event else { break };
                    match event {
                        WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                            version =
                                object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
                            cache.lock().insert(name(&object), object);
                        }
                        WatchEvent::Deleted(object) => {
                            version =
                                object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
                            cache.lock().remove(&name(&object));
                        }
                        WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                        WatchEvent::Error(error) => {
                            is_gone = error.code == 410;
                            break;
                        }
                    }
                    self.changed.notify_one();
                }
            } else {
                sleep(RETRY).await;
            }
            if is_gone {
                version = self.list(kind, cache).await;
            }
        }
    }

    /// What the cache has.
    pub(crate) fn all(&self, kind: &str) -> Vec<Value> {
        self.caches[kind].lock().values().cloned().collect()
    }

    pub(crate) fn get(&self, kind: &str, name: &str) -> Option<Value> {
        self.caches[kind].lock().get(name).cloned()
    }

    /// What the server has, not the cache.
    pub(crate) async fn read(&self, kind: &str, name: &str) -> Result<Option<Value>> {
        let uri = format!("{}/{name}", path(kind));
        match self.client.request::<Value>(request(Method::GET, &uri, None)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            other => other.map(Some),
        }
    }

    /// Renews the lease, or takes it when its holder has not renewed it for long enough.
    async fn stand_for_election(&self, identity: &str) {
        let sent = Instant::now();
        let spec =
            |holder: &str, renewals: u64| json!({"holderIdentity": holder, "leaseTransitions": renewals});
        let uri = format!("{LEASES}/operator");
        let lease = self.client.request::<Value>(request(Method::GET, &uri, None)).await;
        let written = match lease {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": "operator"}, "spec": spec(identity, 1)});
                self.client.request::<Value>(request(Method::POST, LEASES, Some(&lease))).await
            }
            Err(_) => return,
            Ok(lease) if lease["spec"]["holderIdentity"] != identity && !self.is_over(&lease) => return,
            Ok(mut lease) => {
                let renewals = lease["spec"]["leaseTransitions"].as_u64().unwrap_or(0);
                lease["spec"] = spec(identity, renewals + 1);
                self.client.request::<Value>(request(Method::PUT, &uri, Some(&lease))).await
            }
        };
        if written.is_ok() {
            let mut term = self.term.lock();
            (term.is_elected, term.deadline) = (true, Some(sent + DEADLINE));
            self.changed.notify_one();
        }
    }

    /// Whether another's lease is over; it is another's, so this replica does not lead.
    fn is_over(&self, lease: &Value) -> bool {
        let mut term = self.term.lock();
        (term.is_elected, term.deadline) = (false, None);
        let now = Instant::now();
        match &term.seen {
            Some((spec, since)) if *spec == lease["spec"] => now >= *since + LEASE,
            _ => {
                term.seen = Some((lease["spec"].clone(), now));
                false
            }
        }
    }

    /// Whether it was elected, as far as it has heard.
    pub(crate) fn was_elected(&self) -> bool {
        self.term.lock().is_elected
    }

    /// Whether nobody else can have the lease yet.
    pub(crate) fn has_lease(&self) -> bool {
        self.term.lock().deadline.is_some_and(|deadline| Instant::now() < deadline)
    }

    /// Writes something. What is not done when the lease is over is cut off: it may have been asked for long ago.
    pub(crate) async fn while_it_has_the_lease(&self, write: impl Future<Output = Result>) -> Result {
        let Some(deadline) = self.term.lock().deadline else { return Ok(()) };
        tokio::select! {
            biased;
            () = sleep_until(deadline) => Ok(()),
            written = write => written,
        }
    }

    /// What it remembers.
    pub(crate) fn remembers(&self, key: &str) -> Option<String> {
        self.memory.lock().get(key).cloned()
    }

    pub(crate) fn remember(&self, key: &str, value: impl ToString) {
        self.memory.lock().insert(key.to_owned(), value.to_string());
    }

    /// Creates an object that is the cluster's; one that is there already is as good.
    pub(crate) async fn create(&self, kind: &str, cluster: &Value, name: &str, content: Value) -> Result {
        let (_, version, kind_name) = kind_of(kind);
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": cluster["metadata"]["name"],
            "uid": cluster["metadata"]["uid"], "controller": true});
        let mut object = content;
        object["apiVersion"] = version.into();
        object["kind"] = kind_name.into();
        object["metadata"]["name"] = name.into();
        if object["metadata"]["ownerReferences"].is_null() {
            object["metadata"]["ownerReferences"] = json!([owner]);
        }
        match self.client.request::<Value>(request(Method::POST, &path(kind), Some(&object))).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            other => other.map(drop),
        }
    }

    pub(crate) async fn update(&self, kind: &str, object: &Value) -> Result {
        let uri = format!("{}/{}", path(kind), name(object));
        let (_, version, kind_name) = kind_of(kind);
        let mut object = object.clone();
        object["apiVersion"] = version.into();
        object["kind"] = kind_name.into();
        self.client.request::<Value>(request(Method::PUT, &uri, Some(&object))).await.map(drop)
    }

    /// Writes an annotation, whatever the object is now.
    pub(crate) async fn annotate(&self, kind: &str, name: &str, key: &str, value: &str) -> Result {
        let patch = json!({"metadata": {"annotations": {key: value}}});
        let patch = Request::patch(format!("{}/{name}", path(kind)))
            .header("content-type", "application/merge-patch+json")
            .body(patch.to_string().into_bytes())
            .expect("a request");
        self.client.request::<Value>(patch).await.map(drop)
    }

    pub(crate) async fn delete(&self, kind: &str, name: &str) -> Result {
        self.delete_with(kind, name, &json!({})).await
    }

    /// Ends a pod as a kubelet does.
    pub(crate) async fn delete_now(&self, kind: &str, name: &str) -> Result {
        self.delete_with(kind, name, &json!({"gracePeriodSeconds": 0})).await
    }

    /// Deletes the object if it is still as the cache has it.
    pub(crate) async fn delete_as(&self, kind: &str, object: &Value) -> Result {
        let metadata = &object["metadata"];
        let as_known = json!({"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]});
        self.delete_with(kind, &name(object), &json!({"preconditions": as_known})).await
    }

    async fn delete_with(&self, kind: &str, name: &str, options: &Value) -> Result {
        let uri = format!("{}/{name}", path(kind));
        match self.client.request::<Value>(request(Method::DELETE, &uri, Some(options))).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map(drop),
        }
    }
}

fn request(method: Method, uri: &str, body: Option<&Value>) -> Request<Vec<u8>> {
    let request = Request::builder().method(method).uri(uri).header("content-type", "application/json");
    request.body(body.map(Value::to_string).unwrap_or_default().into_bytes()).expect("a request")
}

/// What a pod says: no more than the server wants.
pub(crate) fn pod_spec() -> Value {
    json!({"spec": {"containers": [{"name": "main", "image": "main"}]}})
}

/// What a claim says. Claims outlive pods, and are nobody's unless an operator deletes them.
pub(crate) fn claim_spec(size: u64) -> Value {
    json!({
        "metadata": {"ownerReferences": [], "annotations": {"size": size.to_string()}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    })
}
