//! How many pods the owners of some pods want.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use setpoint::Context;
use setpoint::owner::controller_of;

/// The pods that the owners want in all, and the names of those without an owner.
pub(super) fn of(cx: &Context, pods: &[Arc<Pod>]) -> Result<(i32, Vec<String>), String> {
    let mut scales: BTreeMap<String, i32> = BTreeMap::new();
    let mut unmanaged = Vec::new();
    for pod in pods {
        let Some(owner) = controller_of(&**pod) else {
            unmanaged.push(pod.name_any());
            continue;
        };
        let namespace = pod.namespace().unwrap_or_default();
        let (uid, scale) = of_owner(cx, owner, &namespace)
            .ok_or_else(|| format!("found no controllers for pod {:?}", pod.name_any()))?;
        scales.insert(uid, scale);
    }
    Ok((scales.into_values().fold(0, i32::saturating_add), unmanaged))
}

/// The uid and the wanted pods of the owner that decides.
fn of_owner(cx: &Context, owner: &OwnerReference, namespace: &str) -> Option<(String, i32)> {
    let (group, _) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
    let this = |uid: Option<String>| uid.filter(|uid| *uid == owner.uid);
    match (group, owner.kind.as_str()) {
        ("apps" | "extensions", "ReplicaSet") => {
            let set = cx.lister::<ReplicaSet>().namespace(namespace).get(&owner.name)?;
            let uid = this(set.uid())?;
            // A Deployment has several sets; it knows how many pods there are in all.
            match controller_of(&*set).filter(|owner| owner.kind == "Deployment") {
                Some(parent) => {
                    let deployment = cx.lister::<Deployment>().namespace(namespace).get(&parent.name)?;
                    let uid = deployment.uid().filter(|uid| *uid == parent.uid)?;
                    Some((uid, deployment.spec.replicas.unwrap_or(1)))
                }
                None => Some((uid, set.spec.replicas.unwrap_or(1))),
            }
        }
        ("apps", "StatefulSet") => {
            let set = cx.lister::<StatefulSet>().namespace(namespace).get(&owner.name)?;
            Some((this(set.uid())?, set.spec.replicas.unwrap_or(1)))
        }
        ("", "ReplicationController") => {
            let set = cx.lister::<ReplicationController>().namespace(namespace).get(&owner.name)?;
            let replicas = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
            Some((this(set.uid())?, replicas))
        }
        _ => None,
    }
}
