//! Namespaces are active, labelled with their name, and emptied before they go.

use serde_json::{Map, Value, json};

use super::at::At;
use crate::metadata;
use crate::object::{self, metadata_mut};
use crate::strategy::Part;

pub(super) fn default(namespace: &mut Value) {
    let name = object::name(namespace).to_owned();
    if name.is_empty() {
        return;
    }
    let labels = metadata_mut(namespace).entry("labels").or_insert_with(|| Value::Object(Map::new()));
    labels["kubernetes.io/metadata.name"] = name.into();
    if namespace["status"]["phase"].is_null() {
        namespace["status"]["phase"] = "Active".into();
    }
}

pub(super) fn prepare_create(namespace: &mut Value) {
    // The namespace controller empties the namespace, then removes this.
    let finalizers = &mut namespace["spec"]["finalizers"];
    let list = finalizers.as_array().cloned().unwrap_or_default();
    if !list.iter().any(|finalizer| finalizer == "kubernetes") {
        *finalizers = list.into_iter().chain(["kubernetes".into()]).collect();
    }
    namespace["status"] = json!({"phase": "Active"});
}

pub(super) fn validate(namespace: &At, part: Part) {
    let spec = namespace.field("spec");
    match part {
        Part::Main | Part::Whole => {
            let finalizers = spec.field("finalizers");
            for name in finalizers.items() {
                finalizer(name.text(), &finalizers);
            }
        }
        Part::Finalize => {
            for name in spec.field("finalizers").items() {
                finalizer(name.text(), &name);
            }
        }
        Part::Status => {
            let phase = namespace.field("status").field("phase").text().to_owned();
            let leaving = namespace.field("metadata").field("deletionTimestamp").exists();
            let status = namespace.field("status");
            if leaving && phase != "Terminating" {
                let detail = "may only be 'Terminating' if `deletionTimestamp` is not empty";
                status.alias("Phase").invalid_as(phase, detail);
            } else if !leaving && phase != "Active" {
                let detail = "may only be 'Active' if `deletionTimestamp` is empty";
                status.alias("Phase").invalid_as(phase, detail);
            }
        }
        Part::Scale | Part::Approval | Part::EphemeralContainers | Part::Resize => {}
    }
}

fn finalizer(name: &str, at: &At) {
    for problem in metadata::names::label_key(name) {
        at.invalid_as(name, problem);
    }
    if let Some(problem) = metadata::unqualified_finalizer(name) {
        at.invalid_as(name, problem);
    }
}
