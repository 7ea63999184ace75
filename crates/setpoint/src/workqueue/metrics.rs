//! What a queue measures, under the names that dashboards know from client-go.

use std::sync::Weak;
use std::time::Duration;

use super::Inner;
use super::state::Unfinished;
use crate::Metrics;
use crate::metrics::{Counter, Histogram};

/// Seconds, as in client-go: from 10 ns to 1000 s.
const BUCKETS: &[f64] = &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0];

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
        let labels = [("name", name)];
        let gauge = |metric, help, value: fn(&Inner<K>) -> f64| {
            let queue = queue.clone();
            metrics.computed_gauge(metric, help, &labels, move || Some(value(&*queue.upgrade()?)));
        };
        gauge("workqueue_depth", "Keys that want to be processed.", |queue| queue.shared.depth() as f64);
        gauge(
            "workqueue_unfinished_work_seconds",
            "Time spent so far on keys in progress, summed.",
            |queue| unfinished(queue).total.as_secs_f64(),
        );
        gauge(
            "workqueue_longest_running_processor_seconds",
            "The longest time spent so far on a key in progress.",
            |queue| unfinished(queue).longest.as_secs_f64(),
        );
        let histogram = |metric, help| metrics.histogram(metric, help, &labels, BUCKETS);
        QueueMetrics {
            adds: metrics.counter("workqueue_adds_total", "Keys that were added.", &labels),
            retries: metrics.counter(
                "workqueue_retries_total",
                "Keys that were added after a failure.",
                &labels,
            ),
            queue_duration: histogram("workqueue_queue_duration_seconds", "How long keys were queued."),
            work_duration: histogram("workqueue_work_duration_seconds", "How long keys were processed."),
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
