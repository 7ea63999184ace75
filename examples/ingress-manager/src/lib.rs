//! Services that are annotated `ingress/http: "true"` get an Ingress of the same name that routes to them.
//!
//! The Ingress belongs to the Service. It goes with the annotation or the Service, and comes back when
//! somebody deletes or changes it. An Ingress of that name that belongs to somebody else is left alone.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::json;
use setpoint::owner::{controller_of, controller_reference, is_controlled_by};
use setpoint::{
    Action, Context, Controller, Ensured, Event, ObjectKey, ReconcileError, Verb, ensure, key_of,
};

/// What asks for an Ingress, with the value `true`.
pub const ANNOTATION: &str = "ingress/http";

/// How the Ingresses shall be.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The class of every Ingress; the cluster's default class without it.
    pub ingress_class: Option<String>,
}

/// The controller.
pub fn controller(settings: Settings) -> Controller {
    Controller::of::<Service>(.., "ingress-manager", reconcile)
        // By name, not by owner: it also matters when an Ingress that is somebody else's goes away.
        .watches::<Ingress>(.., |ingress| key_of(ingress).into_iter().collect())
        .writes::<Ingress>(&[Verb::Create, Verb::Patch, Verb::Delete])
        .records_events()
        .state(settings)
        .workers(2)
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let service = cx.lister::<Service>()?.get(&key);
    let current = cx.lister::<Ingress>()?.get(&key);
    let ingresses: Api<Ingress> = Api::namespaced(cx.client(), key.namespace().unwrap_or_default());

    let Some(service) = service else {
        // The garbage collector does this as well, where there is one.
        if let Some(ingress) = current.filter(|ingress| belongs_to_service(ingress, key.name())) {
            delete(&ingresses, &ingress).await?;
        }
        return Ok(Action::done());
    };
    if service.metadata.deletion_timestamp.is_some() {
        return Ok(Action::done());
    }
    let is_mine = current.as_deref().is_some_and(|ingress| is_controlled_by(ingress, &*service));
    if !is_wanted(&service) {
        if let Some(ingress) = current.filter(|_| is_mine) {
            delete(&ingresses, &ingress).await?;
            cx.recorder().event(&*service, Event::normal("IngressDeleted", "the annotation is gone"));
        }
        return Ok(Action::done());
    }
    if current.is_some() && !is_mine {
        let note = format!("Ingress {:?} already exists and is not managed by this Service", key.name());
        cx.recorder().event(&*service, Event::warning("ErrResourceExists", note));
        return Ok(Action::done());
    }
    let Some(wanted) = wanted_ingress(&service, cx.state()?)? else {
        let note = "a Service without ports can have no Ingress: add a port, or remove the annotation";
        cx.recorder().event(&*service, Event::warning("NoPort", note));
        return Ok(Action::done());
    };
    let event = match ensure(&ingresses, current.as_deref(), &wanted).await? {
        Ensured::Created(_) => Event::normal("IngressCreated", "requests are routed to this Service"),
        Ensured::Updated(_) => Event::normal("IngressUpdated", "the Ingress was not as it should be"),
        Ensured::Unchanged => return Ok(Action::done()),
    };
    cx.recorder().event(&*service, event);
    Ok(Action::done())
}

fn is_wanted(service: &Service) -> bool {
    service.annotations().get(ANNOTATION).is_some_and(|value| value == "true")
}

/// Whether an Ingress was made for a Service of this name, be it the one that is there now or not.
fn belongs_to_service(ingress: &Ingress, name: &str) -> bool {
    controller_of(ingress).is_some_and(|owner| owner.kind == "Service" && owner.name == name)
}

/// The Ingress of a Service: everything goes to its first port. None if it has no port.
fn wanted_ingress(service: &Service, settings: &Settings) -> Result<Option<Ingress>, serde_json::Error> {
    let port = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten()).next();
    let Some(port) = port else { return Ok(None) };
    let ingress = json!({
        "metadata": {
            "name": service.name_any(),
            "namespace": service.namespace(),
            "ownerReferences": [controller_reference(service)],
        },
        "spec": {
            "ingressClassName": settings.ingress_class,
            "rules": [{"http": {"paths": [{
                "path": "/",
                "pathType": "Prefix",
                "backend": {"service": {"name": service.name_any(), "port": {"number": port.port}}},
            }]}}],
        },
    });
    serde_json::from_value(ingress).map(Some)
}

/// Deletes exactly what was looked at: not one that somebody has taken over or made anew since.
async fn delete(ingresses: &Api<Ingress>, ingress: &Ingress) -> Result<(), kube::Error> {
    let seen = Preconditions { uid: ingress.uid(), resource_version: ingress.resource_version() };
    let parameters = DeleteParams { preconditions: Some(seen), ..DeleteParams::background() };
    match ingresses.delete(&ingress.name_any(), &parameters).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        deleted => deleted.map(drop),
    }
}
