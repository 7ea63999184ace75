//! Pods begin as Pending; their first address has two names.

use serde_json::{Value, json};

pub(super) fn prepare_create(pod: &mut Value) {
    pod["status"] = json!({"phase": "Pending"});
}

pub(super) fn default(pod: &mut Value) {
    let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut) else { return };
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let single = status.get("podIP").and_then(text);
    let first = status.get("podIPs").and_then(|list| text(&list[0]["ip"]));
    match (single, first) {
        (Some(single), None) => drop(status.insert("podIPs".into(), json!([{"ip": single}]))),
        (None, Some(first)) => drop(status.insert("podIP".into(), first.into())),
        // The single one is what old clients write, so it is the one that counts.
        (Some(single), Some(first)) if single != first => {
            status.insert("podIPs".into(), json!([{"ip": single}]));
        }
        _ => {}
    }
}
