//! Keeps the EndpointSlices of Services: the addresses of the pods that a Service selects.

mod plan;
mod slices;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, PostParams};
use kube::core::{Selector, SelectorExt};
use kube::{Api, ResourceExt};
use setpoint::{Action, Context, Controller, Lister, ObjectKey, ReconcileError, SharedInformerFactory};

use crate::failure;

pub(crate) use self::slices::{HEADLESS, number};

/// How long one reconcile may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);
const NAME: &str = "endpointslice-controller";
/// How many services are worked on at the same time.
const WORKERS: usize = 4;

pub(crate) fn controller(informers: &SharedInformerFactory) -> Controller {
    let services = informers.informer::<Service>().lister();
    Controller::of::<Service>(.., NAME, reconcile)
        .owns::<EndpointSlice>(..)
        .watches::<Pod>(.., move |pod| selecting(&services, pod))
        .workers(WORKERS)
        .time_limit(TIME_LIMIT)
}

/// The services that select a pod.
pub(crate) fn selecting(services: &Lister<Service>, pod: &Pod) -> Vec<ObjectKey> {
    let namespace = pod.namespace().unwrap_or_default();
    let services = services.namespace(&namespace).list();
    let selecting = services
        .iter()
        .filter(|service| selector(service).is_some_and(|selector| selector.matches(pod.labels())));
    selecting.map(|service| ObjectKey::namespaced(&namespace, &service.name_any())).collect()
}

/// What a service selects pods by; none if its endpoints are somebody else's business.
pub(crate) fn selector(service: &Service) -> Option<Selector> {
    let spec = service.spec.as_ref().filter(|spec| spec.type_.as_deref() != Some("ExternalName"))?;
    let labels = spec.selector.as_ref().filter(|labels| !labels.is_empty())?;
    Some(labels.iter().map(|(key, value)| (key.clone(), value.clone())).collect())
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let namespace = key.namespace().unwrap_or_default();
    let service =
        cx.lister::<Service>()?.get(&key).filter(|service| service.metadata.deletion_timestamp.is_none());
    // The garbage collector sees to the slices of a service that is gone.
    let Some(service) = service else { return Ok(Action::done()) };
    let Some(selector) = selector(&service) else { return Ok(Action::done()) };
    let pods = cx.lister::<Pod>()?.namespace(namespace).select(&selector);
    let mut current = cx.lister::<EndpointSlice>()?.namespace(namespace).list();
    current.retain(|slice| slices::is_of(slice, &service));
    let plan = plan::plan(&service, &pods, &current);
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
