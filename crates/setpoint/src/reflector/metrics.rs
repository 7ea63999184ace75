//! What a reflector counts.

use super::heard::Heard;
use super::watch::Event;
use super::{ReflectorFailure, Target};
use setpoint_env::Env;

use crate::Metrics;
use crate::metrics::{Counter, names};

#[derive(Clone)]
pub(crate) struct ReflectorMetrics {
    metrics: Metrics,
    name: String,
    namespace: String,
    pub(super) received: Counter,
    pub(super) heard: Heard,
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
    pub(crate) fn new(metrics: Metrics, env: Env, target: &Target) -> ReflectorMetrics {
        let (name, namespace) = (target.resource.clone(), target.scope.to_string());
        let labels = [name.as_str(), namespace.as_str()];
        let count = |description| metrics.counter(description, &labels);
        let event = |kind| metrics.counter(names::INFORMER_EVENTS, &[&name, &namespace, kind]);
        let heard = Heard::new(env);
        metrics.computed_gauge(names::CACHE_AGE, &labels, heard.age());
        ReflectorMetrics {
            received: count(names::RECEIVED_BYTES),
            heard,
            added: event("added"),
            modified: event("modified"),
            deleted: event("deleted"),
            bookmark: event("bookmark"),
            error: event("error"),
            decode_errors: count(names::DECODE_ERRORS),
            failures: count(names::INFORMER_FAILURES),
            restarts: count(names::INFORMER_RESTARTS),
            metrics,
            name,
            namespace,
        }
    }

    pub(super) fn count_event<T>(&self, event: &Event<T>) {
        let counter = match event {
            Event::Added(_) => &self.added,
            Event::Modified(_) => &self.modified,
            Event::Deleted(_) => &self.deleted,
            Event::Bookmark { .. } => &self.bookmark,
            Event::Error(_) | Event::Malformed(_) => &self.error,
        };
        counter.inc();
    }

    pub(super) fn count_failure(&self, failure: &ReflectorFailure) {
        let counter = match failure {
            ReflectorFailure::Object { .. } => &self.decode_errors,
            _ => &self.failures,
        };
        counter.inc();
    }

    pub(crate) fn restart(&self) {
        self.restarts.inc();
    }

    pub(super) fn relist(&self, reason: &str) {
        self.metrics.counter(names::RELISTS, &[&self.name, &self.namespace, reason]).inc();
    }
}
