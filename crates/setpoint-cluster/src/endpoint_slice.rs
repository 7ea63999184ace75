//! Keeps the EndpointSlices of Services: the addresses of the pods that a Service selects.

mod plan;
mod slices;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
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

pub(crate) fn controller(informers: &SharedInformerFactory) -> Controller {
    let services = index(informers);
    owned::by_controller::<EndpointSlice>(informers);
    Controller::of::<Service>(.., NAME, reconcile)
        .owns::<EndpointSlice>(..)
        .watches::<Pod>(.., move |pod| selecting(&services, pod))
        .workers(WORKERS)
        .time_limit(TIME_LIMIT)
        .state(Pace::default())
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
    let pace = cx.state::<Pace>()?;
    // The garbage collector sees to the slices of a service that is gone.
    let Some(service) = service else {
        pace.forget(&key);
        return Ok(Action::done());
    };
    let Some(selector) = selector(&service) else { return Ok(Action::done()) };
    let (now, version) = (cx.env().instant(), service.metadata.resource_version.as_deref());
    if let Some(wait) = pace.wait(&key, now, version) {
        return Ok(Action::requeue_after(wait));
    }
    let pods = selected::having(&cx.lister::<Pod>()?, namespace, selector);
    let mut current =
        owned::of(&cx.lister::<EndpointSlice>()?, service.metadata.uid.as_deref().unwrap_or_default());
    current.retain(|slice| slices::is_of(slice, &service));
    let plan = plan::plan(&service, &pods, &current);
    if !plan.is_empty() {
        pace.rest(&key, now, pause(pods.len()), version);
    }
    let api: Api<EndpointSlice> = Api::namespaced(cx.client(), namespace);
    // What comes is written before what goes: an endpoint whose ports change is in two slices for a moment, never in none.
    for slice in plan.create {
        match api.create(&PostParams::default(), &slice).await {
            Err(error) if failure::is_namespace_terminating(&error) => return Ok(Action::done()),
            created => drop(created?),
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
