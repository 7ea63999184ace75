//! Addresses that somebody has taken: the name is the address, so that nobody else can take it. `strategy` asks for that.

use serde_json::Value;

use super::at::At;
use crate::metadata::names;

pub(super) fn validate(address: &At, old: Option<&Value>) {
    let spec = address.field("spec");
    let parent = spec.field("parentRef");
    if let Some(old) = old {
        return parent.immutable(&old["spec"]["parentRef"]);
    }
    if !parent.exists() {
        return parent.required("");
    }
    parent.field("group").has_form_if_set(names::dns1123_subdomain);
    parent.field("resource").is_named(names::path_segment);
    parent.field("name").is_named(names::path_segment);
    parent.field("namespace").has_form_if_set(names::path_segment);
}
