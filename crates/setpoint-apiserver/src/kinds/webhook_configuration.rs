//! Mutating and validating webhook configurations.

use serde_json::{Value, json};

use super::admission_policy::{Scope, match_conditions};
use super::at::At;
use super::fill::{default as set, default_text, each, part};
use crate::metadata::names;

pub(super) fn default(configuration: &mut Value, mutates: bool) {
    let Some(fields) = configuration.as_object_mut() else { return };
    for webhook in each(fields, "webhooks") {
        default_text(webhook, "failurePolicy", "Fail");
        default_text(webhook, "matchPolicy", "Equivalent");
        set(webhook, "namespaceSelector", json!({}));
        set(webhook, "objectSelector", json!({}));
        set(webhook, "timeoutSeconds", 10);
        if mutates {
            default_text(webhook, "reinvocationPolicy", "Never");
        }
        each(webhook, "rules").for_each(|rule| default_text(rule, "scope", "*"));
        if let Some(config) = part(webhook, "clientConfig")
            && let Some(service) = part(config, "service")
        {
            set(service, "port", 443);
        }
    }
}

pub(super) fn validate(configuration: &At, mutates: bool) {
    let mut known = Vec::new();
    for webhook in configuration.field("webhooks").items() {
        self::webhook(&webhook, mutates);
        let name = webhook.field("name");
        if !name.text().is_empty() {
            if known.contains(&name.text()) {
                name.duplicate();
            }
            known.push(name.text());
        }
    }
}

fn webhook(webhook: &At, mutates: bool) {
    qualified(&webhook.field("name"));
    webhook.field("rules").items().for_each(|rule| self::rule(&rule));
    webhook.field("failurePolicy").one_of_if_set(&["Fail", "Ignore"]);
    webhook.field("matchPolicy").one_of_if_set(&["Equivalent", "Exact"]);
    let effects = webhook.field("sideEffects");
    if !effects.exists() {
        effects.required("must specify one of None, NoneOnDryRun");
    } else {
        effects.one_of_if_set(&["None", "NoneOnDryRun"]);
    }
    let seconds = webhook.field("timeoutSeconds");
    if seconds.number().is_some_and(|seconds| !(1..=30).contains(&seconds)) {
        seconds.invalid("the timeout value must be between 1 and 30 seconds");
    }
    webhook.field("namespaceSelector").label_selector();
    webhook.field("objectSelector").label_selector();
    match_conditions(&webhook.field("matchConditions"), &Scope::new(false));
    client_config(&webhook.field("clientConfig"));
    versions(&webhook.field("admissionReviewVersions"));
    if mutates {
        webhook.field("reinvocationPolicy").one_of_if_set(&["Never", "IfNeeded"]);
    }
}

/// A name with a domain of at least three parts: `imagepolicy.example.com`.
fn qualified(name: &At) {
    if name.text().is_empty() {
        return name.required("");
    }
    for why in names::dns1123_subdomain(name.text()) {
        name.invalid(why);
    }
    if name.text().split('.').count() < 3 {
        name.invalid("should be a domain with at least three segments separated by dots");
    }
}

fn versions(versions: &At) {
    const KNOWN: [&str; 2] = ["v1", "v1beta1"];
    if versions.is_empty() {
        return versions.required("must specify one of v1, v1beta1");
    }
    let mut seen = Vec::new();
    for version in versions.items() {
        if seen.contains(&version.text()) {
            version.invalid("duplicate version");
            continue;
        }
        seen.push(version.text());
        version.has_form(names::dns1035_label);
    }
    if !seen.iter().any(|version| KNOWN.contains(version)) {
        versions.invalid("must include at least one of v1, v1beta1");
    }
}

pub(super) fn rule(rule: &At) {
    list_with_star(&rule.field("operations"), |operation| {
        operation.one_of(&["*", "CONNECT", "CREATE", "DELETE", "UPDATE"]);
    });
    list_with_star(&rule.field("apiGroups"), |_| {});
    list_with_star(&rule.field("apiVersions"), |version| {
        if version.text().is_empty() {
            version.required("");
        }
    });
    let resources = rule.field("resources");
    if resources.is_empty() {
        resources.required("");
    }
    for resource in resources.items().filter(|resource| resource.text().is_empty()) {
        resource.required("");
    }
    rule.field("scope").one_of_if_set(&["*", "Cluster", "Namespaced"]);
}

fn list_with_star(list: &At, check: impl Fn(&At)) {
    if list.is_empty() {
        return list.required("");
    }
    list.items().for_each(|item| check(&item));
    if list.len() > 1 && list.texts().any(|text| text == "*") {
        list.invalid("if '*' is present, must not specify other values");
    }
}

/// Where a webhook is, and whom to trust there; conversion webhooks have the same.
pub(crate) fn client_config(config: &At) {
    let (url, service) = (config.field("url"), config.field("service"));
    match (url.exists(), service.exists()) {
        (true, false) => self::url(&url),
        (false, true) => self::service(&service),
        _ => config.required("exactly one of url or service is required"),
    }
}

fn url(url: &At) {
    const FORM: &str = "; desired format: https://host[/path]";
    let Ok(parsed) = url.text().parse::<http::Uri>() else {
        return url.required(format!("url must be a valid URL{FORM}"));
    };
    if parsed.scheme_str() != Some("https") {
        let scheme = parsed.scheme_str().unwrap_or_default();
        url.invalid_as(scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if parsed.host().is_none_or(str::is_empty) {
        url.invalid_as("", format!("host must be specified{FORM}"));
    }
    if url.text().contains('@') {
        url.invalid("user information is not permitted in the URL");
    }
    if url.text().contains('#') {
        url.invalid("fragments are not permitted in the URL");
    }
    if url.text().contains('?') {
        url.invalid("query parameters are not permitted in the URL");
    }
}

fn service(service: &At) {
    for field in ["name", "namespace"] {
        if service.field(field).text().is_empty() {
            service.field(field).required(format!("service {field} is required"));
        }
    }
    let path = service.field("path");
    if path.exists() && !path.text().is_empty() {
        if !path.text().starts_with('/') {
            path.invalid("must start with a '/'");
        } else if path.text() != "/" {
            let inner = path.text().trim_start_matches('/');
            let inner = inner.strip_suffix('/').unwrap_or(inner);
            for (number, segment) in inner.split('/').enumerate() {
                if segment.is_empty() {
                    path.invalid(format!("segment[{number}] may not be empty"));
                    continue;
                }
                for why in names::dns1123_subdomain(segment) {
                    path.invalid(format!("segment[{number}]: {why}"));
                }
            }
        }
    }
    let port = service.field("port");
    if port.number().is_some_and(|number| !(1..=65_535).contains(&number)) {
        port.invalid("port is not valid: must be between 1 and 65535, inclusive");
    }
}
