//! Claims of volumes, also those inside pods and stateful sets.

use serde_json::{Value, json};
use setpoint_kinds::Quantity;

use super::at::{At, same};
use super::fill::{Fields, default as set, part, part_or_new};
use super::pod::resources;
use super::{difference, pod};
use crate::metadata::names;
use crate::strategy::Part;

pub(super) const ACCESS_MODES: [&str; 4] =
    ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";

pub(super) fn default(claim: &mut Value) {
    if let Some(fields) = claim.as_object_mut() {
        default_fields(fields);
    }
}

pub(super) fn default_fields(claim: &mut Fields) {
    default_spec(part_or_new(claim, "spec"));
    set(part_or_new(claim, "status"), "phase", "Pending");
}

pub(super) fn default_spec(spec: &mut Fields) {
    set(spec, "volumeMode", "Filesystem");
    if let Some(resources) = part(spec, "resources") {
        for list in ["limits", "requests"] {
            if let Some(amounts) = part(resources, list) {
                pod::resources::round_up(amounts);
            }
        }
    }
}

/// A claim names its source in both ways.
pub(super) fn prepare_create(claim: &mut Value) {
    if let Some(spec) = claim["spec"].as_object_mut()
        && !spec.contains_key("dataSourceRef")
        && spec.get("dataSource").is_some_and(|source| !is_claim_or_snapshot(source))
    {
        // The older field takes nothing else, and says nothing about it.
        spec.remove("dataSource");
    }
    normalize_source(claim);
}

fn is_claim_or_snapshot(source: &Value) -> bool {
    let text = |field: &str| source[field].as_str().unwrap_or_default();
    matches!(
        (text("apiGroup"), text("kind")),
        ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
    )
}

pub(super) fn prepare_update(claim: &mut Value, part: Part) {
    if part == Part::Main {
        normalize_source(claim);
    }
}

/// `dataSource` and `dataSourceRef` are two names of one thing.
fn normalize_source(claim: &mut Value) {
    let Some(spec) = claim["spec"].as_object_mut() else { return };
    match (spec.get("dataSource").cloned(), spec.get("dataSourceRef").cloned()) {
        (Some(source), None) => drop(spec.insert("dataSourceRef".to_owned(), source)),
        (None, Some(reference)) if reference["namespace"].as_str().is_none_or(str::is_empty) => {
            spec.insert("dataSource".to_owned(), reference);
        }
        _ => {}
    }
}

pub(super) fn validate(claim: &At, old: Option<&Value>, part: Part) {
    if part == Part::Status {
        return validate_status(claim);
    }
    validate_spec(&claim.field("spec"));
    if let Some(old) = old {
        validate_update(claim, old);
    }
}

pub(super) fn validate_spec(spec: &At) {
    let modes = spec.field("accessModes");
    if modes.is_empty() {
        modes.required("at least 1 access mode is required");
    }
    spec.field("selector").label_selector();
    access_modes(&modes);
    storage(&spec.field("resources"));
    spec.field("storageClassName").has_form_if_set(names::dns1123_subdomain);
    spec.field("volumeMode").one_of_if_set(&["Block", "Filesystem"]);
    let (source, reference) = (spec.field("dataSource"), spec.field("dataSourceRef"));
    for at in [&source, &reference].into_iter().filter(|at| at.exists()) {
        data_source(at);
    }
    let elsewhere = !reference.field("namespace").is_empty();
    if source.exists() && elsewhere {
        spec.invalid_as(json!({}), "may not be specified when dataSourceRef.namespace is specified");
    } else if source.exists() && reference.exists() {
        let differ = |field: &str| source.field(field).value() != reference.field(field).value();
        if ["apiGroup", "kind", "name"].into_iter().any(differ) {
            spec.invalid_as(json!({}), "must match dataSourceRef");
        }
    }
    spec.field("volumeAttributesClassName").has_form_if_set(names::dns1123_subdomain);
}

/// Problems are shown at the list, as kube-apiserver does.
pub(super) fn access_modes(modes: &At) {
    for mode in modes.texts().filter(|mode| !ACCESS_MODES.contains(mode)) {
        modes.not_supported_as(mode, &ACCESS_MODES);
    }
    let single = modes.texts().any(|mode| mode == "ReadWriteOncePod");
    if single && modes.texts().any(|mode| mode != "ReadWriteOncePod" && ACCESS_MODES.contains(&mode)) {
        modes.forbidden("may not use ReadWriteOncePod with other access modes");
    }
}

fn storage(resources: &At) {
    let requests = resources.field("requests");
    let wanted = requests.key("storage");
    let place = resources.key("storage");
    let place = place.with(wanted.value());
    if !wanted.exists() {
        place.required("");
    } else if wanted.quantity() <= Quantity::ZERO {
        place.invalid("must be greater than zero");
    } else {
        resources::amount("storage", &place);
    }
}

fn data_source(source: &At) {
    source.field("name").has_text();
    source.field("kind").has_text();
    let (group, kind) = (source.field("apiGroup"), source.field("kind").text());
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        source.invalid_as(kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup");
    }
    group.has_form_if_set(names::dns1123_subdomain);
    source.field("namespace").has_form_if_set(names::dns1123_label);
}

fn validate_update(claim: &At, old: &Value) {
    let spec = claim.field("spec");
    let (mut new_spec, mut old_spec) = (spec.value().clone(), old["spec"].clone());
    let take = |from: &Value, to: &mut Value, field: &str| match from.get(field) {
        Some(value) => to[field] = value.clone(),
        None => drop(to.as_object_mut().and_then(|to| to.remove(field))),
    };
    if old_spec["volumeName"].as_str().is_none_or(str::is_empty) {
        take(&new_spec.clone(), &mut old_spec, "volumeName");
    }
    let metadata = claim.field("metadata");
    let annotations = metadata.field("annotations");
    let before = &old["metadata"]["annotations"][CLASS];
    if annotations.field(CLASS).value() != before {
        annotations.field(CLASS).invalid_text("field is immutable");
    }
    if old["spec"]["storageClassName"].is_null()
        && (before.is_null() || *before == new_spec["storageClassName"])
    {
        take(&old_spec.clone(), &mut new_spec, "storageClassName");
    }
    if claim.field("status").field("phase").text() == "Bound" {
        if new_spec["resources"]["requests"].is_object() {
            new_spec["resources"]["requests"]["storage"] =
                old["spec"]["resources"]["requests"]["storage"].clone();
        }
        take(&old_spec.clone(), &mut new_spec, "volumeAttributesClassName");
    }
    if !same(&new_spec, &old_spec) {
        let difference = difference::of(&old_spec, &new_spec);
        spec.forbidden(format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound \
             claims\n{difference}"
        ));
    }
    let size = |value: &Value| Quantity::of(value["storage"].as_str().unwrap_or("0"));
    let (new_size, old_size) =
        (size(&spec.value()["resources"]["requests"]), size(&old["spec"]["resources"]["requests"]));
    if new_size < old_size && new_size <= size(&old["status"]["capacity"]) {
        let resources = spec.field("resources");
        let requests = resources.field("requests");
        requests.field("storage").forbidden("field can not be less than status.capacity");
    }
    claim.alias("volumeMode").with(spec.field("volumeMode").value()).immutable(&old["spec"]["volumeMode"]);
}

fn validate_status(claim: &At) {
    let status = claim.field("status");
    for (_, amount) in status.field("capacity").entries() {
        if amount.quantity() < Quantity::ZERO {
            amount.invalid_as(amount.quantity().whole(), "must be a valid resource quantity");
        }
    }
}
