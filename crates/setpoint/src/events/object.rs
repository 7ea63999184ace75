//! Events as the two APIs spell them.

use k8s_openapi::api::core::v1::EventSource;
use k8s_openapi::api::{core, events};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use serde_json::{Value, json};

use super::correlate::Series;
use super::event::Reporter;

/// The API that Events are written to. The server shows them in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventApi {
    /// `events.k8s.io/v1`.
    #[default]
    EventsV1,
    /// `v1`, the older one.
    CoreV1,
}

/// Where an Event is: that of its object, or `default`.
pub(super) fn namespace(series: &Series) -> &str {
    series.regarding.namespace.as_deref().filter(|namespace| !namespace.is_empty()).unwrap_or("default")
}

fn metadata(series: &Series) -> ObjectMeta {
    ObjectMeta {
        name: Some(series.name.clone()),
        namespace: Some(namespace(series).to_owned()),
        ..ObjectMeta::default()
    }
}

fn action(series: &Series) -> Option<String> {
    Some(series.event.action.clone().unwrap_or_else(|| series.event.reason.clone()))
}

/// An Event of `events.k8s.io/v1`.
pub(super) fn events_v1(series: &Series, source: &Reporter) -> events::v1::Event {
    let event = &series.event;
    let is_series = series.count > 1;
    let repeats = events::v1::EventSeries { count: series.count, last_observed_time: MicroTime(series.last) };
    events::v1::Event {
        metadata: metadata(series),
        action: action(series),
        event_time: Some(MicroTime(series.first)),
        note: Some(event.note.clone()),
        reason: Some(event.reason.clone()),
        regarding: Some(series.regarding.clone()),
        related: event.related.clone(),
        reporting_controller: Some(source.controller.clone()),
        reporting_instance: Some(source.instance.clone()),
        series: is_series.then_some(repeats),
        type_: Some(event.kind.to_string()),
        ..Default::default()
    }
}

/// An Event of `v1`.
pub(super) fn core_v1(series: &Series, source: &Reporter) -> core::v1::Event {
    let event = &series.event;
    core::v1::Event {
        metadata: metadata(series),
        action: event.action.clone(),
        count: Some(series.count),
        first_timestamp: Some(Time(series.first)),
        last_timestamp: Some(Time(series.last)),
        involved_object: series.regarding.clone(),
        message: Some(event.note.clone()),
        reason: Some(event.reason.clone()),
        related: event.related.clone(),
        reporting_component: Some(source.controller.clone()),
        reporting_instance: Some(source.instance.clone()),
        source: Some(EventSource {
            component: Some(source.controller.clone()),
            host: Some(source.instance.clone()),
        }),
        type_: Some(event.kind.to_string()),
        ..Default::default()
    }
}

/// What changes when an event happens again.
pub(super) fn patch(api: EventApi, series: &Series) -> Value {
    match api {
        // Everything else of such an Event is immutable, also the note of a combined one.
        EventApi::EventsV1 => {
            json!({"series": {"count": series.count, "lastObservedTime": MicroTime(series.last)}})
        }
        EventApi::CoreV1 => json!({
            "count": series.count,
            "lastTimestamp": Time(series.last),
            "message": series.event.note,
        }),
    }
}
