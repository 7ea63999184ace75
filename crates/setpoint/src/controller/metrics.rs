//! What a controller measures, under the names that dashboards know from controller-runtime.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::facts::Name;
use crate::metrics::{Counter, Gauge, Histogram};
use crate::{Cause, Metrics, Reasons};

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Success,
    RequeueAfter,
    Error,
    TerminalError,
}

/// The metrics of one controller.
#[derive(Clone, Debug)]
pub(super) struct ControllerMetrics {
    success: Counter,
    requeue_after: Counter,
    error: Counter,
    errors: Counter,
    terminal: Counter,
    panics: Counter,
    timeouts: Counter,
    time: Histogram,
    active: Gauge,
    catch_up: Histogram,
    catch_up_late: Counter,
    self_triggered: Counter,
    unchanged_writes: Counter,
    reasons: Arc<ReasonCounters>,
}

/// Reconciles by what they were for. A series is made when it is first counted.
#[derive(Debug)]
struct ReasonCounters {
    metrics: Metrics,
    controller: String,
    counters: Mutex<BTreeMap<(Option<Name>, Cause), Counter>>,
}

impl ReasonCounters {
    fn count(&self, resource: Option<Name>, cause: Cause) {
        let mut counters = self.counters.lock();
        let key = (resource, cause);
        if let Some(counter) = counters.get(&key) {
            return counter.inc();
        }
        let labels = [
            ("controller", self.controller.as_str()),
            ("resource", key.0.as_deref().unwrap_or_default()),
            ("cause", cause.as_str()),
        ];
        let help = "Reconciles by what they were for; one with several reasons counts for each.";
        let counter = self.metrics.counter("setpoint_controller_reasons_total", help, &labels);
        counter.inc();
        counters.insert(key, counter);
    }
}

/// Seconds, as in controller-runtime.
const BUCKETS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0,
];

impl ControllerMetrics {
    pub(super) fn new(metrics: &Metrics, controller: &str, workers: usize) -> ControllerMetrics {
        let labels = [("controller", controller)];
        let total = |result: &str| {
            let labels = [("controller", controller), ("result", result)];
            metrics.counter(
                "controller_runtime_reconcile_total",
                "Reconciles that have ended, by result.",
                &labels,
            )
        };
        let count = |name, help| metrics.counter(name, help, &labels);
        metrics
            .gauge("controller_runtime_max_concurrent_reconciles", "How many workers there are.", &labels)
            .set(workers as u64);
        ControllerMetrics {
            success: total("success"),
            requeue_after: total("requeue_after"),
            error: total("error"),
            errors: count("controller_runtime_reconcile_errors_total", "Reconciles that have failed."),
            terminal: count(
                "controller_runtime_terminal_reconcile_errors_total",
                "Reconciles that have failed for good.",
            ),
            panics: count("controller_runtime_reconcile_panics_total", "Reconciles that have panicked."),
            timeouts: count(
                "controller_runtime_reconcile_timeouts_total",
                "Reconciles that were dropped since they took longer than their time limit.",
            ),
            time: metrics.histogram(
                "controller_runtime_reconcile_time_seconds",
                "How long reconciles take.",
                &labels,
                BUCKETS,
            ),
            active: metrics.gauge(
                "controller_runtime_active_workers",
                "Workers that reconcile now.",
                &labels,
            ),
            catch_up: metrics.histogram(
                "setpoint_controller_catch_up_seconds",
                "How long keys wait until the caches show what they wrote.",
                &labels,
                BUCKETS,
            ),
            catch_up_late: count(
                "setpoint_controller_catch_up_late_total",
                "Keys that were reconciled again although a cache did not show what they wrote.",
            ),
            self_triggered: count(
                "setpoint_controller_self_triggered_total",
                "Reconciles in a row of those that nothing but the key's own last writes has caused.",
            ),
            unchanged_writes: count(
                "setpoint_controller_unchanged_writes_total",
                "Writes that changed nothing.",
            ),
            reasons: Arc::new(ReasonCounters {
                metrics: metrics.clone(),
                controller: controller.to_owned(),
                counters: Mutex::default(),
            }),
        }
    }

    pub(super) fn started(&self) -> Running {
        self.active.add(1);
        Running(self.active.clone())
    }

    pub(super) fn finished(&self, ending: Ending, time: Duration) {
        self.time.observe(time);
        match ending {
            Ending::Success => self.success.inc(),
            Ending::RequeueAfter => self.requeue_after.inc(),
            Ending::Error | Ending::TerminalError => {
                self.error.inc();
                self.errors.inc();
            }
        }
        if ending == Ending::TerminalError {
            self.terminal.inc();
        }
    }

    pub(super) fn reasons(&self, reasons: &Reasons) {
        for reason in reasons.iter() {
            self.reasons.count(reason.resource, reason.cause);
        }
    }

    pub(super) fn self_triggered(&self) {
        self.self_triggered.inc();
    }

    pub(super) fn unchanged_write(&self) {
        self.unchanged_writes.inc();
    }

    pub(super) fn timed_out(&self) {
        self.timeouts.inc();
    }

    pub(super) fn panicked(&self) {
        self.panics.inc();
    }

    pub(super) fn caught_up(&self, time: Duration, is_late: bool) {
        self.catch_up.observe(time);
        if is_late {
            self.catch_up_late.inc();
        }
    }
}

/// A reconcile that runs, also if it is dropped halfway.
pub(super) struct Running(Gauge);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.sub(1);
    }
}
