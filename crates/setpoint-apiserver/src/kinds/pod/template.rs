//! Templates of pods: what a workload makes its pods from.

use serde_json::Value;

use super::super::at::At;
use super::super::fill::{Fields, part};
use super::spec::{self, Of};
use super::{annotations, defaults};

pub(in crate::kinds) fn default(template: &mut Fields) {
    if let Some(spec) = part(template, "spec") {
        defaults::spec(spec);
    }
}

/// The same for the template at `spec.template` of an object.
pub(in crate::kinds) fn default_in(spec: &mut Fields) {
    if let Some(template) = part(spec, "template") {
        default(template);
    }
}

/// The same for a PodTemplate, whose template is not in a spec.
pub(in crate::kinds) fn default_in_object(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        default_in(fields);
    }
}

pub(in crate::kinds) fn validate(template: &At) {
    validate_with(template, &[]);
}

/// The same for a workload that adds volumes of these names to its pods.
pub(in crate::kinds) fn validate_with(template: &At, claimed: &[&str]) {
    let metadata = template.field("metadata");
    let spec = template.field("spec");
    let place = template.alias("annotations");
    template.alias("labels").with(metadata.field("labels").value()).labels();
    place.with(metadata.field("annotations").value()).annotations();
    annotations::validate(&place.with(metadata.field("annotations").value()), &spec);
    spec::validate_with(&spec, Of::Template, claimed);
    annotations::match_fields(&metadata, &spec);
    if !spec.field("ephemeralContainers").is_empty() {
        spec.field("ephemeralContainers").forbidden("ephemeral containers not allowed in pod template");
    }
}

/// Pods of a workload that keeps them running restart always, and have no deadline.
pub(in crate::kinds) fn keeps_running(template: &At, kind: &str) {
    let spec = template.field("spec");
    if spec.field("restartPolicy").text() != "Always" {
        spec.field("restartPolicy").not_supported(&["Always"]);
    }
    let deadline = spec.field("activeDeadlineSeconds");
    if deadline.exists() {
        deadline.forbidden(format!("activeDeadlineSeconds in {kind} is not Supported"));
    }
}

/// The labels of a template, as they are compared with selectors.
pub(in crate::kinds) fn labels<'v>(template: &At<'v, '_>) -> &'v Value {
    &template.value()["metadata"]["labels"]
}
