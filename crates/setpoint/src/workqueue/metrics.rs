//! What a queue measures, under the names that dashboards know from client-go.

use std::sync::Weak;
use std::time::Duration;

use super::Inner;
use super::state::Unfinished;
use crate::Metrics;
use crate::metrics::names::{self, Description};
use crate::metrics::{Counter, Gone, Histogram};

/// The metrics of one queue.
#[derive(Debug)]
pub(super) struct QueueMetrics {
    adds: Counter,
    retries: Counter,
    queue_duration: Histogram,
    work_duration: Histogram,
}

impl QueueMetrics {
    pub(super) fn new<K: Send + 'static>(
        name: &str,
        metrics: &Metrics,
        queue: Weak<Inner<K>>,
    ) -> QueueMetrics {
        let gauge = |description: &'static Description, value: fn(&Inner<K>) -> f64| {
            let queue = queue.clone();
            metrics.computed_gauge(description, &[name], move || {
                Ok(Some(value(&*queue.upgrade().ok_or(Gone)?)))
            });
        };
        gauge(names::QUEUE_DEPTH, |queue| queue.shared.depth() as f64);
        gauge(names::UNFINISHED_WORK, |queue| unfinished(queue).total.as_secs_f64());
        gauge(names::LONGEST_RUNNING, |queue| unfinished(queue).longest.as_secs_f64());
        QueueMetrics {
            adds: metrics.counter(names::QUEUE_ADDS, &[name]),
            retries: metrics.counter(names::QUEUE_RETRIES, &[name]),
            queue_duration: metrics.histogram(names::QUEUE_DURATION, &[name]),
            work_duration: metrics.histogram(names::WORK_DURATION, &[name]),
        }
    }

    pub(super) fn added(&self) {
        self.adds.inc();
    }

    pub(super) fn retried(&self) {
        self.retries.inc();
    }

    /// A key was taken that was queued for this time.
    pub(super) fn taken(&self, time: Duration) {
        self.queue_duration.observe(time);
    }

    /// A key was processed in this time.
    pub(super) fn finished(&self, time: Duration) {
        self.work_duration.observe(time);
    }
}

fn unfinished<K>(queue: &Inner<K>) -> Unfinished {
    queue.shared.unfinished()
}
