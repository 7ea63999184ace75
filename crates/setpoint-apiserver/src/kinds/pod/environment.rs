//! Environment variables of containers, and what they can be taken from.

use super::super::at::At;
use super::super::formats;
use crate::metadata::names;

const FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// What files of a volume may hold.
const FILE_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
/// Fields that the downward API knows at all.
const KNOWN_FIELDS: [&str; 14] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

pub(super) fn validate(variables: &At) {
    for variable in variables.items() {
        variable.field("name").is_named(formats::environment_name);
        let source = variable.field("valueFrom");
        if source.exists() {
            value_from(&source, !variable.field("value").is_empty());
        }
    }
}

fn value_from(source: &At, has_value: bool) {
    let mut sources = 0;
    let mut take = |name| {
        let taken: At = source.field(name);
        sources += usize::from(taken.exists());
        taken.exists().then_some(taken)
    };
    let [field, resource, map, secret, file] =
        ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"].map(&mut take);
    if let Some(field) = field {
        field_ref(&field, &FIELDS);
    }
    if let Some(resource) = resource {
        resource_ref(&resource, false);
    }
    for key in [map, secret].into_iter().flatten() {
        key.field("name").has_form(names::dns1123_subdomain);
        key.field("key").is_named(formats::config_key);
    }
    if let Some(file) = file {
        file.field("key").is_named(formats::environment_name);
        file.field("volumeName").is_named(names::dns1123_label);
        if file.field("path").has_text() {
            file.field("path").no_backsteps();
        }
    }
    if sources == 0 {
        source.invalid_as(
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        );
    } else if has_value {
        source.invalid_as("", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        source.invalid_as("", "may not have more than one field specified at a time");
    }
}

pub(super) fn file_field_ref(field: &At) {
    field_ref(field, &FILE_FIELDS);
}

fn field_ref(field: &At, allowed: &[&str]) {
    if field.field("apiVersion").is_empty() {
        return field.field("apiVersion").required("");
    }
    let path = field.field("fieldPath");
    if path.is_empty() {
        return path.required("");
    }
    let version = field.field("apiVersion").text();
    let subscripted = path.text().strip_suffix("']").and_then(|rest| rest.split_once("['"));
    let error = if version != "v1" {
        Some(format!("unsupported pod version: {version}"))
    } else if let Some((map, _)) = subscripted.filter(|(map, _)| !map.is_empty()) {
        (!["metadata.annotations", "metadata.labels"].contains(&map))
            .then(|| format!("field label does not support subscript: {}", path.text()))
    } else {
        (!KNOWN_FIELDS.contains(&path.text()) && path.text() != "spec.host")
            .then(|| format!("field label not supported: {}", path.text()))
    };
    if let Some(error) = error {
        return path.invalid(format!("error converting fieldPath: {error}"));
    }
    match subscripted {
        Some((map, key)) if !map.is_empty() => {
            let key = if map == "metadata.annotations" { key.to_lowercase() } else { key.to_owned() };
            for problem in names::label_key(&key) {
                field.invalid_as(key.as_str(), problem);
            }
        }
        _ => {
            let name = if path.text() == "spec.host" { "spec.nodeName" } else { path.text() };
            if !allowed.contains(&name) {
                path.not_supported_as(name, allowed);
            }
        }
    }
}

pub(super) fn resource_ref(reference: &At, is_volume: bool) {
    let resource = reference.field("resource");
    let huge = |prefix: &str| resource.text().starts_with(prefix);
    let is_huge = huge("requests.hugepages-") || huge("limits.hugepages-");
    if is_volume && reference.field("containerName").is_empty() {
        reference.field("containerName").required("");
    } else if resource.is_empty() {
        resource.required("");
    } else if !RESOURCES.contains(&resource.text()) && !is_huge {
        resource.not_supported(&RESOURCES);
    }
    divisor(reference, is_huge);
}

fn divisor(reference: &At, is_huge: bool) {
    const BYTES: [&str; 13] =
        ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let divisor = reference.field("divisor");
    if matches!(divisor.text(), "" | "0") {
        return;
    }
    let resource = reference.field("resource").text();
    let name = match resource.split_once('.').map(|(_, name)| name) {
        Some("cpu") => {
            if !["1m", "1"].contains(&divisor.text()) {
                divisor.invalid_as(
                    resource,
                    "only divisor's values 1m and 1 are supported with the cpu resource",
                );
            }
            return;
        }
        Some("memory") => "memory",
        Some("ephemeral-storage") => "local ephemeral storage",
        _ if is_huge => "hugepages",
        _ => return,
    };
    if !BYTES.contains(&divisor.text()) {
        let bytes = BYTES.join(", ");
        divisor.invalid_as(
            resource,
            format!("only divisor's values {bytes} are supported with the {name} resource"),
        );
    }
}

pub(super) fn sources(sources: &At) {
    for source in sources.items() {
        if !source.field("prefix").is_empty() {
            source.field("prefix").has_form(formats::environment_name);
        }
        let [map, secret] = ["configMapRef", "secretRef"].map(|name| source.field(name));
        for reference in [map, secret].into_iter().filter(At::exists) {
            reference.field("name").is_named(names::dns1123_subdomain_prefix);
        }
        match (map.exists(), secret.exists()) {
            (false, false) => sources.invalid_as("", "must specify one of: `configMapRef` or `secretRef`"),
            (true, true) => sources.invalid_as("", "may not have more than one field specified at a time"),
            _ => {}
        }
    }
}

/// Variables come from files of empty directories only.
pub(super) fn file_volumes(spec: &At) {
    let volumes = spec.field("volumes");
    for list in super::defaults::CONTAINERS {
        for container in spec.field(list).items() {
            for variable in container.field("env").items() {
                let source = variable.field("valueFrom");
                let file = source.field("fileKeyRef");
                if !file.exists() {
                    continue;
                }
                let name = file.field("volumeName");
                match volumes.items().find(|volume| volume.field("name").text() == name.text()) {
                    None => name.not_found(),
                    Some(volume) if !volume.field("emptyDir").exists() => {
                        name.invalid_text("referenced volume must be of type emptyDir");
                    }
                    Some(_) => {}
                }
            }
        }
    }
}
