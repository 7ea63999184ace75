//! Volumes of a pod, and where containers mount them.

mod mount;
mod projected;
mod source;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::at::At;
use super::super::fill::{Fields, default as set, default_text, each, part};
use super::super::persistent_volume_claim;
use super::image;
use crate::metadata::names;
pub(super) use mount::{devices, mounts};
pub(in crate::kinds) use source::{csi_driver_name, host_path, legacy_source, nfs};

/// What a volume of a pod can be made of, in kube-apiserver's order. The second is the name that its message
/// uses when there is another one already.
const SOURCES: [(&str, &str); 30] = [
    ("emptyDir", "emptyDir"),
    ("hostPath", "hostPath"),
    ("gitRepo", "gitRepo"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("secret", "secret"),
    ("nfs", "nfs"),
    ("iscsi", "iscsi"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("persistentVolumeClaim", "persistentVolumeClaim"),
    ("rbd", "rbd"),
    ("cinder", "cinder"),
    ("cephfs", "cephFS"),
    ("quobyte", "quobyte"),
    ("downwardAPI", "downwarAPI"),
    ("fc", "fc"),
    ("flexVolume", "flexVolume"),
    ("configMap", "configMap"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("storageos", "storageos"),
    ("projected", "projected"),
    ("scaleIO", "scaleIO"),
    ("csi", "csi"),
    ("ephemeral", "ephemeral"),
    ("image", "image"),
];

/// The volumes that are as they should be, by name. Null stands for one that the workload adds.
pub(super) type Volumes<'v> = BTreeMap<&'v str, &'v Value>;

static CLAIMED: Value = Value::Null;

pub(super) fn default(volume: &mut Fields) {
    if SOURCES.iter().all(|(name, _)| !volume.contains_key(*name)) {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
    for name in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = part(volume, name) {
            set(source, "defaultMode", 0o644);
            each(source, "items").for_each(field_ref);
            each(source, "sources").for_each(projection);
        }
    }
    if let Some(path) = part(volume, "hostPath") {
        set(path, "type", "");
    }
    if let Some(source) = part(volume, "image")
        && super::super::fill::text(source, "pullPolicy").is_empty()
    {
        let latest = image::is_latest(super::super::fill::text(source, "reference"));
        source.insert("pullPolicy".to_owned(), if latest { "Always" } else { "IfNotPresent" }.into());
    }
    if let Some(template) = part(volume, "ephemeral").and_then(|source| part(source, "volumeClaimTemplate"))
        && let Some(spec) = part(template, "spec")
    {
        persistent_volume_claim::default_spec(spec);
    }
    legacy_defaults(volume);
}

/// Defaults of the sources that only old clusters have; persistent volumes share them.
pub(in crate::kinds) fn legacy_defaults(volume: &mut Fields) {
    const TEXTS: [(&str, &str, &str); 10] = [
        ("iscsi", "iscsiInterface", "default"),
        ("rbd", "pool", "rbd"),
        ("rbd", "user", "admin"),
        ("rbd", "keyring", "/etc/ceph/keyring"),
        ("azureDisk", "cachingMode", "ReadWrite"),
        ("azureDisk", "fsType", "ext4"),
        ("azureDisk", "kind", "Shared"),
        ("scaleIO", "storageMode", "ThinProvisioned"),
        ("scaleIO", "fsType", "xfs"),
        ("hostPath", "type", ""),
    ];
    for (source, field, value) in TEXTS {
        if let Some(source) = part(volume, source) {
            set(source, field, value);
        }
    }
    if let Some(disk) = part(volume, "azureDisk") {
        set(disk, "readOnly", false);
    }
}

fn projection(source: &mut Fields) {
    if let Some(downward) = part(source, "downwardAPI") {
        each(downward, "items").for_each(field_ref);
    }
    if let Some(token) = part(source, "serviceAccountToken") {
        set(token, "expirationSeconds", 3600);
    }
}

fn field_ref(item: &mut Fields) {
    if let Some(field) = part(item, "fieldRef") {
        default_text(field, "apiVersion", "v1");
    }
}

/// Checks the volumes of a pod with this name; a template has none. `claimed` are the names of volumes that
/// the workload adds, which take the place of those of the same name.
pub(super) fn validate_list<'v>(volumes: &At<'v, '_>, pod_name: &str, claimed: &[&'v str]) -> Volumes<'v> {
    let created: Vec<String> = if pod_name.is_empty() {
        Vec::new()
    } else {
        let ephemeral = volumes.items().filter(|volume| volume.field("ephemeral").exists());
        ephemeral.map(|volume| format!("{pod_name}-{}", volume.field("name").text())).collect()
    };
    let mut found: Volumes = claimed.iter().map(|name| (*name, &CLAIMED)).collect();
    for volume in volumes.items() {
        let name = volume.field("name");
        if claimed.contains(&name.text()) {
            continue;
        }
        let before = volumes.errors().len();
        validate(&volume, pod_name);
        name.is_named(names::dns1123_label);
        if found.contains_key(name.text()) {
            name.duplicate();
        }
        if volumes.errors().len() == before {
            found.insert(name.text(), volume.value());
        }
        let source = volume.field("persistentVolumeClaim");
        let claim = source.field("claimName");
        if source.exists() && created.iter().any(|created| created == claim.text()) {
            claim.invalid_text("must not reference a PVC that gets created for an ephemeral volume");
        }
    }
    found
}

fn validate(volume: &At, pod_name: &str) {
    let mut found = false;
    for (name, shown) in SOURCES {
        let source = volume.field(name);
        if !source.exists() {
            continue;
        }
        if found {
            volume.alias(shown).forbidden("may not specify more than 1 volume type");
            continue;
        }
        found = true;
        source::validate(name, &source);
        if name == "ephemeral" {
            ephemeral_name(volume, pod_name);
        }
    }
    if !found {
        volume.required("must specify a volume type");
    }
}

/// The claim of an ephemeral volume is called after the pod and the volume.
fn ephemeral_name(volume: &At, pod_name: &str) {
    let name = volume.field("name");
    if pod_name.is_empty() || name.is_empty() {
        return;
    }
    let claim = format!("{pod_name}-{}", name.text());
    for problem in names::dns1123_subdomain(&claim) {
        name.invalid(format!("PVC name {claim:?}: {problem}"));
    }
}
