//! What volumes are made of.

use setpoint_kinds::Quantity;

use super::super::super::at::At;
use super::super::super::persistent_volume_claim;
use super::super::environment;
use super::projected;
use crate::metadata::names;

pub(super) fn validate(name: &str, source: &At) {
    match name {
        "emptyDir" => empty_dir(source),
        "hostPath" => host_path(source),
        "gitRepo" => {
            source.field("repository").has_text();
            source.field("directory").descending_path();
        }
        "secret" => {
            source.field("secretName").has_text();
            files(source);
        }
        "configMap" => {
            source.field("name").has_text();
            files(source);
        }
        "nfs" => nfs(source),
        "persistentVolumeClaim" => {
            source.field("claimName").has_text();
        }
        "downwardAPI" => {
            source.field("defaultMode").file_mode();
            source.field("items").items().for_each(|item| downward_file(&item, source));
        }
        "projected" => {
            source.field("defaultMode").file_mode();
            projected::validate(source);
        }
        "csi" => csi(source),
        "ephemeral" => ephemeral(source),
        "image" => {
            source.field("reference").has_text();
            source.field("pullPolicy").one_of(&["Always", "IfNotPresent", "Never"]);
        }
        _ => legacy_source(name, source),
    }
}

/// The sources of clouds and storage systems that drivers have replaced.
pub(in crate::kinds) fn legacy_source(name: &str, source: &At) {
    let needed: &[&str] = match name {
        "gcePersistentDisk" => &["pdName"],
        "awsElasticBlockStore" | "cinder" | "portworxVolume" => &["volumeID"],
        "glusterfs" => &["endpoints", "path"],
        "rbd" => &["monitors", "image"],
        "cephfs" => &["monitors"],
        "flexVolume" => &["driver"],
        "azureFile" => &["secretName", "shareName"],
        "vsphereVolume" => &["volumePath"],
        "photonPersistentDisk" => &["pdID"],
        "azureDisk" => &["diskName", "diskURI"],
        "iscsi" => &["targetPortal", "iqn"],
        "quobyte" => &["volume"],
        "scaleIO" => &["gateway", "system", "volumeName"],
        _ => &[],
    };
    for field in needed.iter().filter(|field| source.field(field).is_empty()) {
        source.field(field).required("");
    }
    let partition = source.field("partition");
    if partition.number().is_some_and(|number| !(0..=255).contains(&number)) {
        partition.invalid("must be between 1 and 255, inclusive");
    }
    if name == "fc" && source.field("targetWWNs").is_empty() && source.field("wwids").is_empty() {
        source.field("targetWWNs").required("must specify either targetWWNs or wwids, but not both");
    }
}

fn empty_dir(source: &At) {
    let limit = source.field("sizeLimit");
    if limit.exists() && limit.quantity() < Quantity::ZERO {
        limit.forbidden("SizeLimit field must be a valid resource quantity");
    }
}

pub(in crate::kinds) fn host_path(source: &At) {
    const TYPES: [&str; 8] =
        ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    if !source.field("path").has_text() {
        return;
    }
    source.field("path").no_backsteps();
    source.field("type").one_of_if_set(&TYPES);
}

pub(in crate::kinds) fn nfs(source: &At) {
    source.field("server").has_text();
    source.field("path").has_text();
    if !source.field("path").text().starts_with('/') {
        source.field("path").invalid_text("must be an absolute path");
    }
}

/// The files of a secret or of a config map.
fn files(source: &At) {
    source.field("defaultMode").file_mode();
    source.field("items").items().for_each(|item| key_to_path(&item));
}

pub(super) fn key_to_path(item: &At) {
    item.field("key").has_text();
    item.field("path").has_text();
    item.field("path").unreserved_path();
    item.field("mode").file_mode();
}

/// A file of the downward API. Its problems are shown at `place`, as kube-apiserver does.
pub(super) fn downward_file(file: &At, place: &At) {
    let file = place.with(file.value());
    file.field("path").has_text();
    file.field("path").unreserved_path();
    let (field, resource) = (file.field("fieldRef"), file.field("resourceFieldRef"));
    if field.exists() {
        environment::file_field_ref(&field);
        if resource.exists() {
            file.invalid_as("resource", "fieldRef and resourceFieldRef can not be specified simultaneously");
        }
    } else if resource.exists() {
        environment::resource_ref(&resource, true);
    } else {
        file.required("one of fieldRef and resourceFieldRef is required");
    }
    file.field("mode").file_mode();
}

pub(in crate::kinds) fn csi_driver_name(name: &At) {
    if !name.has_text() {
        return;
    }
    if name.text().len() > 63 {
        name.too_long(63);
    }
    for problem in names::dns1123_subdomain(&name.text().to_lowercase()) {
        name.invalid(problem);
    }
}

fn csi(source: &At) {
    csi_driver_name(&source.field("driver"));
    let secret = source.field("nodePublishSecretRef");
    if !secret.exists() {
        return;
    }
    let name = secret.field("name");
    if name.has_text() {
        for problem in names::dns1123_subdomain(name.text()) {
            source.alias("name").invalid_as(name.text(), problem);
        }
    }
}

fn ephemeral(source: &At) {
    let template = source.field("volumeClaimTemplate");
    if !template.exists() {
        return template.required("");
    }
    let meta = template.field("metadata");
    meta.field("annotations").annotations();
    meta.field("labels").labels();
    for (name, _) in meta.entries().filter(|(name, _)| !["annotations", "labels"].contains(name)) {
        meta.field(name).forbidden("cannot be set");
    }
    persistent_volume_claim::validate_spec(&template.field("spec"));
}
