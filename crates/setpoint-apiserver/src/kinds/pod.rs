//! Pods, and the templates of pods that workloads have.

mod affinity;
mod annotations;
mod container;
mod defaults;
mod environment;
mod image;
mod probe;
mod resize;
pub(super) mod resources;
mod scheduling;
mod security;
mod spec;
mod status;
pub(super) mod template;
mod update;
pub(super) mod volume;

use serde_json::{Map, Value, json};

use super::at::At;
use crate::strategy::Part;
pub(super) use affinity::node_selector;
pub(crate) use resources::quality_of_service;
pub(super) use scheduling::taint_effect;
use spec::Of;

pub(super) fn default(pod: &mut Value) {
    let Some(pod) = pod.as_object_mut() else { return };
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        defaults::pod(spec);
        defaults::spec(spec);
    }
    status::default(pod);
}

/// Pods begin as Pending.
pub(super) fn prepare_create(pod: &mut Value, now: Value) {
    let mut status = json!({"phase": "Pending", "qosClass": resources::quality_of_service(&pod["spec"])});
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        status["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null, "lastTransitionTime": now
        }]);
    }
    pod["status"] = status;
    let labels = pod["metadata"].get("labels").cloned().unwrap_or_else(|| Value::Object(Map::new()));
    if let Some(spec) = pod["spec"].as_object_mut() {
        affinity::merge_label_keys(spec, &labels);
    }
}

pub(super) fn prepare_update(pod: &mut Value, old: &Value, part: Part) {
    match part {
        Part::Main => {
            let Some(spec) = pod["spec"].as_object_mut() else { return };
            keep_if_absent(spec, &old["spec"], &["resources"]);
        }
        Part::Status => status::keep(pod, old),
        Part::Resize => {
            let Some(spec) = pod["spec"].as_object_mut() else { return };
            keep_if_absent(spec, &old["spec"], &["resources"]);
        }
        Part::Whole | Part::Scale | Part::EphemeralContainers | Part::Finalize | Part::Approval => {}
    }
}

/// What clients that do not know a field leave out stays as it was.
fn keep_if_absent(spec: &mut Map<String, Value>, old: &Value, fields: &[&str]) {
    for field in fields {
        if !spec.contains_key(*field)
            && let Some(value) = old.get(field)
        {
            spec.insert((*field).to_owned(), value.clone());
        }
    }
}

pub(super) fn validate_create(pod: &At) {
    metadata_and_spec(pod);
    let spec = pod.field("spec");
    if !spec.field("ephemeralContainers").is_empty() {
        spec.field("ephemeralContainers").forbidden("cannot be set on create");
    }
    if !spec.field("nodeName").is_empty() && !spec.field("schedulingGates").is_empty() {
        spec.field("nodeName").forbidden("cannot be set until all schedulingGates have been cleared");
    }
    annotations::match_fields(&pod.field("metadata"), &spec);
}

pub(super) fn validate_update(pod: &At, old: &Value, part: Part) {
    match part {
        Part::Main => {
            metadata_and_spec(pod);
            annotations::validate_update(pod, old);
            update::validate(&pod.field("spec"), &old["spec"]);
        }
        Part::Status => {
            annotations::validate_update(pod, old);
            status::validate(pod, old);
        }
        Part::EphemeralContainers => {
            if old["metadata"]["annotations"].get(annotations::MIRROR).is_some() {
                return pod.forbidden("static pods do not support ephemeral containers");
            }
            metadata_and_spec(pod);
            annotations::validate_update(pod, old);
            update::validate_ephemeral_containers(&pod.field("spec"), &old["spec"]);
        }
        Part::Resize => resize::validate(pod, old),
        Part::Whole | Part::Scale | Part::Finalize | Part::Approval => {}
    }
}

fn metadata_and_spec(pod: &At) {
    let metadata = pod.field("metadata");
    let spec = pod.field("spec");
    annotations::validate(&metadata.field("annotations"), &spec);
    spec::validate(&spec, Of::Pod(&metadata));
    spec.field("terminationGracePeriodSeconds").non_negative();
    for list in ["containers", "initContainers"] {
        for container in spec.field(list).items() {
            container::padded_image(&container);
        }
    }
}
