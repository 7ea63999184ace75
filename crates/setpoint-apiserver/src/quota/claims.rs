//! What PersistentVolumeClaims count as.

use std::collections::BTreeSet;

use serde_json::Value;
use setpoint_kinds::Quantity;

use super::Amounts;
use super::scopes::Scope;

const CLAIMS: &str = "persistentvolumeclaims";
const STORAGE: &str = "requests.storage";
/// What follows the name of a storage class in the name of a resource of that class.
const OF_CLASS: &str = ".storageclass.storage.k8s.io/";

pub(super) fn tracks(name: &str) -> bool {
    let resource = name.split_once(OF_CLASS).map_or(name, |(_, resource)| resource);
    [CLAIMS, STORAGE].contains(&resource)
}

pub(super) fn usage(claim: &Value) -> Amounts {
    let mut usage = Amounts::default();
    let class = class_of(claim);
    let mut charge = |name: &str, amount: Quantity| {
        usage.set(name, amount);
        if !class.is_empty() {
            usage.set(&format!("{class}{OF_CLASS}{name}"), amount);
        }
    };
    charge(CLAIMS, Quantity::ONE);
    if let Some(storage) = storage(claim) {
        charge(STORAGE, storage);
    }
    usage
}

/// The class of a claim, in the older way or the newer.
fn class_of(claim: &Value) -> &str {
    let old = claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"].as_str();
    old.or(claim["spec"]["storageClassName"].as_str()).unwrap_or_default()
}

/// What is asked for, or was allocated meanwhile if that is more, in whole bytes.
fn storage(claim: &Value) -> Option<Quantity> {
    let amount = |list: &Value| list["storage"].as_str().map(|text| Quantity::of(text).round_up());
    let asked = amount(&claim["spec"]["resources"]["requests"])?;
    Some(amount(&claim["status"]["allocatedResources"]).map_or(asked, |allocated| asked.max(allocated)))
}

/// Whether a change of a claim's status changes what it uses, or what it is in the scope of.
pub(super) fn differ(old: &Value, new: &Value) -> bool {
    let allocated = |claim: &Value| claim["status"]["allocatedResources"]["storage"].clone();
    allocated(old) != allocated(new) || attribute_classes(old) != attribute_classes(new)
}

/// The VolumeAttributesClasses that a claim has, had or is about to have.
fn attribute_classes(claim: &Value) -> BTreeSet<&str> {
    let names = [
        &claim["spec"]["volumeAttributesClassName"],
        &claim["status"]["currentVolumeAttributesClassName"],
        &claim["status"]["modifyVolumeStatus"]["targetVolumeAttributesClassName"],
    ];
    names.into_iter().filter_map(Value::as_str).filter(|name| !name.is_empty()).collect()
}

pub(super) fn matches(scope: &Scope<'_>, claim: &Value) -> bool {
    if scope.name != "VolumeAttributesClass" {
        return false;
    }
    let names = attribute_classes(claim);
    if names.is_empty() { scope.holds(None) } else { names.into_iter().any(|name| scope.holds(Some(name))) }
}
