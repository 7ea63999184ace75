//! core/v1 Event ↔ events.k8s.io/v1 Event: the same facts under other names.

use serde_json::Value;

use super::rename;

/// (core/v1, events.k8s.io/v1)
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

pub(super) fn to_events_v1(event: &mut Value) {
    for (core, new) in NAMES {
        rename(event, core, new);
    }
}

pub(super) fn to_core_v1(event: &mut Value) {
    for (core, new) in NAMES {
        rename(event, new, core);
    }
    // Fields that core/v1 always has.
    for (field, empty) in [
        ("involvedObject", serde_json::json!({})),
        ("source", serde_json::json!({})),
        ("firstTimestamp", Value::Null),
        ("lastTimestamp", Value::Null),
        ("reportingComponent", "".into()),
        ("reportingInstance", "".into()),
    ] {
        if event.get(field).is_none() {
            event[field] = empty;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_survives_the_way_to_the_other_api_and_back() {
        let event = json!({
            "metadata": {"name": "a"}, "involvedObject": {"kind": "Pod", "name": "web"}, "message": "started",
            "source": {"component": "kubelet"}, "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:00:00Z", "count": 3, "reportingComponent": "kubelet",
            "reportingInstance": "node-1", "type": "Normal", "reason": "Started", "eventTime": null
        });
        let mut converted = event.clone();
        to_events_v1(&mut converted);
        assert_eq!(converted["note"], "started");
        assert_eq!(converted["regarding"]["name"], "web");
        assert!(converted.get("message").is_none());
        to_core_v1(&mut converted);
        assert_eq!(converted, event);
    }
}
