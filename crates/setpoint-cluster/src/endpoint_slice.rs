//! Keeps the EndpointSlices of Services: the addresses of the pods that a Service selects.

mod plan;
mod slices;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use setpoint::{Action, Context, Controller, Lister, ObjectKey, ReconcileError, SharedInformerFactory};

use crate::pace::{self, Pace};
use crate::{failure, owned, selected};

pub(crate) use self::slices::{HEADLESS, number};

/// How long one reconcile may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);
const NAME: &str = "endpointslice-controller";
/// How many services are worked on at the same time.
const WORKERS: usize = 4;
/// A service is written at most once in this time for each of its pods: so what a pod costs does not grow with their number.
const PAUSE_PER_POD: Duration = Duration::from_millis(1);
/// But this often at least.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// When a service is looked at again whose slices the cache does not show yet.
const CATCH_UP: Duration = Duration::from_secs(5);

/// What the controller knows beside its caches.
#[derive(Default)]
struct Memory {
    pace: Pace,
    made: Made,
}

/// The names of slices that were made for a service, and that the cache has not shown yet. Each slice gets a name of its own: who
/// does not see the first one would make a second.
#[derive(Default)]
struct Made(Mutex<BTreeMap<ObjectKey, BTreeSet<String>>>);

impl Made {
    fn note(&self, service: &ObjectKey, slice: String) {
        self.0.lock().entry(service.clone()).or_default().insert(slice);
    }

    /// Those that are not seen; the others are forgotten.
    fn unseen(&self, service: &ObjectKey, is_seen: impl Fn(&str) -> bool) -> Vec<String> {
        let mut made = self.0.lock();
        let Some(slices) = made.get_mut(service) else { return Vec::new() };
        slices.retain(|slice| !is_seen(slice));
        let unseen = slices.iter().cloned().collect();
        if slices.is_empty() {
            made.remove(service);
        }
        unseen
    }

    fn forget(&self, service: &ObjectKey) {
        self.0.lock().remove(service);
    }
}

pub(crate) fn controller(informers: &SharedInformerFactory) -> Controller {
    let services = index(informers);
    owned::by_controller::<EndpointSlice>(informers);
    Controller::of::<Service>(.., NAME, reconcile)
        .owns::<EndpointSlice>(..)
        .watches::<Pod>(.., move |pod| selecting(&services, pod))
        .workers(WORKERS)
        .time_limit(TIME_LIMIT)
        .state(Memory::default())
}

/// Indexes services by their selectors, and pods by their labels. The services.
pub(crate) fn index(informers: &SharedInformerFactory) -> Lister<Service> {
    let services = informers.informer::<Service>();
    selected::index_selectors(&services, selector);
    selected::index_objects(&informers.informer::<Pod>());
    services.lister()
}

/// The services that select a pod.
pub(crate) fn selecting(services: &Lister<Service>, pod: &Pod) -> Vec<ObjectKey> {
    let namespace = pod.namespace().unwrap_or_default();
    let services = selected::selectors_of(services, pod);
    let selects = |labels| selected::has_all(pod.labels(), labels);
    let selecting = services.iter().filter(|service| selector(service).is_some_and(selects));
    selecting.map(|service| ObjectKey::namespaced(&namespace, &service.name_any())).collect()
}

/// How long a service with so many pods is left alone after it was written.
pub(crate) fn pause(pods: usize) -> Duration {
    pace::pause(pods, PAUSE_PER_POD, LONGEST_PAUSE)
}

/// What a service selects pods by; none if its endpoints are somebody else's business.
pub(crate) fn selector(service: &Service) -> Option<&BTreeMap<String, String>> {
    let spec = service.spec.as_ref().filter(|spec| spec.type_.as_deref() != Some("ExternalName"))?;
    spec.selector.as_ref().filter(|labels| !labels.is_empty())
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let namespace = key.namespace().unwrap_or_default();
    let service =
        cx.lister::<Service>()?.get(&key).filter(|service| service.metadata.deletion_timestamp.is_none());
    let memory = cx.state::<Memory>()?;
    let pace = &memory.pace;
    // The garbage collector sees to the slices of a service that is gone.
    let Some(service) = service else {
        pace.forget(&key);
        memory.made.forget(&key);
        return Ok(Action::done());
    };
    let Some(selector) = selector(&service) else { return Ok(Action::done()) };
    let (now, version) = (cx.env().instant(), service.metadata.resource_version.as_deref());
    if let Some(wait) = pace.wait(&key, now, version) {
        return Ok(Action::requeue_after(wait));
    }
    let api: Api<EndpointSlice> = Api::namespaced(cx.client(), namespace);
    let slices = cx.lister::<EndpointSlice>()?;
    let is_seen = |slice: &str| slices.get(&ObjectKey::namespaced(namespace, slice)).is_some();
    for slice in memory.made.unseen(&key, is_seen) {
        if api.get_metadata_opt(&slice).await?.is_some() {
            return Ok(Action::requeue_after(CATCH_UP));
        }
        // Somebody has deleted it before the cache heard of it.
        memory.made.unseen(&key, |other| other == slice);
    }
    let pods = selected::having(&cx.lister::<Pod>()?, namespace, selector);
    let mut current = owned::of(&slices, service.metadata.uid.as_deref().unwrap_or_default());
    current.retain(|slice| slices::is_of(slice, &service));
    let plan = plan::plan(&service, &pods, &current);
    if !plan.is_empty() {
        pace.rest(&key, now, pause(pods.len()), version);
    }
    // What comes is written before what goes: an endpoint whose ports change is in two slices for a moment, never in none.
    for slice in plan.create {
        match api.create(&PostParams::default(), &slice).await {
            Err(error) if failure::is_namespace_terminating(&error) => return Ok(Action::done()),
            created => memory.made.note(&key, created?.name_any()),
        }
    }
    for slice in plan.update {
        api.replace(&slice.name_any(), &PostParams::default(), &slice).await?;
    }
    for name in plan.delete {
        match api.delete(&name, &DeleteParams::default()).await {
            Err(error) if failure::is_not_found(&error) => {}
            deleted => drop(deleted?),
        }
    }
    Ok(Action::done())
}
