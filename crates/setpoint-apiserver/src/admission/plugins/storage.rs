//! `StorageObjectInUseProtection` and `PersistentVolumeClaimResize`.

use serde_json::{Value, json};
use setpoint_kinds::Quantity;

use super::super::{Attributes, Operation};
use crate::handlers::get::read;
use crate::object::{self, metadata_mut};
use crate::resource::Registry;
use crate::server::Core;
use crate::status::Result;

/// Holds an object back when it is deleted, until nobody uses it.
pub(super) fn protect(plural: &str, object: &mut Value) {
    let finalizer = match plural {
        "persistentvolumeclaims" => "kubernetes.io/pvc-protection",
        "persistentvolumes" => "kubernetes.io/pv-protection",
        _ => "kubernetes.io/vac-protection",
    };
    let finalizers = metadata_mut(object).entry("finalizers").or_insert_with(|| json!([]));
    if finalizers.is_null() {
        *finalizers = json!([]);
    }
    if let Value::Array(list) = finalizers
        && !list.iter().any(|found| found == finalizer)
    {
        list.push(finalizer.into());
    }
}

/// A claim may grow if it is bound, and its class says that its volumes can.
pub(super) async fn may_grow(core: &Core, attributes: &Attributes<'_>, claim: &Value) -> Result<()> {
    let Some(old) = attributes.old.filter(|_| attributes.operation == Operation::Update) else {
        return Ok(());
    };
    let size = |claim: &Value| {
        let text = claim["spec"]["resources"]["requests"]["storage"].as_str().unwrap_or("0").to_owned();
        Quantity::of(&text)
    };
    if size(claim) <= size(old) {
        return Ok(());
    }
    if old["status"]["phase"] != "Bound" {
        let why = "Only bound persistent volume claims can be expanded";
        return Err(attributes.forbidden(Some(claim), why));
    }
    let (class, before) = (class_of(claim), class_of(old));
    if !class.is_empty() && class == before {
        let classes = Registry::built_in().expect("storage.k8s.io", "v1", "storageclasses");
        if let Some(record) = read(core, &classes.key(None, class)).await?
            && object::decode(&record.value, record.revision)["allowVolumeExpansion"] == true
        {
            return Ok(());
        }
    }
    let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must \
               support resize";
    Err(attributes.forbidden(Some(claim), why))
}

/// The class of a claim, in the older way or the newer.
fn class_of(claim: &Value) -> &str {
    let old = claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"].as_str();
    old.or(claim["spec"]["storageClassName"].as_str()).unwrap_or_default()
}
