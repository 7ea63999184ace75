//! What the server knows about single kinds, beyond the table: what it fills in, a file a kind.

mod namespace;
mod pod;
mod secret;

use serde_json::Value;

use crate::resource::Resource;

/// Fills in what a decoded object leaves to the server, on every write.
pub(crate) fn default(resource: &Resource, object: &mut Value) {
    match (resource.group(), resource.plural()) {
        ("", "pods") => pod::default(object),
        ("", "secrets") => secret::default(object),
        _ => {}
    }
}

/// Sets what a new object begins with, whatever the request says.
pub(crate) fn prepare_create(resource: &Resource, object: &mut Value) {
    match (resource.group(), resource.plural()) {
        ("", "namespaces") => namespace::prepare_create(object),
        ("", "pods") => pod::prepare_create(object),
        _ => {}
    }
}
