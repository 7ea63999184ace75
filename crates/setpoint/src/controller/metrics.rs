//! What a controller measures, under the names that dashboards know from controller-runtime.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::facts::Name;
use crate::metrics::{Counter, Gauge, Histogram, names};
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
            counter.inc();
            return;
        }
        let values = [&self.controller, key.0.as_deref().unwrap_or_default(), key.1.as_str()];
        let counter = self.metrics.counter(names::REASONS, &values);
        counter.inc();
        counters.insert(key, counter);
    }
}

impl ControllerMetrics {
    pub(super) fn new(metrics: &Metrics, controller: &str, workers: usize) -> ControllerMetrics {
        let total = |result: &str| metrics.counter(names::RECONCILE_TOTAL, &[controller, result]);
        let count = |description| metrics.counter(description, &[controller]);
        metrics.gauge(names::MAX_WORKERS, &[controller]).set(workers as u64);
        ControllerMetrics {
            success: total("success"),
            requeue_after: total("requeue_after"),
            error: total("error"),
            errors: count(names::RECONCILE_ERRORS),
            terminal: count(names::TERMINAL_ERRORS),
            panics: count(names::RECONCILE_PANICS),
            timeouts: count(names::RECONCILE_TIMEOUTS),
            time: metrics.histogram(names::RECONCILE_TIME, &[controller]),
            active: metrics.gauge(names::ACTIVE_WORKERS, &[controller]),
            catch_up: metrics.histogram(names::CATCH_UP, &[controller]),
            catch_up_late: count(names::CATCH_UP_LATE),
            self_triggered: count(names::SELF_TRIGGERED),
            unchanged_writes: count(names::UNCHANGED_WRITES),
            reasons: Arc::new(ReasonCounters {
                metrics: metrics.clone(),
                controller: controller.to_owned(),
                counters: Mutex::default(),
            }),
        }
    }

    pub(super) fn started(&self) -> Running {
        self.active.inc();
        Running(self.active.clone())
    }

    pub(super) fn finished(&self, ending: Ending, time: Duration) {
        self.time.observe(time);
        let counter = match ending {
            Ending::Success => &self.success,
            Ending::RequeueAfter => &self.requeue_after,
            Ending::Error | Ending::TerminalError => {
                self.errors.inc();
                &self.error
            }
        };
        counter.inc();
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
        self.0.dec();
    }
}
