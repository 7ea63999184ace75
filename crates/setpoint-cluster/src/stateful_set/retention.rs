//! Who owns the volume claims of a StatefulSet: nobody, the set, or a pod that is not wanted any more. The garbage
//! collector deletes them with their owner.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use setpoint::owner::controller_reference;

use super::identity::{ordinal, ordinals};

/// When claims are deleted.
#[derive(Clone, Copy)]
pub(super) struct Policy {
    pub(super) when_deleted: bool,
    pub(super) when_scaled: bool,
}

pub(super) fn policy(set: &StatefulSet) -> Policy {
    let policy = set.spec.persistent_volume_claim_retention_policy.as_ref();
    let deletes = |when: Option<&String>| when.is_some_and(|when| when == "Delete");
    Policy {
        when_deleted: deletes(policy.and_then(|policy| policy.when_deleted.as_ref())),
        when_scaled: deletes(policy.and_then(|policy| policy.when_scaled.as_ref())),
    }
}

fn owners(claim: &PersistentVolumeClaim) -> &[OwnerReference] {
    claim.metadata.owner_references.as_deref().unwrap_or_default()
}

/// Whether a reference is to an object of this kind and name, whatever its uid.
fn names<K: Resource<DynamicType = ()>>(reference: &OwnerReference, object: &K) -> bool {
    reference.kind == K::kind(&())
        && reference.api_version == K::api_version(&())
        && Some(&reference.name) == object.meta().name.as_ref()
}

fn is_it<K: Resource<DynamicType = ()>>(reference: &OwnerReference, object: &K) -> bool {
    Some(&reference.uid) == object.meta().uid.as_ref()
}

/// Whether the claim belongs to an earlier object of the same kind and name.
fn is_of_earlier<K: Resource<DynamicType = ()>>(claim: &PersistentVolumeClaim, object: &K) -> bool {
    owners(claim).iter().find(|owner| names(owner, object)).is_some_and(|owner| !is_it(owner, object))
}

pub(super) fn is_of_earlier_pod(claim: &PersistentVolumeClaim, pod: &Pod) -> bool {
    is_of_earlier(claim, pod)
}

/// Whether somebody else controls the claim, so that the policy cannot hold for it.
pub(super) fn has_foreign_controller(claim: &PersistentVolumeClaim, set: &StatefulSet, pod: &Pod) -> bool {
    let policy = policy(set);
    (policy.when_deleted || policy.when_scaled)
        && owners(claim).iter().any(|owner| {
            if names(owner, set) {
                !is_it(owner, set)
            } else if names(owner, pod) {
                !is_it(owner, pod)
            } else {
                owner.controller == Some(true)
            }
        })
}

/// The owners that a claim should have; none if it has them.
pub(super) fn wanted_owners(
    claim: &PersistentVolumeClaim,
    set: &StatefulSet,
    pod: &Pod,
) -> Option<Vec<OwnerReference>> {
    // One that is about to be collected is left to that.
    if is_of_earlier(claim, set) || is_of_earlier(claim, pod) {
        return None;
    }
    let is_ours = |owner: &OwnerReference| is_it(owner, set) || is_it(owner, pod);
    let mut wanted: Vec<OwnerReference> =
        owners(claim).iter().filter(|owner| !names(owner, set) && !names(owner, pod)).cloned().collect();
    if has_foreign_controller(claim, set, pod) {
        return owners(claim).iter().any(is_ours).then_some(wanted);
    }
    let is_scaled_down = ordinal(pod).is_none_or(|place| !ordinals(set).contains(&place));
    let Policy { when_deleted, when_scaled } = policy(set);
    if when_scaled && is_scaled_down {
        wanted.extend(controller_reference(pod));
    } else if when_deleted {
        wanted.extend(controller_reference(set));
    }
    let state = |owners: &[OwnerReference]| {
        let mut state: Vec<_> = owners
            .iter()
            .filter(|owner| is_ours(owner))
            .map(|owner| (owner.uid.clone(), owner.controller == Some(true)))
            .collect();
        state.sort();
        state
    };
    (state(&wanted) != state(owners(claim))).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn set(deleted: &str, scaled: &str) -> StatefulSet {
        let policy = json!({"whenDeleted": deleted, "whenScaled": scaled});
        let spec = json!({"replicas": 2, "selector": {}, "serviceName": "", "template": {},
            "persistentVolumeClaimRetentionPolicy": policy});
        serde_json::from_value(json!({"metadata": {"name": "web", "uid": "set"}, "spec": spec})).unwrap()
    }

    fn check(policy: (&str, &str), place: i32, owners: &[(&str, &str, &str)], expected: Option<&[&str]>) {
        let name = format!("web-{place}");
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": name, "uid": "pod"}})).unwrap();
        let owners: Vec<Value> = owners
            .iter()
            .map(|(kind, name, uid)| {
                let version = if *kind == "StatefulSet" { "apps/v1" } else { "v1" };
                json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true})
            })
            .collect();
        let claim = json!({"metadata": {"name": "data", "ownerReferences": owners}});
        let claim = serde_json::from_value(claim).unwrap();
        let wanted = wanted_owners(&claim, &set(policy.0, policy.1), &pod);
        let wanted = wanted.map(|owners| owners.into_iter().map(|owner| owner.uid).collect::<Vec<_>>());
        assert_eq!(
            wanted.as_deref(),
            expected.map(|uids| uids.iter().map(|u| (*u).to_owned()).collect::<Vec<_>>()).as_deref()
        );
    }

    #[test]
    fn the_policy_decides_who_owns_a_claim() {
        const SET: (&str, &str, &str) = ("StatefulSet", "web", "set");
        let pod = |place: &'static str| ("Pod", place, "pod");
        check(("Retain", "Retain"), 0, &[], None);
        check(("Retain", "Retain"), 0, &[SET], Some(&[]));
        check(("Delete", "Retain"), 0, &[], Some(&["set"]));
        check(("Delete", "Retain"), 5, &[SET], None);
        check(("Retain", "Delete"), 0, &[], None);
        check(("Retain", "Delete"), 5, &[], Some(&["pod"]));
        check(("Retain", "Delete"), 0, &[pod("web-0")], Some(&[]));
        check(("Delete", "Delete"), 0, &[], Some(&["set"]));
        check(("Delete", "Delete"), 5, &[SET], Some(&["pod"]));
        check(("Delete", "Delete"), 5, &[pod("web-5")], None);
    }

    #[test]
    fn what_others_own_is_left_to_them() {
        check(("Delete", "Delete"), 0, &[("StatefulSet", "web", "earlier")], None);
        check(("Delete", "Delete"), 0, &[("Pod", "web-0", "earlier")], None);
        check(("Delete", "Delete"), 0, &[("Backup", "b", "other")], None);
    }
}
