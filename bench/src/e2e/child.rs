//! What all Rust controllers of the benchmark do: the child that a source should have.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// When the source was changed: the field of both.
pub(crate) const AT: &str = "at";
/// When the reconcile was called: a field of the child.
pub(crate) const RECONCILED: &str = "reconciled";
/// How many reconciles may run at once.
pub(crate) const WORKERS: u16 = 16;

/// Nanoseconds of the wall clock, which all processes of a machine share.
pub(crate) fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()
}

/// When a source says that it was changed.
pub(crate) fn at(source: &ConfigMap) -> Option<&str> {
    source.data.as_ref()?.get(AT).map(String::as_str)
}

/// What is to be written, if anything: the child of a source that is not as it should be.
pub(crate) fn wanted(source: &ConfigMap, current: Option<&Secret>, now: u128) -> Option<Secret> {
    let at = at(source)?;
    let current_at = current.and_then(|child| child.data.as_ref()?.get(AT));
    if current_at.is_some_and(|current| current.0 == at.as_bytes()) {
        return None;
    }
    let mut child = current.cloned().unwrap_or_else(|| new(source));
    let bytes = |text: String| ByteString(text.into_bytes());
    child.data = Some(BTreeMap::from([
        (AT.to_owned(), bytes(at.to_owned())),
        (RECONCILED.to_owned(), bytes(now.to_string())),
    ]));
    Some(child)
}

fn new(source: &ConfigMap) -> Secret {
    let mut child = Secret::default();
    child.metadata.name = source.metadata.name.clone();
    child.metadata.namespace = source.metadata.namespace.clone();
    child.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        name: source.metadata.name.clone().unwrap_or_default(),
        uid: source.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }]);
    child
}
