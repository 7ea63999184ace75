//! Keeps the Endpoints of Services, for clients that have not moved to EndpointSlices.

mod subsets;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{EndpointSubset, Endpoints, Pod, Service};
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::{Api, ResourceExt};
use setpoint::{Action, Context, Controller, Event, ObjectKey, ReconcileError, SharedInformerFactory};

use crate::endpoint_slice::{HEADLESS, index, pause, selecting, selector};
use crate::pace::Pace;
use crate::{failure, selected};

/// How long one reconcile may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// What its events are from, and what Endpoints say that they are managed by.
const NAME: &str = "endpoint-controller";
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
/// The annotation of Endpoints that are not all that there are.
const OVER_CAPACITY: (&str, &str) = ("endpoints.kubernetes.io/over-capacity", "truncated");
/// How many services are worked on at the same time.
const WORKERS: usize = 4;

pub(crate) fn controller(informers: &SharedInformerFactory) -> Controller {
    let services = index(informers);
    Controller::of::<Service>(.., NAME, reconcile)
        .watches::<Pod>(.., move |pod| selecting(&services, pod))
        // Those that somebody else keeps are nobody's business here, even without a Service.
        .watches::<Endpoints>(.., |endpoints| {
            is_managed(endpoints).then(|| key(endpoints)).into_iter().collect()
        })
        .workers(WORKERS)
        .time_limit(TIME_LIMIT)
        .state(Pace::default())
}

fn is_managed(endpoints: &Endpoints) -> bool {
    endpoints.labels().get(MANAGED_BY).is_some_and(|manager| manager == NAME)
}

/// The Service of Endpoints has their name.
fn key(endpoints: &Endpoints) -> ObjectKey {
    ObjectKey::namespaced(&endpoints.namespace().unwrap_or_default(), &endpoints.name_any())
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let namespace = key.namespace().unwrap_or_default();
    let api: Api<Endpoints> = Api::namespaced(cx.client(), namespace);
    let current = cx.lister::<Endpoints>()?.get(&key);
    let pace = cx.state::<Pace>()?;
    let Some(service) = cx.lister::<Service>()?.get(&key) else {
        pace.forget(&key);
        return match current {
            Some(_) => delete(&api, key.name()).await,
            None => Ok(Action::done()),
        };
    };
    let Some(selector) = selector(&service) else { return Ok(Action::done()) };
    let (now, version) = (cx.env().instant(), service.metadata.resource_version.as_deref());
    if let Some(wait) = pace.wait(&key, now, version) {
        return Ok(Action::requeue_after(wait));
    }
    let pods = selected::having(&cx.lister::<Pod>()?, namespace, selector);
    let mut wanted = match &current {
        Some(current) => (**current).clone(),
        None => Endpoints { metadata: metadata(&service), subsets: None },
    };
    set(&mut wanted, &service, subsets::of(&service, &pods));
    if current.as_deref() == Some(&wanted) {
        return Ok(Action::done());
    }
    pace.rest(&key, now, pause(pods.len()), version);
    let is_new = current.is_none();
    let written = match is_new {
        true => api.create(&PostParams::default(), &wanted).await,
        false => api.replace(key.name(), &PostParams::default(), &wanted).await,
    };
    match written {
        Err(error) if is_new && failure::is_namespace_terminating(&error) => {}
        Err(error) => {
            cx.recorder().event(&wanted, failed(&key, is_new, &error));
            return Err(error.into());
        }
        Ok(_) => {}
    }
    Ok(Action::done())
}

async fn delete(api: &Api<Endpoints>, name: &str) -> Result<Action, ReconcileError> {
    match api.delete(name, &DeleteParams::default()).await {
        Err(error) if !failure::is_not_found(&error) => Err(error.into()),
        _ => Ok(Action::done()),
    }
}

fn failed(key: &ObjectKey, is_new: bool, error: &kube::Error) -> Event {
    let why = failure::message(error);
    match is_new {
        true => Event::warning(
            "FailedToCreateEndpoint",
            format!("Failed to create endpoint for service {key}: {why}"),
        ),
        false => Event::warning("FailedToUpdateEndpoint", format!("Failed to update endpoint {key}: {why}")),
    }
}

fn metadata(service: &Service) -> ObjectMeta {
    ObjectMeta {
        name: service.metadata.name.clone(),
        namespace: service.namespace(),
        ..ObjectMeta::default()
    }
}

/// Makes Endpoints be those of a service.
fn set(endpoints: &mut Endpoints, service: &Service, mut all: Vec<EndpointSubset>) {
    let is_over = subsets::truncate(&mut all);
    endpoints.subsets = Some(all).filter(|all| !all.is_empty());
    endpoints.metadata.labels = Some(labels(service));
    let annotations = endpoints.metadata.annotations.get_or_insert_default();
    match is_over {
        true => drop(annotations.insert(OVER_CAPACITY.0.to_owned(), OVER_CAPACITY.1.to_owned())),
        false => drop(annotations.remove(OVER_CAPACITY.0)),
    }
    if annotations.is_empty() {
        endpoints.metadata.annotations = None;
    }
}

/// Those of the service, and ours.
fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.labels().clone();
    let address = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref());
    match address {
        None | Some("" | "None") => labels.insert(HEADLESS.to_owned(), String::new()),
        Some(_) => labels.remove(HEADLESS),
    };
    labels.insert(MANAGED_BY.to_owned(), NAME.to_owned());
    labels
}
