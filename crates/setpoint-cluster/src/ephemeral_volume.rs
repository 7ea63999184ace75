//! Makes the claims of pods whose volumes come and go with them.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimTemplate, Pod, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use setpoint::owner::{controller_reference, is_controlled_by};
use setpoint::{Action, Change, Context, Controller, Event, ObjectKey, Predicate, ReconcileError, Watch};

use crate::failure;

/// How long one reconcile may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);
const NAME: &str = "ephemeral-volume-controller";

pub(crate) fn controller() -> Controller {
    // Most pods have no such volume. Which ones a pod has never changes.
    let pods = Watch::<Pod>::new().filter(Predicate::new(|change| match change {
        Change::Added(pod) | Change::Updated(_, pod) => templates(pod).next().is_some(),
        Change::Deleted(_) => false,
    }));
    Controller::of(pods, NAME, reconcile).owns::<PersistentVolumeClaim>(..).time_limit(TIME_LIMIT)
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let pod = cx.lister::<Pod>()?.get(&key).filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let Some(pod) = pod else { return Ok(Action::done()) };
    for (volume, template) in templates(&pod) {
        provide(&cx, &pod, volume, template).await?;
    }
    Ok(Action::done())
}

/// The volumes of a pod that come and go with it, and what their claims are made of.
fn templates(pod: &Pod) -> impl Iterator<Item = (&Volume, &PersistentVolumeClaimTemplate)> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| Some((volume, volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?)))
}

/// Makes the claim of a volume, if there is none. One of that name that is somebody else's is not used.
async fn provide(
    cx: &Context,
    pod: &Pod,
    volume: &Volume,
    template: &PersistentVolumeClaimTemplate,
) -> Result<(), ReconcileError> {
    let (namespace, name) =
        (pod.namespace().unwrap_or_default(), format!("{}-{}", pod.name_any(), volume.name));
    if let Some(known) = cx.lister::<PersistentVolumeClaim>()?.namespace(&namespace).get(&name) {
        if is_controlled_by(&*known, pod) {
            return Ok(());
        }
        let owner = pod.name_any();
        let note =
            format!("PVC {namespace}/{name} was not created for pod {namespace}/{owner} (pod is not owner)");
        cx.recorder().event(pod, Event::warning("ErrorCreatingPVC", note.clone()));
        return Err(note.into());
    }
    let meta = template.metadata.clone().unwrap_or_default();
    let metadata = ObjectMeta {
        name: Some(name),
        namespace: Some(namespace.clone()),
        labels: meta.labels,
        annotations: meta.annotations,
        owner_references: controller_reference(pod).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    let claim = PersistentVolumeClaim { metadata, spec: Some(template.spec.clone()), status: None };
    match Api::namespaced(cx.client(), &namespace).create(&PostParams::default(), &claim).await {
        Err(error) if failure::is_namespace_terminating(&error) => Ok(()),
        Err(error) => {
            let note = format!("error creating PVC: {}", failure::message(&error));
            cx.recorder().event(pod, Event::warning("ErrorCreatingPVC", note));
            Err(error.into())
        }
        Ok(_) => Ok(()),
    }
}
