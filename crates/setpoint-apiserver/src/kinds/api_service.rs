//! Group-versions that are served: one object each, so its name says which.

use super::at::At;
use crate::field_error::Shown;

pub(super) fn validate_create(service: &At) {
    let (metadata, spec) = (service.field("metadata"), service.field("spec"));
    let (name, version, group) = (metadata.field("name"), spec.field("version"), spec.field("group"));
    let expected = format!("{}.{}", version.text(), group.text());
    if name.text() != expected {
        let expected = Shown::from(expected);
        name.invalid_text(format!("must be `spec.version+\".\"+spec.group`: {expected}"));
    }
}
