//! Volumes of the cluster.

use serde_json::Value;
use setpoint_kinds::Quantity;

use super::at::{At, same};
use super::difference;
use super::fill::{default as set, default_text, part_or_new};
use super::persistent_volume_claim::access_modes;
use super::pod::{node_selector, volume};
use crate::metadata::names;
use crate::strategy::Part;

/// In the order in which kube-apiserver looks at them.
const SOURCES: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

pub(super) fn default(volume: &mut Value) {
    let Some(fields) = volume.as_object_mut() else { return };
    set(part_or_new(fields, "status"), "phase", "Pending");
    let spec = part_or_new(fields, "spec");
    default_text(spec, "persistentVolumeReclaimPolicy", "Retain");
    set(spec, "volumeMode", "Filesystem");
    volume::legacy_defaults(spec);
}

pub(super) fn prepare_create(volume: &mut Value, now: Value) {
    volume["status"] = serde_json::json!({"phase": "Pending", "lastPhaseTransitionTime": now});
}

/// A new phase comes with its time.
pub(super) fn prepare_update(volume: &mut Value, old: &Value, part: Part, now: impl Fn() -> Value) {
    const TIME: &str = "lastPhaseTransitionTime";
    if part != Part::Status {
        return;
    }
    let before = &old["status"];
    let Some(status) = volume.get_mut("status").and_then(Value::as_object_mut) else { return };
    let is_same_phase = status.get("phase") == before.get("phase");
    let given = status.get(TIME).filter(|time| !time.is_null());
    let time = match (is_same_phase, given) {
        (true, None) => before.get(TIME).cloned(),
        (false, None) => Some(now()),
        (false, Some(time)) if before.get(TIME) == Some(time) => Some(now()),
        _ => return,
    };
    if let Some(time) = time {
        status.insert(TIME.to_owned(), time);
    }
}

pub(super) fn validate(volume: &At, old: Option<&Value>, part: Part) {
    if part == Part::Status {
        return;
    }
    let spec = volume.field("spec");
    let modes = spec.field("accessModes");
    if modes.is_empty() {
        modes.required("");
    }
    access_modes(&modes);
    capacity(&spec.field("capacity"));
    let policy = spec.field("persistentVolumeReclaimPolicy");
    if !policy.is_empty() {
        policy.one_of_if_set(&["Delete", "Recycle", "Retain"]);
    }
    let affinity = spec.field("nodeAffinity");
    if affinity.exists() {
        if affinity.field("required").exists() {
            node_selector(&affinity.field("required"));
        } else {
            affinity.field("required").required("must specify required node constraints");
        }
    }
    source(&spec);
    spec.field("storageClassName").has_form_if_set(names::dns1123_subdomain);
    spec.field("volumeMode").one_of_if_set(&["Block", "Filesystem"]);
    if let Some(old) = old {
        validate_update(volume, old);
    }
}

fn capacity(capacity: &At) {
    if capacity.is_empty() {
        capacity.required("");
    }
    if capacity.len() != 1 || !capacity.key("storage").exists() {
        capacity.not_supported_as(capacity.value().clone(), &["storage"]);
    }
    for (_, amount) in capacity.entries() {
        if amount.quantity() < Quantity::ZERO {
            amount.invalid_as(amount.quantity().whole(), "must be a valid resource quantity");
        }
        if amount.quantity() <= Quantity::ZERO {
            amount.invalid("must be greater than zero");
        }
    }
}

fn source(spec: &At) {
    let mut found = false;
    for name in SOURCES {
        let source = spec.field(name);
        if !source.exists() {
            continue;
        }
        if found {
            source.forbidden("may not specify more than 1 volume type");
            continue;
        }
        found = true;
        match name {
            "hostPath" => volume::host_path(&source),
            "nfs" => volume::nfs(&source),
            "csi" => {
                volume::csi_driver_name(&source.field("driver"));
                source.field("volumeHandle").has_text();
            }
            "local" => {
                if source.field("path").has_text() {
                    source.field("path").no_backsteps();
                }
                if !spec.field("nodeAffinity").exists() {
                    spec.alias("nodeAffinity").required("Local volume requires node affinity");
                }
            }
            name => volume::legacy_source(name, &source),
        }
    }
    if !found {
        spec.required("must specify a volume type");
    }
    let path = spec.field("hostPath");
    if path.field("path").text() == "/" && spec.field("persistentVolumeReclaimPolicy").text() == "Recycle" {
        spec.field("persistentVolumeReclaimPolicy")
            .forbidden("may not be 'recycle' for a hostPath mount of '/'");
    }
}

fn validate_update(volume: &At, old: &Value) {
    let spec = volume.field("spec");
    if SOURCES.iter().any(|name| !same(spec.field(name).value(), &old["spec"][*name])) {
        let difference = difference::of(&old["spec"], spec.value());
        spec.field("persistentvolumesource")
            .forbidden(format!("spec.persistentvolumesource is immutable after creation\n{difference}"));
    }
    volume.alias("volumeMode").with(spec.field("volumeMode").value()).immutable(&old["spec"]["volumeMode"]);
    if !old["spec"]["nodeAffinity"].is_null()
        && !same(spec.field("nodeAffinity").value(), &old["spec"]["nodeAffinity"])
    {
        let affinity = spec.field("nodeAffinity");
        let detail = "field is immutable, except for updating from beta label to GA";
        volume.alias("nodeAffinity").with(affinity.value()).invalid(detail);
    }
}
