//! Where containers mount volumes.

use std::collections::BTreeSet;

use super::super::super::at::{At, items};
use super::Volumes;

pub(in super::super) fn mounts(container: &At, volumes: &Volumes) {
    let mounts = container.field("volumeMounts");
    let devices = items(&container.value()["volumeDevices"]);
    let mut places = BTreeSet::new();
    for mount in mounts.items() {
        let (name, path) = (mount.field("name"), mount.field("mountPath"));
        name.has_text();
        if !volumes.contains_key(name.text()) {
            name.not_found();
        }
        path.has_text();
        if !places.insert(path.text()) {
            path.invalid_text("must be unique");
        }
        if devices.iter().any(|device| device["name"] == name.text()) {
            name.invalid_text("must not already exist in volumeDevices");
        }
        if devices.iter().any(|device| device["devicePath"] == path.text()) {
            path.invalid_text("must not already exist as a path in volumeDevices");
        }
        sub_paths(&mount, &mounts);
        propagation(&mount, &mounts, container);
        recursive_read_only(&mount, &mounts);
    }
}

/// Their problems are shown at the list, as kube-apiserver does.
fn sub_paths(mount: &At, mounts: &At) {
    let (path, expression) = (mount.field("subPath"), mount.field("subPathExpr"));
    if !path.is_empty() {
        mounts.alias("subPath").with(path.value()).descending_path();
    }
    if !expression.is_empty() {
        if !path.is_empty() {
            expression.invalid("subPathExpr and subPath are mutually exclusive");
        }
        mounts.alias("subPathExpr").with(expression.value()).descending_path();
    }
}

fn propagation(mount: &At, mounts: &At, container: &At) {
    let mode = mount.field("mountPropagation");
    if !mode.exists() {
        return;
    }
    let place = mounts.alias("mountPropagation");
    place.with(mode.value()).one_of_if_set(&["Bidirectional", "HostToContainer", "None"]);
    let privileged = container.field("securityContext").field("privileged").is_true();
    if mode.text() == "Bidirectional" && !privileged {
        place.forbidden("Bidirectional mount propagation is available only to privileged containers");
    }
}

fn recursive_read_only(mount: &At, mounts: &At) {
    let mode = mount.field("recursiveReadOnly");
    let place = mounts.alias("recursiveReadOnly");
    match mode.text() {
        _ if !mode.exists() => {}
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if !mount.field("readOnly").is_true() {
                place.forbidden("may only be specified when readOnly is true");
            }
            if !matches!(mount.field("mountPropagation").text(), "" | "None") {
                place.forbidden("may only be specified when mountPropagation is None or not specified");
            }
        }
        other => place.not_supported_as(other, &["Disabled", "Enabled", "IfPossible"]),
    }
}

pub(in super::super) fn devices(container: &At, volumes: &Volumes) {
    let mounts = items(&container.value()["volumeMounts"]);
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for device in container.field("volumeDevices").items() {
        let (name, path) = (device.field("name"), device.field("devicePath"));
        name.has_text();
        if names.contains(name.text()) {
            name.invalid_text("must be unique");
        }
        match volumes.get(name.text()) {
            None => name.not_found(),
            Some(volume)
                if !volume.is_null()
                    && volume["persistentVolumeClaim"].is_null()
                    && volume["ephemeral"].is_null() =>
            {
                name.invalid_text(
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
                );
            }
            Some(_) => {}
        }
        path.has_text();
        if paths.contains(path.text()) {
            path.invalid_text("must be unique");
        }
        if path.text().split('/').any(|part| part == "..") {
            path.invalid_text("can not contain backsteps ('..')");
        } else {
            paths.insert(path.text());
        }
        if mounts.iter().any(|mount| mount["name"] == name.text()) {
            name.invalid_text("must not already exist in volumeMounts");
        }
        if mounts.iter().any(|mount| mount["mountPath"] == path.text()) {
            path.invalid_text("must not already exist as a path in volumeMounts");
        }
        if !name.is_empty() {
            names.insert(name.text());
        }
    }
}
