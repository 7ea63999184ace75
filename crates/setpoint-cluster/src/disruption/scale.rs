//! How many pods the owners of some pods want.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use setpoint::controller::ListerError;
use setpoint::owner::controller_of;
use setpoint::{Context, Lister};

/// The pods that the owners want in all, and the names of those without an owner.
pub(super) fn of(cx: &Context, pods: &[Arc<Pod>]) -> Result<(i32, Vec<String>), String> {
    let owners = Owners::of(cx).map_err(|error| error.to_string())?;
    let mut scales: BTreeMap<String, i32> = BTreeMap::new();
    let mut unmanaged = Vec::new();
    for pod in pods {
        let Some(owner) = controller_of(&**pod) else {
            unmanaged.push(pod.name_any());
            continue;
        };
        let namespace = pod.namespace().unwrap_or_default();
        let (uid, scale) = owners
            .scale(owner, &namespace)
            .ok_or_else(|| format!("found no controllers for pod {:?}", pod.name_any()))?;
        scales.insert(uid, scale);
    }
    Ok((scales.into_values().fold(0, i32::saturating_add), unmanaged))
}

/// Those who own pods.
struct Owners {
    replica_sets: Lister<ReplicaSet>,
    deployments: Lister<Deployment>,
    stateful_sets: Lister<StatefulSet>,
    controllers: Lister<ReplicationController>,
}

impl Owners {
    fn of(cx: &Context) -> Result<Owners, ListerError> {
        Ok(Owners {
            replica_sets: cx.lister()?,
            deployments: cx.lister()?,
            stateful_sets: cx.lister()?,
            controllers: cx.lister()?,
        })
    }

    /// The uid and the wanted pods of the owner that decides.
    fn scale(&self, owner: &OwnerReference, namespace: &str) -> Option<(String, i32)> {
        let (group, _) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
        let this = |uid: Option<String>| uid.filter(|uid| *uid == owner.uid);
        match (group, owner.kind.as_str()) {
            ("apps" | "extensions", "ReplicaSet") => {
                let set = self.replica_sets.namespace(namespace).get(&owner.name)?;
                let uid = this(set.uid())?;
                // A Deployment has several sets; it knows how many pods there are in all.
                match controller_of(&*set).filter(|owner| owner.kind == "Deployment") {
                    Some(parent) => {
                        let deployment = self.deployments.namespace(namespace).get(&parent.name)?;
                        let uid = deployment.uid().filter(|uid| *uid == parent.uid)?;
                        Some((uid, deployment.spec.replicas.unwrap_or(1)))
                    }
                    None => Some((uid, set.spec.replicas.unwrap_or(1))),
                }
            }
            ("apps", "StatefulSet") => {
                let set = self.stateful_sets.namespace(namespace).get(&owner.name)?;
                Some((this(set.uid())?, set.spec.replicas.unwrap_or(1)))
            }
            ("", "ReplicationController") => {
                let set = self.controllers.namespace(namespace).get(&owner.name)?;
                let replicas = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
                Some((this(set.uid())?, replicas))
            }
            _ => None,
        }
    }
}
