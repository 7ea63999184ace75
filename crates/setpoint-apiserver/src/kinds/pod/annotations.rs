//! Annotations of pods that the server knows.

use serde_json::Value;

use super::super::at::At;
use super::defaults::CONTAINERS;

pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const SECCOMP: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_OF_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

pub(super) fn validate(annotations: &At, spec: &At) {
    for (key, value) in annotations.entries() {
        match key {
            MIRROR if spec.field("nodeName").is_empty() => {
                value.invalid("must set spec.nodeName if mirror pod annotation is set");
            }
            DELETION_COST if !is_cost(value.text()) => value.invalid("must be a 32bit integer"),
            key if key == SECCOMP || key.starts_with(SECCOMP_OF_CONTAINER) => {
                seccomp(&annotations.field(key));
            }
            key => {
                if let Some(container) = key.strip_prefix(APPARMOR) {
                    apparmor(&value, container, spec);
                }
            }
        }
    }
}

fn is_cost(text: &str) -> bool {
    let first = text.bytes().next();
    let begins =
        first == Some(b'-') || text == "0" || first.is_some_and(|byte| (b'1'..=b'9').contains(&byte));
    begins && text.parse::<i32>().is_ok()
}

fn seccomp(profile: &At) {
    match profile.text() {
        "runtime/default" | "docker/default" | "unconfined" => {}
        text => match text.strip_prefix("localhost/") {
            Some(path) => profile.with(&path.into()).descending_path(),
            None => profile.invalid("must be a valid seccomp profile"),
        },
    }
}

fn apparmor(profile: &At, container: &str, spec: &At) {
    let mut containers = CONTAINERS.iter().flat_map(|list| super::super::at::items(&spec.value()[*list]));
    if !containers.any(|found| found["name"] == container) {
        profile.invalid_as(container, "container not found");
    }
    let known = matches!(profile.text(), "" | "runtime/default" | "unconfined");
    if !known && !profile.text().starts_with("localhost/") {
        profile.invalid(format!("invalid AppArmor profile name: {:?}", profile.text()));
    }
}

/// Some annotations stay as they are.
pub(super) fn validate_update(pod: &At, old: &Value) {
    let metadata = pod.field("metadata");
    let annotations = metadata.field("annotations");
    let before = &old["metadata"]["annotations"];
    let guarded = |key: &str| {
        if key.starts_with(APPARMOR) {
            Some("AppArmor annotations")
        } else {
            (key == MIRROR).then_some("mirror pod annotation")
        }
    };
    for (key, value) in before.as_object().into_iter().flatten() {
        let entry = annotations.key(key);
        if let Some(what) = guarded(key).filter(|_| entry.value() != value) {
            entry.forbidden(format!("may not remove or update {what}"));
        }
    }
    for (key, entry) in annotations.entries() {
        if let Some(what) = guarded(key).filter(|_| before[key].is_null()) {
            entry.forbidden(format!("may not add {what}"));
        }
    }
    validate(&annotations, &pod.field("spec"));
}

/// Where a profile is both in an annotation and in a field, they agree.
pub(super) fn match_fields(metadata: &At, spec: &At) {
    let annotations = metadata.field("annotations");
    let of_pod = spec.field("securityContext");
    if annotations.field(SECCOMP).exists() {
        agree(&of_pod.field("seccompProfile"), annotations.field(SECCOMP).text(), "seccomp");
    }
    for (kind, prefix, field) in
        [("seccomp", SECCOMP_OF_CONTAINER, "seccompProfile"), ("apparmor", APPARMOR, "appArmorProfile")]
    {
        for list in CONTAINERS {
            for container in spec.field(list).items() {
                let key = format!("{prefix}{}", container.field("name").text());
                let annotation = annotations.value()[&key].as_str();
                let Some(annotation) = annotation else { continue };
                agree(&container.field("securityContext").field(field), annotation, kind);
            }
        }
    }
}

fn agree(profile: &At, annotation: &str, kind: &str) {
    let local = annotation.strip_prefix("localhost/");
    let agrees = match profile.field("type").text() {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => matches!(annotation, "runtime/default" | "docker/default"),
        "Localhost" => match local {
            Some(path) if profile.field("localhostProfile").text() != path => {
                let detail = format!("{kind} profile in annotation and field must match");
                return profile.field("localhostProfile").forbidden(detail);
            }
            local => local.is_some(),
        },
        _ => true,
    };
    if !agrees {
        profile.field("type").forbidden(format!("{kind} type in annotation and field must match"));
    }
}
