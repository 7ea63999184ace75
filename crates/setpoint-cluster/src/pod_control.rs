//! Making and deleting the pods of an owner, with the events that people know.

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams};
use setpoint::owner::controller_reference;
use setpoint::{Context, Event, ReconcileError};

use crate::owned::Kind;
use crate::{failure, unread};

/// The longest name that a pod may have.
const LONGEST_NAME: usize = 253;
/// How many pods of an owner are created at the same time. Several owners at once must not take all the places for requests
/// that the server has.
const AT_ONCE: usize = 32;

/// A pod as the template of its owner says.
pub(crate) fn from_template<K: Kind>(owner: &K, template: &PodTemplateSpec) -> Pod {
    let name = owner.name_any();
    let meta = template.metadata.clone().unwrap_or_default();
    let metadata = ObjectMeta {
        generate_name: Some(if name.len() < LONGEST_NAME { format!("{name}-") } else { name }),
        namespace: owner.namespace(),
        labels: meta.labels,
        annotations: meta.annotations,
        finalizers: meta.finalizers,
        owner_references: Some(controller_reference(owner).into_iter().collect()),
        ..ObjectMeta::default()
    };
    Pod { metadata, spec: template.spec.clone(), status: None }
}

/// Creates a pod of an owner. A namespace that is being deleted takes none, which is no failure.
pub(crate) async fn create<K: Kind>(cx: &Context, owner: &K, pod: &Pod) -> Result<(), kube::Error> {
    match unread::create(&cx.client(), &owner.namespace().unwrap_or_default(), pod).await {
        Ok(name) => {
            let note = format!("Created pod: {name}");
            cx.recorder().event(owner, Event::normal("SuccessfulCreate", note));
            Ok(())
        }
        Err(error) if failure::is_namespace_terminating(&error) => Ok(()),
        Err(error) => {
            let note = format!("Error creating: {}", failure::message(&error));
            cx.recorder().event(owner, Event::warning("FailedCreate", note));
            Err(error)
        }
    }
}

/// Deletes a pod of an owner. One that is gone already is no failure.
pub(crate) async fn delete<K: Kind>(cx: &Context, owner: &K, pod: &Pod) -> Result<(), ReconcileError> {
    let pods: Api<Pod> = Api::namespaced(cx.client(), &owner.namespace().unwrap_or_default());
    let name = pod.name_any();
    let parameters = DeleteParams::default()
        .preconditions(kube::api::Preconditions { uid: pod.metadata.uid.clone(), resource_version: None });
    match pods.delete(&name, &parameters).await {
        Ok(_) => {
            let note = format!("Deleted pod: {name}");
            cx.recorder().event(owner, Event::normal("SuccessfulDelete", note));
            Ok(())
        }
        Err(error) if failure::is_not_found(&error) => Ok(()),
        Err(error) => {
            let note = failure::message(&error);
            cx.recorder().event(owner, Event::warning("FailedDelete", format!("Error deleting: {note}")));
            Err(format!("unable to delete pods: {note}").into())
        }
    }
}

/// Deletes pods at the same time. The first failure of several is told.
pub(crate) async fn delete_all<'a, K: Kind>(
    cx: &Context,
    owner: &K,
    pods: impl IntoIterator<Item = &'a Pod>,
) -> Result<(), ReconcileError> {
    let deleted = join_all(pods.into_iter().map(|pod| delete(cx, owner, pod))).await;
    deleted.into_iter().collect()
}

/// Creates pods in batches of one, two, four, … up to [`AT_ONCE`]: if the first fails, for example for want of quota, the others
/// would fail too, and are not tried. Says how many were created.
pub(crate) async fn create_slowly<K: Kind>(
    cx: &Context,
    owner: &K,
    pods: &[Pod],
) -> (usize, Result<(), kube::Error>) {
    let (mut created, mut size) = (0, 1);
    while created < pods.len() {
        let batch = &pods[created..(created + size).min(pods.len())];
        let results = join_all(batch.iter().map(|pod| create(cx, owner, pod))).await;
        created += results.iter().filter(|result| result.is_ok()).count();
        if let Some(failed) = results.into_iter().find(Result::is_err) {
            return (created, failed);
        }
        size = (size * 2).min(AT_ONCE);
    }
    (created, Ok(()))
}
