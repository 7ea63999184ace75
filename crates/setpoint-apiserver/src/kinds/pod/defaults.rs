//! What a pod leaves to the server.

use serde_json::{Value, json};

use super::super::fill::{Fields, default, default_text, each, part, part_or_new, text};
use super::image;
use super::resources::round_up;
use super::volume;

pub(super) const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// What only pods get, not templates of pods.
pub(super) fn pod(spec: &mut Fields) {
    if spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|seconds| seconds < 0) {
        spec.insert("terminationGracePeriodSeconds".to_owned(), 1.into());
    }
    let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for list in ["containers", "initContainers"] {
        for container in each(spec, list) {
            if let Some(resources) = part(container, "resources") {
                request_limits(resources);
            }
            if host_network {
                each(container, "ports").for_each(host_port);
            }
        }
    }
    default(spec, "enableServiceLinks", true);
}

/// What is limited is requested.
fn request_limits(resources: &mut Fields) {
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else { return };
    let requests = part_or_new(resources, "requests");
    for (name, amount) in limits {
        requests.entry(name).or_insert(amount);
    }
}

/// On the network of the node the port of a container is the node's.
fn host_port(port: &mut Fields) {
    if let Some(number) = port.get("containerPort").cloned()
        && number != 0
    {
        default(port, "hostPort", number);
    }
}

/// What pods and templates get.
pub(super) fn spec(spec: &mut Fields) {
    if text(spec, "serviceAccountName").is_empty()
        && let Some(name) = spec.get("serviceAccount").cloned()
    {
        spec.insert("serviceAccountName".to_owned(), name);
    }
    match spec.get("serviceAccountName").cloned() {
        Some(name) => drop(spec.insert("serviceAccount".to_owned(), name)),
        None => drop(spec.remove("serviceAccount")),
    }
    default_text(spec, "dnsPolicy", "ClusterFirst");
    default_text(spec, "restartPolicy", "Always");
    default(spec, "securityContext", json!({}));
    default(spec, "terminationGracePeriodSeconds", 30);
    default_text(spec, "schedulerName", "default-scheduler");
    each(spec, "volumes").for_each(volume::default);
    for list in CONTAINERS {
        each(spec, list).for_each(container);
    }
    if let Some(overhead) = part(spec, "overhead") {
        round_up(overhead);
    }
    if let Some(resources) = part(spec, "resources") {
        round_requirements(resources);
    }
}

fn container(container: &mut Fields) {
    if text(container, "imagePullPolicy").is_empty() {
        let latest = image::is_latest(text(container, "image"));
        container.insert("imagePullPolicy".to_owned(), if latest { "Always" } else { "IfNotPresent" }.into());
    }
    default_text(container, "terminationMessagePath", "/dev/termination-log");
    default_text(container, "terminationMessagePolicy", "File");
    for port in each(container, "ports") {
        default_text(port, "protocol", "TCP");
    }
    for variable in each(container, "env") {
        let Some(source) = part(variable, "valueFrom") else { continue };
        if let Some(field) = part(source, "fieldRef") {
            default_text(field, "apiVersion", "v1");
        }
        if let Some(file) = part(source, "fileKeyRef") {
            default(file, "optional", false);
        }
    }
    if let Some(resources) = part(container, "resources") {
        round_requirements(resources);
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = part(container, name) {
            self::probe(probe);
        }
    }
    if let Some(lifecycle) = part(container, "lifecycle") {
        for name in ["postStart", "preStop"] {
            if let Some(handler) = part(lifecycle, name) {
                http_get(handler);
            }
        }
    }
}

fn round_requirements(resources: &mut Fields) {
    for list in ["limits", "requests"] {
        if let Some(amounts) = part(resources, list) {
            round_up(amounts);
        }
    }
}

fn probe(probe: &mut Fields) {
    for (field, number) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        default(probe, field, number);
    }
    http_get(probe);
    if let Some(grpc) = part(probe, "grpc") {
        default(grpc, "service", "");
    }
}

fn http_get(handler: &mut Fields) {
    let Some(request) = part(handler, "httpGet") else { return };
    default_text(request, "path", "/");
    default_text(request, "scheme", "HTTP");
}
