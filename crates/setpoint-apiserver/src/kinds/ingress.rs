//! Ingresses and their classes.

use serde_json::{Value, json};

use super::at::At;
use super::fill::{default as set, part};
use super::formats;
use crate::metadata::names;
use crate::strategy::Part;

const CLASS: &str = "kubernetes.io/ingress.class";

pub(super) fn validate(ingress: &At, old: Option<&Value>, part: Part) {
    if part == Part::Status {
        return status(ingress, old.unwrap_or(&Value::Null));
    }
    let spec = ingress.field("spec");
    let (rules, backend) = (spec.field("rules"), spec.field("defaultBackend"));
    if rules.is_empty() && !backend.exists() {
        let shown = if rules.exists() { json!([]) } else { Value::Null };
        spec.invalid_as(shown, "either `defaultBackend` or `rules` must be specified");
    }
    if backend.exists() {
        self::backend(&backend);
    }
    rules.items().for_each(|rule| self::rule(&rule));
    spec.field("tls").items().for_each(|entry| tls(&entry));
    let class = spec.field("ingressClassName");
    if class.exists() {
        class.has_form(names::dns1123_subdomain);
    }
    let annotation = &ingress.value()["metadata"]["annotations"][CLASS];
    if let Some(annotation) = annotation.as_str().filter(|_| old.is_none() && class.exists())
        && annotation != class.text()
    {
        let place = ingress.alias("annotations");
        place.alias(CLASS).invalid_as(annotation, "must match `ingressClassName` when both are specified");
    }
}

fn tls(tls: &At) {
    for host in tls.field("hosts").items() {
        host.has_form(if host.text().contains('*') {
            formats::wildcard_subdomain
        } else {
            names::dns1123_subdomain
        });
    }
    tls.field("secretName").has_form_if_set(names::dns1123_subdomain);
}

fn rule(rule: &At) {
    let host = rule.field("host");
    if !host.is_empty() {
        if formats::parse_ip_sloppy(host.text()).is_some() {
            host.invalid("must be a DNS name, not an IP address");
        }
        host.has_form(if host.text().contains('*') {
            formats::wildcard_subdomain
        } else {
            names::dns1123_subdomain
        });
    }
    let http = rule.field("http");
    if !http.exists() {
        return;
    }
    if http.field("paths").is_empty() {
        http.field("paths").required("");
    }
    http.field("paths").items().for_each(|path| self::path(&path));
}

fn path(entry: &At) {
    let (kind, path) = (entry.field("pathType"), entry.field("path"));
    if !kind.exists() {
        return kind.required("pathType must be specified");
    }
    match kind.text() {
        "Exact" | "Prefix" => {
            if !path.text().starts_with('/') {
                path.invalid_text("must be an absolute path");
            }
            for part in
                ["//", "/./", "/../", "%2f", "%2F"].into_iter().filter(|part| path.text().contains(part))
            {
                path.invalid(format!("must not contain '{part}'"));
            }
            for end in ["/..", "/."].into_iter().filter(|end| path.text().ends_with(end)) {
                path.invalid(format!("cannot end with '{end}'"));
            }
        }
        "ImplementationSpecific" => {
            if !path.is_empty() && !path.text().starts_with('/') {
                path.invalid("must be an absolute path");
            }
        }
        _ => kind.not_supported(&["Exact", "ImplementationSpecific", "Prefix"]),
    }
    backend(&entry.field("backend"));
}

fn backend(backend: &At) {
    let (resource, service) = (backend.field("resource"), backend.field("service"));
    match (resource.exists(), service.exists()) {
        (true, true) => return backend.invalid_as("", "cannot set both resource and service backends"),
        (false, false) => return backend.invalid_as("", "resource or service backend is required"),
        (true, false) => return reference(&resource),
        (false, true) => {}
    }
    service.field("name").is_named(names::dns1123_label);
    let port = service.field("port");
    let (name, number) = (port.field("name"), port.field("number"));
    match (!name.is_empty(), number.number().unwrap_or(0) != 0) {
        (true, true) => backend.invalid_as("", "cannot set both port name & port number"),
        (true, false) => name.has_form(formats::port_name),
        (false, true) => number.port_number(),
        (false, false) => backend.required("port name or number is required"),
    }
}

fn reference(reference: &At) {
    if reference.field("apiGroup").exists() {
        reference.field("apiGroup").has_form(names::dns1123_subdomain);
    }
    reference.field("kind").is_named(names::path_segment);
    reference.field("name").is_named(names::path_segment);
}

fn status(ingress: &At, old: &Value) {
    let status = ingress.field("status");
    let balancer = status.field("loadBalancer");
    let before = super::at::items(&old["status"]["loadBalancer"]["ingress"]);
    let before: Vec<&str> = before.iter().filter_map(|ingress| ingress["ip"].as_str()).collect();
    balancer
        .field("ingress")
        .items()
        .for_each(|ingress| super::service::load_balancer_address(&ingress, &before));
}

pub(super) fn default_class(class: &mut Value) {
    let spec = class.as_object_mut().and_then(|class| part(class, "spec"));
    if let Some(parameters) = spec.and_then(|spec| part(spec, "parameters")) {
        set(parameters, "scope", "Cluster");
    }
}

pub(super) fn validate_class(class: &At, old: Option<&Value>) {
    let spec = class.field("spec");
    let controller = spec.field("controller");
    if let Some(old) = old {
        let before = old["spec"]["controller"].as_str().unwrap_or_default();
        if controller.text() != before {
            controller.invalid_text("field is immutable");
        }
    }
    if controller.text().len() > 250 {
        controller.too_long(250);
    }
    if controller.is_empty() {
        controller.required("");
    } else {
        for (wrong, problem) in formats::domain_prefixed_path(controller.text()) {
            controller.invalid_as(wrong, problem);
        }
    }
    let parameters = spec.field("parameters");
    if parameters.exists() {
        reference(&parameters);
        let namespace = parameters.field("namespace");
        match parameters.field("scope").text() {
            "Namespace" if !namespace.exists() => {
                namespace.required("`parameters.scope` is set to 'Namespace'");
            }
            "Namespace" => namespace.has_form(names::dns1123_label),
            "Cluster" if namespace.exists() => namespace.forbidden("`parameters.scope` is set to 'Cluster'"),
            "Cluster" => {}
            _ => parameters.field("scope").not_supported(&["Cluster", "Namespace"]),
        }
    }
}
