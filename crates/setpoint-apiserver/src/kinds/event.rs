//! Events, in both APIs. The rules are written in the words of the core one.

use serde_json::Value;

use super::at::{At, same};
use crate::metadata::names;

/// How an API calls what the rules are about.
struct Words {
    object: &'static str,
    message: &'static str,
    component: &'static str,
    source: &'static str,
    first: &'static str,
    last: &'static str,
    count: &'static str,
}

const CORE: Words = Words {
    object: "involvedObject",
    message: "message",
    component: "reportingComponent",
    source: "source",
    first: "firstTimestamp",
    last: "lastTimestamp",
    count: "count",
};
const EVENTS: Words = Words {
    object: "regarding",
    message: "note",
    component: "reportingController",
    source: "deprecatedSource",
    first: "deprecatedFirstTimestamp",
    last: "deprecatedLastTimestamp",
    count: "deprecatedCount",
};

pub(super) fn validate_core(event: &At) {
    common(event, &CORE);
}

pub(super) fn validate_events(event: &At, old: Option<&Value>) {
    common(event, &EVENTS);
    match old {
        None => new_event(event),
        Some(old) => unchanged(event, old),
    }
}

fn common(event: &At, words: &Words) {
    let object = event.field(words.object);
    let namespace = object.field("namespace");
    let own = event.value()["metadata"]["namespace"].as_str().unwrap_or_default();
    let place = event.alias("involvedObject");
    let mismatch = || place.alias("namespace").invalid_as(namespace.text(), "does not match event.namespace");
    if !event.field("eventTime").exists() {
        let fits = if namespace.is_empty() { matches!(own, "" | "default") } else { own == namespace.text() };
        if !fits {
            mismatch();
        }
        return;
    }
    if namespace.is_empty() && !matches!(own, "default" | "kube-system") {
        mismatch();
    }
    let component = event.field(words.component);
    component.has_text();
    component.has_form(names::label_key);
    event.field("reportingInstance").has_text();
    at_most(event, "reportingInstance", "reportingInstance", 128);
    event.field("action").has_text();
    at_most(event, "action", "action", 128);
    event.field("reason").has_text();
    at_most(event, "reason", "reason", 128);
    at_most(event, words.message, "message", 1024);
}

fn at_most(event: &At, field: &str, shown: &str, most: usize) {
    if event.field(field).text().len() > most {
        event.alias(shown).invalid_as("", format!("can have at most {most} characters"));
    }
}

/// New events of the new API use nothing of the old one.
fn new_event(event: &At) {
    event.field("metadata").field("name").has_form_if_set(names::dns1123_subdomain);
    series(event);
    if !event.field("eventTime").exists() {
        event.field("eventTime").required("");
    }
    let kind = event.field("type");
    if !["Normal", "Warning"].contains(&kind.text()) {
        kind.invalid_as("", format!("has invalid value: {}", kind.text()));
    }
    let unset = |shown: &str, is_set: bool| {
        if is_set {
            event.alias(shown).invalid_as("", "needs to be unset");
        }
    };
    unset("firstTimestamp", event.field(EVENTS.first).exists());
    unset("lastTimestamp", event.field(EVENTS.last).exists());
    unset("count", event.field(EVENTS.count).number().unwrap_or(0) != 0);
    let source = event.field(EVENTS.source);
    unset("source", !source.field("component").is_empty() || !source.field("host").is_empty());
}

fn series(event: &At) {
    let series = event.field("series");
    if !series.exists() {
        return;
    }
    if series.field("count").number().unwrap_or(0) < 2 {
        event.alias("series.count").invalid_as("", "should be at least 2");
    }
    if !series.field("lastObservedTime").exists() {
        event.alias("series.lastObservedTime").required("");
    }
}

/// Only the series of an event goes on.
fn unchanged(event: &At, old: &Value) {
    if !same(event.field("series").value(), &old["series"]) {
        series(event);
    }
    const FIELDS: [(&str, &str); 13] = [
        (EVENTS.object, "involvedObject"),
        ("reason", "reason"),
        (EVENTS.message, "message"),
        (EVENTS.source, "source"),
        (EVENTS.first, "firstTimestamp"),
        (EVENTS.last, "lastTimestamp"),
        (EVENTS.count, "count"),
        ("reason", "reason"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        (EVENTS.component, "reportingController"),
    ];
    const REFERENCE: [(&str, &str, &str); 7] = [
        ("Kind", "kind", "\"\""),
        ("Namespace", "namespace", "\"\""),
        ("Name", "name", "\"\""),
        ("UID", "uid", "\"\""),
        ("APIVersion", "apiVersion", "\"\""),
        ("ResourceVersion", "resourceVersion", "\"\""),
        ("FieldPath", "fieldPath", "\"\""),
    ];
    for (field, shown) in FIELDS {
        let value = event.field(field);
        if matches!(shown, "involvedObject" | "related") && !same(value.value(), &old[field]) {
            event.alias(shown).invalid_as(value.in_go(&REFERENCE), "field is immutable");
            continue;
        }
        event.alias(shown).with(event.field(field).value()).immutable(&old[field]);
    }
    event.field("reportingInstance").immutable(&old["reportingInstance"]);
}
