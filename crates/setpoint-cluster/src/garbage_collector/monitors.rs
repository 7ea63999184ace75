//! Watches the metadata of every kind that the server has, also of those that come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint::discovery::{self, ServedResource};
use setpoint::kube::ResourceExt;
use setpoint::kube::core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use setpoint::kube::discovery::verbs;
use setpoint::{HandlerFns, Held, ScopedResource, SharedInformer};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::{Collector, Work};

type Metadata = PartialObjectMeta<DynamicObject>;

/// How long the first lists may take before collecting starts without the late ones.
const SYNC_LIMIT: Duration = Duration::from_secs(30);
/// How long after the last change of a definition the server is asked for its kinds.
const SETTLE: Duration = Duration::from_millis(200);
/// How often the server is asked without a reason: kinds of other servers may have come.
const POLL: Duration = Duration::from_secs(300);
/// How long to wait after the server could not be asked.
const RETRY: Duration = Duration::from_secs(2);
/// How long an object whose owner nobody has seen is left alone. The owner, of another kind, comes by another
/// watch, mostly at the same time.
const STRANGE_OWNER: Duration = Duration::from_millis(500);

pub(super) struct Monitors {
    collector: Collector,
    running: BTreeMap<String, Monitor>,
    /// What says which kinds there are: definitions, and APIServices.
    _definitions: [SharedInformer<Metadata>; 2],
    /// The names of definitions that were seen to go: their objects went before them.
    dropped: Arc<Mutex<BTreeSet<String>>>,
    changed: Arc<Notify>,
}

/// Watches one kind.
struct Monitor {
    /// `apps/v1`.
    group_version: String,
    informer: SharedInformer<Metadata>,
}

impl Monitors {
    pub(super) fn new(collector: Collector) -> Monitors {
        let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let resource = ApiResource::from_gvk_with_plural(&kind, "customresourcedefinitions");
        let definitions = informer(&collector, &ScopedResource::cluster(resource));
        let changed = Arc::new(Notify::new());
        let dropped: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let (added, updated, deleted) = (changed.clone(), changed.clone(), changed.clone());
        let (is_back, is_gone) = (dropped.clone(), dropped.clone());
        let handler = definitions.add_handler(
            HandlerFns::new()
                .on_add(move |definition: &Held<Metadata>, _| {
                    is_back.lock().remove(&definition.name_any());
                    added.notify_one();
                })
                .on_update(move |_, _| updated.notify_one())
                .on_delete(move |definition| {
                    is_gone.lock().insert(definition.object.name_any());
                    deleted.notify_one();
                }),
        );
        handler.detach();
        definitions.start();
        let services = api_services(&collector, &changed);
        let definitions = [definitions, services];
        Monitors { collector, running: BTreeMap::new(), _definitions: definitions, dropped, changed }
    }

    /// Watches all kinds that there are now, and waits until they are known.
    pub(super) async fn sync(&mut self) {
        while let Err(error) = self.refresh().await {
            tracing::warn!(%error, "cannot read the discovery of the server; retrying");
            sleep(RETRY).await;
        }
        let informers = || self.running.values().map(|monitor| &monitor.informer);
        let synced = futures::future::join_all(informers().map(SharedInformer::wait_for_sync));
        if timeout(SYNC_LIMIT, synced).await.is_err() {
            let late: Vec<&str> =
                informers().filter(|kind| !kind.has_synced()).map(SharedInformer::name).collect();
            tracing::warn!(?late, "some kinds cannot be listed; garbage collection goes on without them");
        }
    }

    /// Follows the kinds that come and go.
    pub(super) async fn follow(&mut self) {
        loop {
            let _ = timeout(POLL, self.changed.notified()).await;
            sleep(SETTLE).await;
            if let Err(error) = self.refresh().await {
                tracing::warn!(%error, "cannot read the discovery of the server; retrying");
                sleep(RETRY).await;
                self.changed.notify_one();
            }
        }
    }

    async fn refresh(&mut self) -> Result<(), setpoint::kube::Error> {
        let mut found = BTreeMap::new();
        let kinds = discovery::served(&self.collector.client).await?;
        *self.collector.kinds.lock() = kinds.clone();
        for resource in kinds {
            if is_collected(&resource) {
                found.insert(versioned(&resource), resource);
            }
        }
        let mut gone: Vec<String> =
            self.running.keys().filter(|name| !found.contains_key(*name)).cloned().collect();
        if !gone.is_empty() {
            // Kinds whose server is away for a moment are still there: what goes meanwhile is told when it is back. It may
            // be back already.
            let away = discovery::unknown(&self.collector.client).await?;
            let back = discovery::served(&self.collector.client).await?;
            let back: BTreeSet<String> = back.iter().map(|kind| versioned(kind)).collect();
            gone.retain(|name| {
                self.running.get(name).is_none_or(|monitor| !away.contains(&monitor.group_version))
                    && !back.contains(name)
            });
        }
        for name in gone {
            if let Some(monitor) = self.running.remove(&name) {
                monitor.informer.shutdown().await;
            }
        }
        // The watches of these kinds may have ended before they told of the last deletions.
        let served: BTreeSet<String> = found.values().map(|resource| resource.name()).collect();
        let gone: Vec<String> = {
            let mut dropped = self.dropped.lock();
            let gone = dropped.difference(&served).cloned().collect();
            dropped.retain(|kind| served.contains(kind));
            gone
        };
        for kind in gone {
            let work = self.collector.graph.lock().forget_kind(&kind);
            self.collector.enqueue(work);
        }
        for (name, resource) in found {
            if !self.running.contains_key(&name) {
                let group_version = resource.api.api_version.clone();
                self.running.insert(name, Monitor { group_version, informer: self.watch(resource) });
            }
        }
        Ok(())
    }

    fn watch(&self, resource: Arc<ServedResource>) -> SharedInformer<Metadata> {
        let informer = informer(&self.collector, &resource);
        let (adding, updating, deleting) =
            (self.collector.clone(), self.collector.clone(), self.collector.clone());
        let (added, updated) = (resource.clone(), resource);
        let handler = informer.add_handler(
            HandlerFns::new()
                .on_add(move |object: &Held<Metadata>, _| adding.see(&added, object))
                .on_update(move |_, object: &Held<Metadata>| updating.see(&updated, object))
                .on_delete(move |object| {
                    let uid = object.object.metadata.uid.as_deref().unwrap_or_default();
                    let work = deleting.graph.lock().forget(uid);
                    deleting.enqueue(work);
                }),
        );
        handler.detach();
        informer.start();
        informer
    }
}

/// Whether its objects are ones that the collector can see and delete, and that may own, or be owned.
fn is_collected(resource: &ServedResource) -> bool {
    let is_events = resource.api.plural == "events" && matches!(&*resource.api.group, "" | "events.k8s.io");
    !is_events && [verbs::LIST, verbs::WATCH, verbs::DELETE].into_iter().all(|verb| resource.has(verb))
}

/// `deployments.apps v1`.
fn versioned(resource: &ServedResource) -> String {
    format!("{} {}", resource.name(), resource.api.version)
}

/// Tells when a group-version of another server comes, answers, is away or goes.
fn api_services(collector: &Collector, changed: &Arc<Notify>) -> SharedInformer<Metadata> {
    let kind = GroupVersionKind::gvk("apiregistration.k8s.io", "v1", "APIService");
    let resource = ApiResource::from_gvk_with_plural(&kind, "apiservices");
    let services = informer(collector, &ScopedResource::cluster(resource));
    let (updated, deleted) = (changed.clone(), changed.clone());
    // Those of this server come with definitions; one of another server is updated once it answers.
    let handler = services.add_handler(
        HandlerFns::new()
            .on_update(move |_, _: &Held<Metadata>| updated.notify_one())
            .on_delete(move |_| deleted.notify_one()),
    );
    handler.detach();
    services.start();
    services
}

fn informer(collector: &Collector, resource: &ScopedResource) -> SharedInformer<Metadata> {
    SharedInformer::dynamic_metadata(collector.client.clone(), resource).env(collector.env.clone()).build()
}

impl Collector {
    fn see(&self, resource: &Arc<ServedResource>, object: &Metadata) {
        let work = self.graph.lock().see(resource, &object.metadata);
        let uid = object.metadata.uid.as_deref();
        for work in work {
            // Its own owners are in question: give them time to appear.
            match &work {
                Work::Delete(about) if Some(&**about) == uid => self.queue.add_after(work, STRANGE_OWNER),
                _ => self.queue.add(work),
            }
        }
    }

    pub(super) fn enqueue(&self, work: Vec<Work>) {
        work.into_iter().for_each(|work| self.queue.add(work));
    }
}
