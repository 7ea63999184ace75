//! The aggregation layer: group-versions that other servers answer, behind this one.
//!
//! An APIService with a service says that a group-version is answered there. [`sync`] reads the APIServices and puts a new
//! [`Registered`] in place, which requests look their [`Backend`] up in. Who asks is authenticated and authorized here; then the
//! request is handed on, piece by piece ([`proxy`]), with the name of the user in headers that the backend believes because of
//! our client certificate. In the background each backend is looked after ([`upkeep`]): whether it answers
//! ([`availability`]), and which resources and schemas it has ([`documents`]), so that discovery and OpenAPI are those of one
//! server.

mod availability;
mod backend;
mod documents;
mod headers;
mod proxy;
mod registered;
mod tunnel;
mod untrailed;
mod upkeep;
mod words;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio::sync::Notify;

use crate::definitions::Served;
use crate::discovery::Discovery;
use crate::object;
use crate::pki::Identity;
use crate::resource::{Registry, Resource};
use crate::server::Core;
use crate::status::Result;
use crate::storage::{ListQuery, Revision};
use crate::task_set::TaskSet;
use crate::upstream::Clients;

pub(crate) use backend::Backend;
pub(crate) use documents::OpenApi;
pub(crate) use proxy::{Forwarded, forward, forward_document};
pub(crate) use registered::Registered;
pub(crate) use upkeep::run;

/// The backends of a server.
pub(crate) struct Aggregation {
    clients: Clients,
    registered: RwLock<Arc<Registered>>,
    /// Held while APIServices are read: one at a time. By name, what was read last.
    syncing: tokio::sync::Mutex<BTreeMap<Box<str>, (Revision, Value)>>,
    /// Told when the backends have changed.
    changed: Notify,
    /// Counts what changes the documents of all backends together.
    edition: AtomicU64,
    merged: Mutex<Option<Merged>>,
    /// Connections that were upgraded.
    tunnels: Mutex<TaskSet>,
}

/// Discovery of this server and its backends, and what it was made of.
struct Merged {
    served: Arc<Served>,
    registered: Arc<Registered>,
    edition: u64,
    discovery: Arc<Discovery>,
}

impl Aggregation {
    /// Backends know this server by its client certificate.
    pub(crate) fn new(identity: Option<Arc<Identity>>) -> Aggregation {
        Aggregation {
            clients: Clients::new(identity),
            registered: RwLock::default(),
            syncing: tokio::sync::Mutex::default(),
            changed: Notify::new(),
            edition: AtomicU64::new(0),
            merged: Mutex::new(None),
            tunnels: Mutex::default(),
        }
    }

    /// All backends there are now.
    pub(crate) fn registered(&self) -> Arc<Registered> {
        Arc::clone(&self.registered.read())
    }

    /// Who answers for a group-version, if it is not this server.
    pub(crate) fn find(&self, group: &str, version: &str) -> Option<Arc<Backend>> {
        self.registered.read().find(group, version).cloned()
    }

    /// What backends have told about themselves is not what it was.
    fn tell_change(&self) {
        self.edition.fetch_add(1, Ordering::Relaxed);
    }

    /// Discovery of this server and of all backends. Made when somebody first asks.
    pub(crate) fn discovery(&self, served: &Arc<Served>) -> Arc<Discovery> {
        let registered = self.registered();
        let edition = self.edition.load(Ordering::Relaxed);
        let mut merged = self.merged.lock();
        if let Some(known) = &*merged
            && known.edition == edition
            && Arc::ptr_eq(&known.served, served)
            && Arc::ptr_eq(&known.registered, &registered)
        {
            return Arc::clone(&known.discovery);
        }
        let discovery = Arc::new(registered.discovery(served));
        let served = Arc::clone(served);
        *merged = Some(Merged { served, registered, edition, discovery: Arc::clone(&discovery) });
        discovery
    }
}

/// The resource of the APIServices themselves.
pub(crate) fn resource() -> &'static Arc<Resource> {
    Registry::built_in().expect("apiregistration.k8s.io", "v1", "apiservices")
}

/// Whether a change of this resource changes who answers.
pub(crate) fn concerns(resource: &Resource) -> bool {
    resource.collection() == self::resource().collection()
}

/// Hands on to whom the stored APIServices say.
pub(crate) async fn sync(core: &Core) -> Result<()> {
    let aggregation = &core.aggregation;
    // A server that starts must not be kept waiting, not even by the runtime's sense of fairness.
    let mut known = match aggregation.syncing.try_lock() {
        Ok(known) => known,
        Err(_) => aggregation.syncing.lock().await,
    };
    let page = core.storage.list(&ListQuery::all(resource().collection())).await?;
    let mut read = BTreeMap::new();
    for record in &page.records {
        let object = match known.remove(&record.path) {
            Some((revision, object)) if revision == record.revision => object,
            _ => object::decode(&record.value, record.revision),
        };
        read.insert(record.path.clone(), (record.revision, object));
    }
    *known = read;
    let old = aggregation.registered();
    let new = Registered::new(known.values().map(|(_, object)| object), &old);
    if !new.is_same(&old) {
        let new = Arc::new(new);
        *aggregation.registered.write() = Arc::clone(&new);
        old.end_all_but(&new);
        aggregation.changed.notify_one();
    }
    let unmarked: Vec<String> = known
        .iter()
        .filter(|(_, (_, object))| availability::is_unmarked_local(object))
        .map(|(name, _)| name.to_string())
        .collect();
    drop(known);
    for name in unmarked {
        availability::mark_local(core, &name).await?;
    }
    Ok(())
}
