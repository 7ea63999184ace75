//! CustomResourceDefinitions as objects. What they make the server do is in `definitions/`.

mod validation;
mod version;

use serde_json::{Value, json};

use super::at::items;
pub(super) use validation::{validate, validate_status};

/// Fills in the names that follow from others, and the conversion.
pub(super) fn default(object: &mut Value) {
    let spec = &mut object["spec"];
    let kind = spec["names"]["kind"].as_str().unwrap_or_default().to_owned();
    if is_empty(&spec["names"]["singular"]) && !kind.is_empty() {
        spec["names"]["singular"] = kind.to_lowercase().into();
    }
    if is_empty(&spec["names"]["listKind"]) && !kind.is_empty() {
        spec["names"]["listKind"] = format!("{kind}List").into();
    }
    if spec["conversion"].is_null() {
        spec["conversion"] = json!({"strategy": "None"});
    }
    if let Some(service) = spec.pointer_mut("/conversion/webhook/clientConfig/service")
        && service.is_object()
        && service["port"].is_null()
    {
        service["port"] = 443.into();
    }
    if items(&object["status"]["storedVersions"]).is_empty() {
        store_version(object);
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_str().is_none_or(str::is_empty)
}

/// Notes that objects are written in the storage version from now on.
pub(super) fn store_version(object: &mut Value) {
    let storage = items(&object["spec"]["versions"]).iter().find(|version| version["storage"] == true);
    let Some(name) = storage.map(|version| version["name"].clone()) else { return };
    let stored = &mut object["status"]["storedVersions"];
    if !stored.is_array() {
        *stored = json!([]);
    }
    if let Value::Array(names) = stored
        && !names.contains(&name)
    {
        names.push(name);
    }
}
