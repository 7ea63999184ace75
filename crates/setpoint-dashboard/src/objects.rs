//! Objects of the cluster: which there are, who owns whom, how one of them lives.
//!
//! The metadata of the kinds that are shown are cached, by informers of the page's own, from when somebody first looks at
//! objects until nobody has for a while. Whole objects are read one by one.

mod life;
mod owners;
mod scopes;
mod state;
mod tree;

#[cfg(test)]
mod tests;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use http::StatusCode;
use k8s_openapi::api::core::v1::Event;
use kube::Client;
use kube::api::{Api, ListParams};
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::discovery::verbs;
use lru::LruCache;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::discovery;
use setpoint::server::{Refused, Who};
use setpoint::{Facts, ObjectKey, ScopedResource, SharedInformer};
use setpoint_env::Env;
use tokio::time::{Instant, timeout};

use self::life::Life;
use self::scopes::Scopes;
use crate::contents::{Contents, Search};
use crate::guard::Guard;

/// How long the first lists may take before what is there is shown.
const SYNC_TIME: Duration = Duration::from_secs(5);
/// How often it is looked whether they are there, or have failed.
const SYNC_LOOK: Duration = Duration::from_millis(20);
/// How long the API server may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// When nobody has looked for so long, the caches are given up.
const IDLE: Duration = Duration::from_secs(300);
/// How often this is looked at.
const IDLE_CHECK: Duration = Duration::from_secs(30);
/// How many kinds are cached at most.
const MOST_KINDS: usize = 200;
/// Of how many objects the state is remembered.
const STATES: NonZeroUsize = NonZeroUsize::new(1000).unwrap();
const MOST_EVENTS: u32 = 100;
/// What is not shown as objects: they come and go by themselves, and own nothing.
const LEFT_OUT: [&str; 3] = ["events", "events.events.k8s.io", "leases.coordination.k8s.io"];

type Meta = PartialObjectMeta<DynamicObject>;

pub(crate) struct Objects {
    client: Client,
    env: Env,
    /// Of the process that is shown: what it caches is what it may read.
    facts: Facts,
    all_kinds: bool,
    shown: tokio::sync::Mutex<Option<Arc<Shown>>>,
    used: Mutex<Instant>,
    states: Mutex<LruCache<(String, ObjectKey), (String, String)>>,
}

/// What is cached while somebody looks.
struct Shown {
    /// Of the page's own caches.
    facts: Facts,
    contents: Contents,
    kinds: Vec<Kind>,
    /// Which of the process's caches these are for.
    scopes: Scopes,
}

struct Kind {
    /// Like `deployments.apps`.
    name: String,
    resource: ScopedResource,
    /// The namespaces that are cached; none for all of them.
    namespaces: Vec<String>,
    cache: SharedInformer<Meta>,
}

fn refused(code: StatusCode, why: impl std::fmt::Display) -> Refused {
    Refused(code, why.to_string())
}

fn no_such_kind(resource: &str) -> Refused {
    refused(StatusCode::NOT_FOUND, format!("objects of {resource:?} are not shown"))
}

impl Objects {
    pub(crate) fn new(client: Client, env: Env, facts: Facts, all_kinds: bool) -> Objects {
        Objects {
            client,
            facts,
            all_kinds,
            shown: tokio::sync::Mutex::default(),
            used: Mutex::new(env.instant()),
            states: Mutex::new(LruCache::new(STATES)),
            env,
        }
    }

    /// Gives the caches up when nobody has looked for a while, for ever.
    pub(crate) async fn stop_when_idle(&self) {
        loop {
            tokio::time::sleep(IDLE_CHECK).await;
            let idle = self.env.instant().saturating_duration_since(*self.used.lock());
            if idle < IDLE {
                continue;
            }
            let shown = self.shown.lock().await.take();
            if let Some(shown) = shown {
                shown.shutdown().await;
            }
        }
    }

    /// The caches, which begin now if nobody has looked before, or if the process caches more by now.
    async fn shown(&self) -> Result<Arc<Shown>, Refused> {
        *self.used.lock() = self.env.instant();
        let mut shown = self.shown.lock().await;
        let scopes = if self.all_kinds { Scopes::default() } else { Scopes::of(&self.facts) };
        if let Some(shown) = &*shown
            && shown.scopes.contain(&scopes)
        {
            return Ok(shown.clone());
        }
        let made = Arc::new(self.begin(scopes).await?);
        if let Some(before) = shown.replace(made.clone()) {
            before.shutdown().await;
        }
        Ok(made)
    }

    async fn begin(&self, scopes: Scopes) -> Result<Shown, Refused> {
        let failed = |why: String| {
            refused(StatusCode::BAD_GATEWAY, format!("the API server does not say which kinds it has: {why}"))
        };
        let found = timeout(ANSWER_TIME, discovery::served(&self.client)).await;
        let found = found.map_err(|_| failed(format!("no answer within {ANSWER_TIME:?}")))?;
        let found = found.map_err(|error| failed(error.to_string()))?;
        let facts = Facts::new(self.env.clone());
        let kinds = found.iter().filter_map(|kind| {
            let name = kind.name();
            let namespaces = if self.all_kinds { Some(Vec::new()) } else { scopes.namespaces(&name) };
            let can_watch = kind.has(verbs::LIST) && kind.has(verbs::WATCH);
            let mut namespaces = namespaces.filter(|_| can_watch && !LEFT_OUT.contains(&name.as_str()))?;
            namespaces.retain(|_| kind.is_namespaced);
            let informer = SharedInformer::dynamic_metadata(self.client.clone(), kind);
            let informer = namespaces.iter().fold(informer, |informer, name| informer.namespace(name));
            let cache = informer.env(self.env.clone()).facts(&facts).build();
            // Nothing has these names yet: the informer is new.
            let _new = cache.add_index(tree::OWNER, tree::owners);
            Some(Kind { name, resource: ScopedResource::clone(kind), namespaces, cache })
        });
        let kinds: Vec<Kind> = kinds.take(MOST_KINDS).collect();
        kinds.iter().for_each(|kind| kind.cache.start());
        let contents = Contents::new(facts.clone(), self.env.clone());
        let shown = Shown { facts, contents, kinds, scopes };
        let _late = timeout(SYNC_TIME, shown.wait()).await;
        Ok(shown)
    }

    /// The kinds that are shown, with how many objects each has.
    pub(crate) async fn kinds(&self) -> Result<Value, Refused> {
        let shown = self.shown().await?;
        let kind = |kind: &Kind| {
            json!({
                "resource": kind.name,
                "kind": kind.resource.api.kind,
                "apiVersion": kind.resource.api.api_version,
                "isNamespaced": kind.resource.is_namespaced,
                "namespaces": kind.namespaces,
                "objects": kind.cache.lister().len(),
                "hasSynced": kind.cache.has_synced(),
                "trouble": kind.cache.trouble().first(),
            })
        };
        Ok(json!({"kinds": shown.kinds.iter().map(kind).collect::<Vec<_>>()}))
    }

    /// The namespaces of which objects of a kind are cached, none for all of them.
    pub(crate) async fn namespaces(&self, resource: &str) -> Result<Vec<String>, Refused> {
        Ok(self.shown().await?.kind(resource)?.namespaces.clone())
    }

    /// Some rows of the objects of a kind.
    pub(crate) async fn window(
        &self,
        resource: &str,
        search: Search,
        rows: (usize, usize),
    ) -> Result<Value, Refused> {
        let shown = self.shown().await?;
        let caches = shown.facts.state(0).caches;
        let id = caches.iter().find(|cache| *cache.resource == *resource).map(|cache| cache.id);
        let window = id.and_then(|id| shown.contents.window(id, &search, rows));
        window.ok_or_else(|| no_such_kind(resource))
    }

    /// An object with its owners and all that it owns, each with its state.
    pub(crate) async fn tree(
        &self,
        resource: &str,
        key: &ObjectKey,
        guard: &Guard,
        who: Option<&Who>,
    ) -> Result<Value, Refused> {
        let shown = self.shown().await?;
        let kind = shown.kind(resource)?;
        let Some(mut nodes) = tree::around(&shown.kinds, kind, key) else {
            // No mistake of the page: it looks at what comes and goes.
            let why = match kind.cache.has_synced() {
                true => "There is no such object, or not any more.",
                false => "Objects of this kind are still being listed.",
            };
            return Ok(json!({"nodes": [], "why": why}));
        };
        let mut allowed = Vec::with_capacity(nodes.len());
        for node in nodes {
            let (plural, group) = node.resource.split_once('.').unwrap_or((&node.resource, ""));
            if guard.may(who, "get", group, plural, node.key.namespace()).await.is_ok() {
                allowed.push(node);
            }
        }
        nodes = allowed;
        self.add_states(&shown, &mut nodes).await;
        Ok(json!({"nodes": nodes}))
    }

    /// The life of one object from now on.
    pub(crate) async fn life(&self, resource: &str, key: &ObjectKey) -> Result<Life, Refused> {
        let shown = self.shown().await?;
        let kind = shown.kind(resource)?;
        Ok(Life::begin(self.client.clone(), self.env.clone(), self.facts.clone(), &kind.resource, key))
    }

    /// The events about an object.
    pub(crate) async fn events(&self, namespace: Option<&str>, uid: &str) -> Result<Value, Refused> {
        // A uid goes into a selector: anything else would be another question.
        if uid.is_empty() || !uid.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return Err(refused(StatusCode::BAD_REQUEST, "name the uid of an object"));
        }
        let api: Api<Event> = match namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let params = ListParams::default().fields(&format!("involvedObject.uid={uid}")).limit(MOST_EVENTS);
        let failed = |why: String| {
            refused(StatusCode::BAD_GATEWAY, format!("the API server does not list events: {why}"))
        };
        let list = timeout(ANSWER_TIME, api.list(&params)).await;
        let list = list.map_err(|_| failed(format!("no answer within {ANSWER_TIME:?}")))?;
        let list = list.map_err(|error| failed(error.to_string()))?;
        Ok(json!({"events": list.items.iter().map(told).collect::<Vec<_>>()}))
    }
}

fn told(event: &Event) -> Value {
    let last = event.last_timestamp.as_ref().map(|time| time.0.as_millisecond());
    let last = last.or_else(|| event.event_time.as_ref().map(|time| time.0.as_millisecond()));
    let count = event.series.as_ref().and_then(|series| series.count).or(event.count);
    json!({
        "type": event.type_,
        "reason": event.reason,
        "message": event.message,
        "count": count.unwrap_or(1),
        "at": last,
        "source": event.reporting_component.as_ref().filter(|name| !name.is_empty())
            .or_else(|| event.source.as_ref().and_then(|source| source.component.as_ref())),
    })
}

impl Shown {
    /// Waits until each kind is listed, or cannot be: what may not be listed stays empty, and the kinds say so.
    async fn wait(&self) {
        let is_open = |kind: &Kind| !kind.cache.has_synced() && kind.cache.trouble().is_empty();
        while self.kinds.iter().any(is_open) {
            tokio::time::sleep(SYNC_LOOK).await;
        }
    }

    async fn shutdown(&self) {
        join_all(self.kinds.iter().map(|kind| kind.cache.shutdown())).await;
    }

    fn kind(&self, resource: &str) -> Result<&Kind, Refused> {
        self.kinds.iter().find(|kind| kind.name == resource).ok_or_else(|| no_such_kind(resource))
    }
}
