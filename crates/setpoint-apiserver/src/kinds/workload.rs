//! What workloads share: templates that selectors must match, and counts in their status.

use serde_json::Value;

use super::at::At;
use super::pod::template;

pub(super) fn does_not_match(template: &At) {
    let metadata = template.field("metadata");
    metadata
        .field("labels")
        .invalid_as(template::labels(template).clone(), "`selector` does not match template `labels`");
}

/// The counts of a status are not negative, and parts are not more than the whole.
pub(super) fn validate_status(object: &At, old: Option<&Value>) {
    const COUNTS: [&str; 16] = [
        "observedGeneration",
        "replicas",
        "fullyLabeledReplicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "currentReplicas",
        "terminatingReplicas",
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
        "collisionCount",
    ];
    let status = object.field("status");
    for count in COUNTS {
        status.field(count).non_negative();
    }
    let count = |name: &str| status.field(name).number().unwrap_or(0);
    let (parts, ready): (&[&str], &str) = match object.field("kind").text() {
        "Deployment" => (&["updatedReplicas", "readyReplicas", "availableReplicas"], "readyReplicas"),
        "StatefulSet" => (
            &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
            "status.readyReplicas",
        ),
        "DaemonSet" => (&[], ""),
        _ => (&["fullyLabeledReplicas", "readyReplicas", "availableReplicas"], "readyReplicas"),
    };
    for part in parts.iter().filter(|part| count(part) > count("replicas")) {
        status.field(part).invalid_number("cannot be greater than status.replicas");
    }
    if !parts.is_empty() && count("availableReplicas") > count("readyReplicas") {
        status.field("availableReplicas").invalid_number(format!("cannot be greater than {ready}"));
    }
    let before = old.and_then(|old| old["status"]["collisionCount"].as_i64());
    if before.is_some_and(|before| status.field("collisionCount").number().unwrap_or(i64::MIN) < before) {
        status.field("collisionCount").invalid_number("cannot be decremented");
    }
}
