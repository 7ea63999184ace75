//! How many pods the owners of some pods want.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference;
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use setpoint::controller::ListerError;
use setpoint::owner::controller_of;
use setpoint::{Context, Lister};
use tokio::time::timeout;

use crate::failure;
use crate::scale_target::Targets;

/// How long the server may take to say how an object is scaled.
const LIMIT: Duration = Duration::from_secs(30);

/// The pods that the owners want in all, and the names of those without an owner.
pub(super) async fn of(cx: &Context, pods: &[Arc<Pod>]) -> Result<(i32, Vec<String>), String> {
    let owners = Owners::of(cx).map_err(|error| error.to_string())?;
    let (mut scales, mut others) = (BTreeMap::new(), BTreeMap::new());
    let mut unmanaged = Vec::new();
    for pod in pods {
        let Some(owner) = controller_of(&**pod) else {
            unmanaged.push(pod.name_any());
            continue;
        };
        let namespace = pod.namespace().unwrap_or_default();
        let found = match owners.scale(owner, &namespace) {
            Scale::Known(found) => found,
            // Asked for once, however many pods it owns.
            Scale::Elsewhere => match others.get(&owner.uid) {
                Some(found) => Clone::clone(found),
                None => {
                    let found = elsewhere(cx, owner, &namespace).await?;
                    others.insert(owner.uid.clone(), found.clone());
                    found
                }
            },
        };
        let (uid, scale) =
            found.ok_or_else(|| format!("found no controllers for pod {:?}", pod.name_any()))?;
        scales.insert(uid, scale);
    }
    Ok((scales.into_values().fold(0, i32::saturating_add), unmanaged))
}

/// How many pods an owner of another kind wants, by its scale subresource. None if it has none, or is another object by now.
async fn elsewhere(
    cx: &Context,
    owner: &OwnerReference,
    namespace: &str,
) -> Result<Option<(String, i32)>, String> {
    let targets = cx.state::<Targets>().map_err(|error| error.to_string())?;
    let reference = CrossVersionObjectReference {
        api_version: Some(owner.api_version.clone()),
        kind: owner.kind.clone(),
        name: owner.name.clone(),
    };
    let client = cx.untracked_client();
    let Ok(api) = targets.api(&client, namespace, &reference).await else { return Ok(None) };
    match timeout(LIMIT, api.get_scale(&owner.name)).await {
        Ok(Ok(scale)) => {
            let uid = scale.metadata.uid.filter(|uid| *uid == owner.uid);
            let replicas = scale.spec.and_then(|spec| spec.replicas).unwrap_or_default();
            Ok(uid.map(|uid| (uid, replicas)))
        }
        // The object is gone, or its kind has another version now, or cannot be scaled.
        Ok(Err(error)) if failure::is_not_found(&error) => {
            targets.forget(&reference);
            Ok(None)
        }
        Ok(Err(error)) => Err(failure::message(&error)),
        Err(_) => Err(format!("the server does not say how {} {:?} is scaled", owner.kind, owner.name)),
    }
}

enum Scale {
    /// The uid and the wanted pods of the owner that decides, if it is there.
    Known(Option<(String, i32)>),
    /// It is of a kind that is not cached.
    Elsewhere,
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

    fn scale(&self, owner: &OwnerReference, namespace: &str) -> Scale {
        let (group, _) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
        let is_cached = matches!(
            (group, owner.kind.as_str()),
            ("apps" | "extensions", "ReplicaSet") | ("apps", "StatefulSet") | ("", "ReplicationController")
        );
        if is_cached { Scale::Known(self.cached(owner, namespace)) } else { Scale::Elsewhere }
    }

    fn cached(&self, owner: &OwnerReference, namespace: &str) -> Option<(String, i32)> {
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
