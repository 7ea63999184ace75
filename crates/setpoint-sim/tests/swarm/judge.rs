//! The judge: sees what reaches the server and what reconciles read, and says which promise was broken.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use parking_lot::Mutex;
use setpoint::{Context, ObjectKey, ResourceVersion, Scope};
use setpoint_apiserver::User;
use setpoint_sim::{Body, World};
use tower::{BoxError, Service, ServiceExt};

use crate::controller::{LABEL, Witness};

/// How long a leader is sure of its lease after it sent a renewal.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);

/// Clones are the same judge.
#[derive(Clone)]
pub(crate) struct Judge {
    world: World,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    violations: Vec<String>,
    /// What there is, by uid.
    live: BTreeMap<String, Live>,
    /// What replicas have written of each parent and its children, by the parent's name and the object's uid.
    written: BTreeMap<(String, String), Written>,
    /// Who has the lease, as the server has it.
    holder: String,
    /// When each replica sent the last renewal that was confirmed to it.
    renewed: BTreeMap<String, Duration>,
    commits: u64,
}

#[derive(Clone)]
struct Live {
    is_child: bool,
    parent: String,
    owner: Option<String>,
}

/// The last thing that replicas have done to an object.
struct Written {
    is_child: bool,
    by: String,
    /// None if it was deleted.
    version: Option<ResourceVersion>,
}

/// A request that may change something that the judge looks after.
#[derive(Clone, Copy, PartialEq)]
enum About {
    Child,
    Parent,
    Lease,
}

fn about(method: &Method, path: &str) -> Option<About> {
    if *method == Method::GET {
        return None;
    }
    let has = |plural: &str| path.split('/').any(|segment| segment == plural);
    match () {
        () if has("secrets") => Some(About::Child),
        () if has("configmaps") => Some(About::Parent),
        () if has("leases") => Some(About::Lease),
        () => None,
    }
}

impl Judge {
    pub(crate) fn new(world: &World) -> Judge {
        Judge { world: world.clone(), state: Arc::default() }
    }

    /// What was broken, in order.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.state.lock().violations.clone()
    }

    pub(crate) fn holder(&self) -> String {
        self.state.lock().holder.clone()
    }

    /// How many writes of parents and children there were.
    pub(crate) fn commits(&self) -> u64 {
        self.state.lock().commits
    }

    pub(crate) fn accuse(&self, what: String) {
        let at = self.world.now().as_secs_f64();
        self.state.lock().violations.push(format!("{at:.3}s {what}"));
    }

    /// The server, as `who` reaches it.
    pub(crate) fn server(
        &self,
        who: &str,
    ) -> impl Service<Request<Full<Bytes>>, Response = Response<Body>, Error = BoxError, Future: Send>
    + Clone
    + Send
    + 'static {
        let (judge, who) = (self.clone(), Arc::<str>::from(who));
        let server = self.world.server().as_user(User::admin());
        tower::service_fn(move |request: Request<Full<Bytes>>| {
            let (judge, who, server) = (judge.clone(), who.clone(), server.clone());
            async move {
                let about = about(request.method(), request.uri().path());
                let is_delete = *request.method() == Method::DELETE;
                let response = server.oneshot(request).await?;
                let Some(about) = about.filter(|_| response.status().is_success()) else {
                    return Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()));
                };
                let (parts, body) = response.into_parts();
                let bytes = body.collect().await.map_err(Into::<BoxError>::into)?.to_bytes();
                judge.committed(&who, about, is_delete, &bytes).await;
                let body = Full::new(bytes).map_err(|never| match never {}).boxed_unsync();
                Ok(Response::from_parts(parts, body))
            }
        })
    }

    /// The server has done what `who` asked for, and this is its answer.
    async fn committed(&self, who: &str, about: About, is_delete: bool, answer: &[u8]) {
        if about == About::Lease {
            let lease: Lease = serde_json::from_slice(answer).expect("a lease");
            self.state.lock().holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
            return;
        }
        let live = self.look().await;
        let mut state = self.state.lock();
        let before = std::mem::replace(&mut state.live, live);
        if who == WORLD {
            return;
        }
        state.commits += 1;
        let gone: Vec<_> = before.into_iter().filter(|(uid, _)| !state.live.contains_key(uid)).collect();
        for (uid, Live { is_child, parent, .. }) in gone {
            let written = Written { is_child, by: who.to_owned(), version: None };
            state.written.insert((parent, uid), written);
        }
        if !is_delete {
            let PartialObjectMeta { metadata, .. } =
                serde_json::from_slice::<PartialObjectMeta<ConfigMap>>(answer).expect("an object");
            let parent = metadata.labels.and_then(|labels| labels.get(LABEL).cloned()).unwrap_or_default();
            let (uid, version) = (metadata.uid.unwrap_or_default(), metadata.resource_version);
            if state.live.contains_key(&uid) {
                let version = version.map(|version| ResourceVersion::from(version.as_str()));
                let written = Written { is_child: about == About::Child, by: who.to_owned(), version };
                state.written.insert((parent, uid), written);
            }
        }
        let mut siblings: BTreeMap<&str, usize> = BTreeMap::new();
        for owner in state.live.values().filter_map(|live| live.owner.as_deref()) {
            *siblings.entry(owner).or_default() += 1;
        }
        let is_double = siblings.into_values().any(|children| children > 1);
        let holder = state.holder.clone();
        drop(state);
        if is_double {
            self.accuse(format!("{who}: a parent has two children"));
        }
        if holder != who {
            self.accuse(format!("{who}: wrote while {holder:?} had the lease"));
        }
    }

    /// All parents and children that there are.
    async fn look(&self) -> BTreeMap<String, Live> {
        let client = self.world.server().client();
        let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
        let secrets: Api<Secret> = Api::default_namespaced(client);
        let those = ListParams::default().labels(LABEL);
        let maps = maps.list_metadata(&those).await.expect("a list");
        let secrets = secrets.list_metadata(&those).await.expect("a list");
        let entry = |is_child, meta: &kube::api::ObjectMeta| {
            let owner = meta.owner_references.as_ref().and_then(|owners| Some(owners.first()?.uid.clone()));
            let parent = meta.labels.as_ref().and_then(|labels| labels.get(LABEL).cloned());
            let live = Live { is_child, parent: parent.unwrap_or_default(), owner };
            (meta.uid.clone().unwrap_or_default(), live)
        };
        let maps = maps.items.iter().map(|map| entry(false, &map.metadata));
        maps.chain(secrets.items.iter().map(|secret| entry(true, &secret.metadata))).collect()
    }

    /// A replica sends a request.
    pub(crate) fn sends(&self, who: &str, method: &Method, path: &str) {
        if !matches!(about(method, path), Some(About::Child | About::Parent)) {
            return;
        }
        let renewed = self.state.lock().renewed.get(who).copied();
        let now = self.world.now();
        if renewed.is_none_or(|renewed| renewed + RENEW_DEADLINE <= now) {
            self.accuse(format!("{who}: sent {method} {path}, and is not sure of its lease"));
        }
    }

    /// A replica, which sent something about the lease then, gets the answer that it is done.
    pub(crate) fn confirms(&self, who: &str, method: &Method, path: &str, sent: Duration) {
        if about(method, path) != Some(About::Lease) {
            return;
        }
        let mut state = self.state.lock();
        if state.holder == who {
            state.renewed.insert(who.to_owned(), sent);
        } else {
            state.renewed.remove(who);
        }
    }

    /// A reconcile of a replica reads its caches: they must show what replicas have written of this parent.
    fn reads(&self, who: &str, key: &ObjectKey, cx: &Context) {
        let (Ok(maps), Ok(secrets)) = (cx.lister::<ConfigMap>(), cx.lister::<Secret>()) else {
            panic!("it watches both");
        };
        let at = (maps.watermark(&Scope::Cluster), secrets.watermark(&Scope::Cluster));
        let uid = |object: &kube::api::ObjectMeta| object.uid.clone().unwrap_or_default();
        let mut cached: Vec<String> = maps.list().iter().map(|map| uid(&map.metadata)).collect();
        cached.extend(secrets.list().iter().map(|secret| uid(&secret.metadata)));
        let state = self.state.lock();
        let name = key.name().to_owned();
        let mut stale = Vec::new();
        for ((_, uid), written) in state
            .written
            .range((name.clone(), String::new())..)
            .take_while(|((parent, _), _)| *parent == name)
        {
            let is_cached = cached.contains(uid);
            let watermark = if written.is_child { &at.1 } else { &at.0 };
            let what = if written.is_child { "child" } else { "parent" };
            let by = &written.by;
            match &written.version {
                None if is_cached => stale.push(format!("{what} {uid} was deleted by {by}")),
                None => {}
                Some(version) => {
                    let is_old = watermark.as_ref().is_none_or(|watermark| watermark.is_before(version));
                    // Somebody else has deleted it since, and the cache has never had it: that is the same.
                    let is_as_good = !state.live.contains_key(uid) && !is_cached;
                    if is_old && !is_as_good {
                        stale.push(format!(
                            "{what} {uid} was written at {version} by {by}, the cache is at {watermark:?}"
                        ));
                    }
                }
            }
        }
        drop(state);
        for what in stale {
            self.accuse(format!("{who}: stale decision about {key}: {what}"));
        }
    }
}

/// The name of whoever changes parents, and sometimes deletes a child.
pub(crate) const WORLD: &str = "world";

/// What the judge knows of one replica's reconciles.
pub(crate) struct Witnessing {
    pub(crate) judge: Judge,
    pub(crate) who: String,
    /// How long each reconcile takes, in turn.
    pub(crate) thinks: Vec<Duration>,
    pub(crate) next: Mutex<usize>,
}

impl Witness for Witnessing {
    fn reads(&self, key: &ObjectKey, cx: &Context) {
        self.judge.reads(&self.who, key, cx);
    }

    fn thinks(&self, _key: &ObjectKey) -> Duration {
        let mut next = self.next.lock();
        *next += 1;
        self.thinks[*next % self.thinks.len()]
    }
}
