//! Group-versions that are served: one object each, so its name says which.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::at::At;
use super::fill::{default as set, part};
use crate::field_error::Shown;
use crate::metadata::names;

pub(super) fn default(service: &mut Value) {
    let spec = service.get_mut("spec").and_then(Value::as_object_mut);
    if let Some(backend) = spec.and_then(|spec| part(spec, "service")) {
        set(backend, "port", 443);
    }
}

pub(super) fn validate(service: &At) {
    let (metadata, spec) = (service.field("metadata"), service.field("spec"));
    let (name, version, group) = (metadata.field("name"), spec.field("version"), spec.field("group"));
    let expected = format!("{}.{}", version.text(), group.text());
    // Without a name, or with one that no path can have, that is told already.
    if !name.is_empty() && names::path_segment(name.text()).is_empty() && name.text() != expected {
        let expected = Shown::from(expected);
        name.invalid_text(format!("must be `spec.version+\".\"+spec.group`: {expected}"));
    }
    if group.is_empty() && version.text() != "v1" {
        group.required("only v1 may have an empty group and it better be legacy kube");
    }
    group.has_form_if_set(names::dns1123_subdomain);
    version.has_form(names::dns1035_label);
    for (field, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
        let priority = spec.field(field);
        if !(1..=most).contains(&priority.number().unwrap_or(0)) {
            priority.invalid_number(format!("must be positive and less than {most}"));
        }
    }
    validate_backend(&spec);
}

/// Who answers: this server itself, or a service.
fn validate_backend(spec: &At) {
    let (service, bundle) = (spec.field("service"), spec.field("caBundle"));
    let insecure = spec.field("insecureSkipTLSVerify");
    if service.exists() {
        service.field("namespace").has_text();
        service.field("name").has_text();
        let port = service.field("port");
        if !(1..=65535).contains(&port.number().unwrap_or(0)) {
            port.invalid_number("port is not valid: must be between 1 and 65535, inclusive");
        }
        if insecure.is_true() && !bundle.is_empty() {
            insecure.invalid("may not be true if caBundle is present");
        }
        return;
    }
    if !bundle.is_empty() {
        let bytes = STANDARD.decode(bundle.text()).map_or(0, |bytes| bytes.len());
        bundle.invalid_as(format!("{bytes} bytes"), "local APIServices may not have a caBundle");
    }
    if insecure.is_true() {
        insecure.invalid("local APIServices may not have insecureSkipTLSVerify");
    }
}
