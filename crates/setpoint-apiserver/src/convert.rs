//! Versions of one kind: what is stored ↔ what is served.

mod event;
mod horizontal_pod_autoscaler;
pub(crate) mod webhook;

use serde_json::Value;

use crate::resource::Resource;

/// A stored object in the version of `resource`.
pub(crate) fn to_served(resource: &Resource, mut object: Value) -> Value {
    if let Some(custom) = resource.definition() {
        if let Some(program) = &custom.program {
            program.to_served(&custom.version, &mut object);
        }
        custom.read(&mut object);
        object["apiVersion"] = resource.api_version().into();
    } else if resource.is_converted() {
        match resource.plural() {
            "events" => event::to_events_v1(&mut object),
            "horizontalpodautoscalers" => horizontal_pod_autoscaler::to_v1(&mut object),
            _ => {}
        }
        object["apiVersion"] = resource.api_version().into();
    }
    object
}

/// An object of the version of `resource` as it is stored.
pub(crate) fn to_stored(resource: &Resource, mut object: Value) -> Value {
    if let Some(custom) = resource.definition() {
        if let Some(program) = &custom.program {
            program.to_stored(&custom.version, &mut object, resource.stored_as());
        }
        object["apiVersion"] = resource.stored_as().into();
    } else if resource.is_converted() {
        match resource.plural() {
            "events" => event::to_core_v1(&mut object),
            "horizontalpodautoscalers" => horizontal_pod_autoscaler::to_v2(&mut object),
            _ => {}
        }
        object["apiVersion"] = resource.stored_as().into();
    }
    object
}

/// Gives a field another name; an absent one stays absent.
fn rename(object: &mut Value, from: &str, to: &str) {
    if let Some(object) = object.as_object_mut()
        && let Some(value) = object.remove(from)
    {
        object.insert(to.to_owned(), value);
    }
}
