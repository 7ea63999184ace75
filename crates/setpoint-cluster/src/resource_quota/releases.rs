//! What makes a quota have more room: something is gone, or uses less.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::Stream;
use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, ResourceRequirements, Service};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use parking_lot::Mutex;
use setpoint::{HandlerFns, Held, Lister, Object, ObjectKey, SharedInformer};
use tokio::sync::Notify;

use crate::pod;

/// The namespaces where something was released.
#[derive(Default)]
pub(super) struct Releases {
    namespaces: Mutex<BTreeSet<String>>,
    news: Notify,
}

impl Releases {
    pub(super) fn in_namespace(&self, namespace: &str) {
        if self.namespaces.lock().insert(namespace.to_owned()) {
            self.news.notify_one();
        }
    }

    async fn next(&self) -> String {
        loop {
            if let Some(namespace) = self.namespaces.lock().pop_first() {
                return namespace;
            }
            self.news.notified().await;
        }
    }
}

/// The quotas of the namespaces where something is released.
pub(super) fn keys(
    releases: Arc<Releases>,
    quotas: Lister<ResourceQuota>,
) -> impl Stream<Item = ObjectKey> + Send + 'static {
    let namespaces = stream::unfold(releases, |releases| async move {
        let namespace = releases.next().await;
        Some((namespace, releases))
    });
    namespaces.flat_map(move |namespace| {
        let found = quotas.namespace(&namespace).list();
        let keys: Vec<ObjectKey> =
            found.iter().map(|quota| ObjectKey::namespaced(&namespace, &quota.name_any())).collect();
        stream::iter(keys)
    })
}

/// Tells when an object of a kind goes, or changes so that it may use less.
fn watch<K: Object>(informer: &SharedInformer<K>, releases: &Arc<Releases>, uses_less: fn(&K, &K) -> bool) {
    let (updated, deleted) = (releases.clone(), releases.clone());
    let handler = HandlerFns::new()
        .on_update(move |old: &Held<K>, new: &Held<K>| {
            if old.version() != new.version() && uses_less(old, new) {
                updated.in_namespace(new.key().namespace().unwrap_or_default());
            }
        })
        .on_delete(move |gone| deleted.in_namespace(gone.object.key().namespace().unwrap_or_default()));
    informer.add_handler(handler).detach();
}

pub(super) fn of_pods(pods: &SharedInformer<Pod>, releases: &Arc<Releases>) {
    watch(pods, releases, |old, new| {
        let deadline = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds).is_some();
        deadline(old) != deadline(new)
            || !pod::is_finished(old) && pod::is_finished(new)
            || is_resized(old, new)
    });
}

/// Whether a container that was there has got other resources.
fn is_resized(old: &Pod, new: &Pod) -> bool {
    resources(old).any(|(name, had)| resources(new).any(|(other, has)| other == name && has != had))
}

/// What a container has, and what it was given.
type Resources<'a> = (Option<&'a ResourceRequirements>, Option<&'a BTreeMap<String, Quantity>>);

/// What the containers of a pod have, as far as it is told.
fn resources(pod: &Pod) -> impl Iterator<Item = (&str, Resources<'_>)> {
    let statuses = pod
        .status
        .iter()
        .flat_map(|status| status.container_statuses.iter().chain(&status.init_container_statuses).flatten());
    statuses.map(|status| {
        (status.name.as_str(), (status.resources.as_ref(), status.allocated_resources.as_ref()))
    })
}

pub(super) fn of_services(services: &SharedInformer<Service>, releases: &Arc<Releases>) {
    watch(services, releases, |old, new| {
        let uses = |service: &Service| {
            let spec = service.spec.as_ref()?;
            Some((spec.type_.clone(), spec.ports.as_ref().map(Vec::len)))
        };
        uses(old) != uses(new)
    });
}

pub(super) fn of_claims(claims: &SharedInformer<PersistentVolumeClaim>, releases: &Arc<Releases>) {
    watch(claims, releases, |old, new| {
        let allocated = |claim: &PersistentVolumeClaim| {
            claim.status.as_ref().map(|status| {
                let current = status.current_volume_attributes_class_name.clone();
                (status.allocated_resources.clone(), current, status.modify_volume_status.clone())
            })
        };
        let class = |claim: &PersistentVolumeClaim| {
            claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.clone())
        };
        allocated(old) != allocated(new) || class(old) != class(new)
    });
}
