//! What a reflector counts.

use super::watch::Event;
use super::{Failure, Target};
use crate::Metrics;
use crate::metrics::Counter;

#[derive(Clone)]
pub(crate) struct ReflectorMetrics {
    metrics: Metrics,
    name: String,
    namespace: String,
    pub(super) received: Counter,
    added: Counter,
    modified: Counter,
    deleted: Counter,
    bookmark: Counter,
    error: Counter,
    decode_errors: Counter,
    failures: Counter,
    restarts: Counter,
}

impl ReflectorMetrics {
    pub(crate) fn new(metrics: Metrics, target: &Target) -> ReflectorMetrics {
        let (name, namespace) = (target.resource.clone(), target.scope.to_string());
        let labels = [("name", name.as_str()), ("namespace", namespace.as_str())];
        let event = |kind| {
            let labels = [labels[0], labels[1], ("type", kind)];
            metrics.counter(
                "informer_events_total",
                "Events that a watch or streaming list brought.",
                &labels,
            )
        };
        ReflectorMetrics {
            received: metrics.counter(
                "informer_received_bytes_total",
                "Bytes received from the server.",
                &labels,
            ),
            added: event("added"),
            modified: event("modified"),
            deleted: event("deleted"),
            bookmark: event("bookmark"),
            error: event("error"),
            decode_errors: metrics.counter(
                "informer_decode_errors_total",
                "Objects that could not be decoded and were skipped.",
                &labels,
            ),
            failures: metrics.counter("informer_failures_total", "Lists and watches that failed.", &labels),
            restarts: metrics.counter(
                "informer_restarts_total",
                "Panics of a reflector or of what applies its changes, each followed by a list.",
                &labels,
            ),
            metrics,
            name,
            namespace,
        }
    }

    pub(super) fn count_event<T>(&self, event: &Event<T>) {
        match event {
            Event::Added(_) => self.added.inc(),
            Event::Modified(_) => self.modified.inc(),
            Event::Deleted(_) => self.deleted.inc(),
            Event::Bookmark { .. } => self.bookmark.inc(),
            Event::Error(_) | Event::Malformed(_) => self.error.inc(),
        }
    }

    pub(super) fn count_failure(&self, failure: &Failure) {
        match failure {
            Failure::Object { .. } => self.decode_errors.inc(),
            _ => self.failures.inc(),
        }
    }

    pub(crate) fn restart(&self) {
        self.restarts.inc();
    }

    pub(super) fn relist(&self, reason: &str) {
        let labels =
            [("name", self.name.as_str()), ("namespace", self.namespace.as_str()), ("reason", reason)];
        self.metrics.counter("informer_relists_total", "Lists after the first one.", &labels).inc();
    }
}
