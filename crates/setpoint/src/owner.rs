//! Who an object belongs to: owner references, and which objects a controller may take or must let go.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use kube::core::{Selector, SelectorExt};
use serde_json::{Value, json};

use crate::Object;

/// Why an object cannot be given to an owner.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OwnerError {
    /// An object has one controller at most.
    #[error("{child} is controlled by {kind} {name} already")]
    Controlled {
        /// The name of the object.
        child: String,
        /// The kind of its controller.
        kind: String,
        /// The name of its controller.
        name: String,
    },
    /// The owner has no name or uid: it does not come from a server.
    #[error("the owner has no name or no uid; use one that the server has answered")]
    NoOwner,
    /// The garbage collector would take the owner for gone, and delete the object.
    #[error("{child} in {child_namespace} cannot be owned by an object in {owner_namespace}")]
    Namespace {
        /// The name of the object.
        child: String,
        /// Where the object is.
        child_namespace: String,
        /// Where the owner is.
        owner_namespace: String,
    },
}

/// Makes `owner` the controller of `child`, which is about to be created or updated. It is deleted with its
/// owner, and an owner that is deleted in the foreground waits for it.
///
/// ```
/// use setpoint::k8s_openapi::api::core::v1::{ConfigMap, Pod};
/// use setpoint::owner::{controller_of, set_controller};
/// # fn from<T: serde::de::DeserializeOwned>(text: &str) -> T { serde_json::from_str(text).unwrap() }
///
/// let pod: Pod = from(r#"{"metadata": {"name": "web", "namespace": "default", "uid": "1"}}"#);
/// let mut map: ConfigMap = from(r#"{"metadata": {"name": "settings", "namespace": "default"}}"#);
/// set_controller(&pod, &mut map)?;
/// assert_eq!(controller_of(&map).unwrap().name, "web");
/// # Ok::<(), setpoint::owner::OwnerError>(())
/// ```
#[doc(alias = "SetControllerReference")]
pub fn set_controller<K, C>(owner: &K, child: &mut C) -> Result<(), OwnerError>
where
    K: Resource<DynamicType: Default>,
    C: Resource,
{
    let reference = controller_reference(owner).ok_or(OwnerError::NoOwner)?;
    let (owner, child) = (owner.meta(), child.meta_mut());
    let child_name = || child.name.clone().unwrap_or_default();
    if let Some(namespace) = &owner.namespace
        && child.namespace.as_ref() != Some(namespace)
    {
        return Err(OwnerError::Namespace {
            child: child_name(),
            child_namespace: child.namespace.clone().unwrap_or_else(|| "no namespace".to_owned()),
            owner_namespace: namespace.clone(),
        });
    }
    if let Some(other) = controller(child).filter(|other| other.uid != reference.uid) {
        let (kind, name) = (other.kind.clone(), other.name.clone());
        return Err(OwnerError::Controlled { child: child_name(), kind, name });
    }
    let references = child.owner_references.get_or_insert_default();
    references.retain(|other| other.uid != reference.uid);
    references.push(reference);
    Ok(())
}

/// The reference that makes `owner` the controller of an object; none if it has no name or uid.
#[doc(alias = "NewControllerRef")]
pub fn controller_reference<K>(owner: &K) -> Option<OwnerReference>
where
    K: Resource<DynamicType: Default>,
{
    let reference = owner.controller_owner_ref(&K::DynamicType::default())?;
    Some(OwnerReference { block_owner_deletion: Some(true), ..reference })
}

/// The controller of an object.
#[doc(alias = "GetControllerOf")]
pub fn controller_of<T: Object>(object: &T) -> Option<&OwnerReference> {
    controller(object.meta())
}

fn controller(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|reference| reference.controller == Some(true))
}

/// Whether `owner`, and not one of the same name before or after it, controls the object.
#[doc(alias = "IsControlledBy")]
pub fn is_controlled_by<T: Object, O: Object>(object: &T, owner: &O) -> bool {
    let uid = owner.meta().uid.as_deref();
    controller_of(object).is_some_and(|reference| Some(reference.uid.as_str()) == uid)
}

/// What a controller that finds its objects by labels, like a ReplicaSet, does with one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is the owner's and its labels match: use it.
    Keep,
    /// It is nobody's and its labels match: apply [`adoption_patch`], then use it. Before the first one, read
    /// the owner from the server: if it is gone or has another uid, take nothing.
    Adopt,
    /// It is the owner's, but its labels match no longer: apply [`release_patch`].
    Release,
    /// It is somebody else's, or nobody's and on its way out: leave it.
    Ignore,
}

/// Decides what `owner` does with `object`, by the rules of Kubernetes' own controllers.
#[doc(alias = "ClaimObject")]
pub fn claim<O: Object, T: Object>(owner: &O, selector: &Selector, object: &T) -> Claim {
    let (owner, object) = (owner.meta(), object.meta());
    let empty = BTreeMap::new();
    let matches = selector.matches(object.labels.as_ref().unwrap_or(&empty));
    let is_owner_going = owner.deletion_timestamp.is_some();
    match controller(object) {
        Some(reference) if Some(&reference.uid) != owner.uid.as_ref() => Claim::Ignore,
        Some(_) if matches => Claim::Keep,
        // The garbage collector sees to it.
        Some(_) if is_owner_going => Claim::Ignore,
        Some(_) => Claim::Release,
        None if !matches || is_owner_going || object.deletion_timestamp.is_some() => Claim::Ignore,
        None if owner.namespace.is_some() && owner.namespace != object.namespace => Claim::Ignore,
        None => Claim::Adopt,
    }
}

/// A merge patch by which `owner` takes `object`. It fails with a conflict if the object has changed since, so
/// that no other owner can be overwritten.
pub fn adoption_patch<K, T>(owner: &K, object: &T) -> Option<Value>
where
    K: Resource<DynamicType: Default>,
    T: Object,
{
    let meta = object.meta();
    let mut references = meta.owner_references.clone().unwrap_or_default();
    let reference = controller_reference(owner)?;
    references.retain(|other| other.uid != reference.uid);
    references.push(reference);
    Some(owners_patch(meta, &references))
}

/// A merge patch by which `owner` lets go of `object`. It fails with a conflict if the object has changed since.
pub fn release_patch<O: Object, T: Object>(owner: &O, object: &T) -> Value {
    let meta = object.meta();
    let mut references = meta.owner_references.clone().unwrap_or_default();
    references.retain(|reference| Some(&reference.uid) != owner.meta().uid.as_ref());
    owners_patch(meta, &references)
}

fn owners_patch(meta: &ObjectMeta, references: &[OwnerReference]) -> Value {
    json!({"metadata": {
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
        "ownerReferences": references,
    }})
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
    use serde::de::DeserializeOwned;

    use super::*;

    fn object<T: DeserializeOwned>(metadata: Value) -> T {
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    fn owner() -> ConfigMap {
        object(json!({"name": "owner", "namespace": "default", "uid": "u1"}))
    }

    fn reference(uid: &str, controller: bool) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "controller": controller})
    }

    #[test]
    fn a_controller_reference_blocks_the_owners_deletion_and_is_set_once() {
        let mut child: ConfigMap = object(json!({"name": "child", "namespace": "default"}));
        set_controller(&owner(), &mut child).unwrap();
        set_controller(&owner(), &mut child).unwrap();
        let [reference] = &child.metadata.owner_references.as_ref().unwrap()[..] else { panic!("not one") };
        assert_eq!((reference.controller, reference.block_owner_deletion), (Some(true), Some(true)));
        assert_eq!((reference.api_version.as_str(), reference.kind.as_str()), ("v1", "ConfigMap"));
        assert!(is_controlled_by(&child, &owner()));
    }

    #[test]
    fn other_owners_stay() {
        let references = json!([reference("u0", false)]);
        let mut child: ConfigMap =
            object(json!({"name": "child", "namespace": "default", "ownerReferences": references}));
        set_controller(&owner(), &mut child).unwrap();
        assert_eq!(child.metadata.owner_references.unwrap().len(), 2);
    }

    #[test]
    fn what_cannot_be_owned_is_refused_with_the_reason() {
        let set = |owner: &ConfigMap, child: Value| {
            set_controller(owner, &mut object::<ConfigMap>(child)).unwrap_err().to_string()
        };
        let taken =
            json!({"name": "child", "namespace": "default", "ownerReferences": [reference("u0", true)]});
        assert_eq!(set(&owner(), taken), "child is controlled by ConfigMap owner already");
        assert_eq!(
            set(&owner(), json!({"name": "child", "namespace": "other"})),
            "child in other cannot be owned by an object in default"
        );
        assert_eq!(
            set(&object(json!({"name": "new"})), json!({"name": "child"})),
            "the owner has no name or no uid; use one that the server has answered"
        );
    }

    #[test]
    fn an_owner_of_the_whole_cluster_may_own_anything() {
        let owner: Namespace = object(json!({"name": "team", "uid": "u1"}));
        let mut child: ConfigMap = object(json!({"name": "child", "namespace": "default"}));
        set_controller(&owner, &mut child).unwrap();
        assert!(is_controlled_by(&child, &owner));
    }

    #[test]
    fn an_owner_that_was_created_again_controls_nothing() {
        let child: ConfigMap = object(json!({"name": "child", "ownerReferences": [reference("u0", true)]}));
        assert!(!is_controlled_by(&child, &owner()));
        assert!(!is_controlled_by(&child, &object::<ConfigMap>(json!({"name": "owner"}))));
    }

    #[test]
    fn objects_are_claimed_by_owner_and_labels() {
        let selector: Selector = [("app", "web")].into_iter().collect();
        let deleted = "2026-01-01T00:00:00Z";
        let (mine, others) = (json!([reference("u1", true)]), json!([reference("u2", true)]));
        let (web, db) = (json!({"app": "web"}), json!({"app": "db"}));
        let going =
            json!({"name": "owner", "namespace": "default", "uid": "u1", "deletionTimestamp": deleted});
        let check = |owner: &ConfigMap, labels: &Value, references: &Value, deletion: Option<&str>| {
            let child = json!({"name": "child", "namespace": "default", "labels": labels,
                               "ownerReferences": references, "deletionTimestamp": deletion});
            claim(owner, &selector, &object::<ConfigMap>(child))
        };
        let (owner, going, nobody) = (owner(), object::<ConfigMap>(going), json!([]));
        assert_eq!(check(&owner, &web, &mine, None), Claim::Keep);
        assert_eq!(check(&owner, &web, &mine, Some(deleted)), Claim::Keep);
        assert_eq!(check(&owner, &db, &mine, None), Claim::Release);
        assert_eq!(check(&going, &db, &mine, None), Claim::Ignore);
        assert_eq!(check(&owner, &web, &others, None), Claim::Ignore);
        assert_eq!(check(&owner, &web, &nobody, None), Claim::Adopt);
        assert_eq!(check(&owner, &db, &nobody, None), Claim::Ignore);
        assert_eq!(check(&owner, &web, &nobody, Some(deleted)), Claim::Ignore);
        assert_eq!(check(&going, &web, &nobody, None), Claim::Ignore);
        let elsewhere: ConfigMap = object(json!({"name": "owner", "namespace": "other", "uid": "u1"}));
        assert_eq!(check(&elsewhere, &web, &nobody, None), Claim::Ignore);
    }

    #[test]
    fn patches_name_the_version_that_they_were_made_for() {
        let child: ConfigMap = object(json!({
            "name": "child", "uid": "c", "resourceVersion": "7", "ownerReferences": [reference("u0", false)],
        }));
        let adopt = adoption_patch(&owner(), &child).unwrap();
        assert_eq!(adopt["metadata"]["resourceVersion"], "7");
        assert_eq!(adopt["metadata"]["ownerReferences"].as_array().unwrap().len(), 2);
        let adopted: ConfigMap = object(adopt["metadata"].clone());
        assert_eq!(
            release_patch(&owner(), &adopted)["metadata"]["ownerReferences"].as_array().unwrap().len(),
            1
        );
    }
}
