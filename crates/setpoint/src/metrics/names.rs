//! Everything that the runtime measures: names, labels, and what they mean. `docs/metrics.md` shows this table.

/// A metric of the runtime.
#[derive(Debug)]
pub(crate) struct Description {
    /// As it is exported.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) labels: &'static [&'static str],
    pub(crate) help: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    /// Upper bounds in seconds, ascending.
    Histogram(&'static [f64]),
}

use Kind::{Counter, Gauge, Histogram};

/// Those of controller-runtime.
const RECONCILES: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0,
];

/// Those of client-go's queues: from 10 ns to 1000 s.
const QUEUED: &[f64] = &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0];

/// Those of client-go's requests.
const REQUESTS: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

/// Those that Prometheus' libraries have unless told otherwise, and so those of controller-runtime's webhooks.
const WEBHOOKS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

macro_rules! descriptions {
    ($($constant:ident $kind:expr, $name:literal $labels:expr, $help:literal;)*) => {
        $(pub(crate) const $constant: &Description =
            &Description { name: $name, kind: $kind, labels: &$labels, help: $help };)*
        /// All of them, in the order of the table.
        #[cfg(test)]
        pub(super) const ALL: &[&Description] = &[$($constant),*];
    };
}

descriptions! {
    RECONCILE_TOTAL Counter, "controller_runtime_reconcile_total" ["controller", "result"],
        "Finished reconciles, by result.";
    RECONCILE_ERRORS Counter, "controller_runtime_reconcile_errors_total" ["controller"],
        "Failed reconciles.";
    TERMINAL_ERRORS Counter, "controller_runtime_terminal_reconcile_errors_total" ["controller"],
        "Reconciles that failed with a terminal error, which is not retried.";
    RECONCILE_PANICS Counter, "controller_runtime_reconcile_panics_total" ["controller"],
        "Reconciles that panicked.";
    RECONCILE_TIMEOUTS Counter, "controller_runtime_reconcile_timeouts_total" ["controller"],
        "Reconciles that were cancelled at their time limit.";
    RECONCILE_TIME Histogram(RECONCILES), "controller_runtime_reconcile_time_seconds" ["controller"],
        "How long reconciles take.";
    ACTIVE_WORKERS Gauge, "controller_runtime_active_workers" ["controller"],
        "Workers that are reconciling a key.";
    MAX_WORKERS Gauge, "controller_runtime_max_concurrent_reconciles" ["controller"],
        "The number of workers.";
    CATCH_UP Histogram(RECONCILES), "setpoint_controller_catch_up_seconds" ["controller"],
        "How long keys are held until the caches observe their writes.";
    CATCH_UP_LATE Counter, "setpoint_controller_catch_up_late_total" ["controller"],
        "Keys that were reconciled again before the caches had observed their writes.";
    SELF_TRIGGERED Counter, "setpoint_controller_self_triggered_total" ["controller"],
        "Reconciles that were caused only by the key's own writes, from the fifth in a row.";
    UNCHANGED_WRITES Counter, "setpoint_controller_unchanged_writes_total" ["controller"],
        "Writes that changed nothing.";
    REASONS Counter, "setpoint_controller_reasons_total" ["controller", "resource", "cause"],
        "Reconciles by reason; one with several reasons counts for each.";
    WEBHOOK_REQUESTS Counter, "controller_runtime_webhook_requests_total" ["webhook", "code"],
        "Webhook calls by path and HTTP status code.";
    WEBHOOK_LATENCY Histogram(WEBHOOKS), "controller_runtime_webhook_latency_seconds" ["webhook", "code"],
        "How long webhook calls took.";
    WEBHOOK_IN_FLIGHT Gauge, "controller_runtime_webhook_requests_in_flight" ["webhook"],
        "Webhook calls in flight.";
    WEBHOOK_ANSWERS Counter, "controller_runtime_webhook_admission_responses_total" ["webhook", "allowed", "admission_code"],
        "Admission responses by whether they allow the request, and by their status code.";
    WEBHOOK_PANICS Counter, "controller_runtime_webhook_panics_total" [],
        "Webhook calls whose handler panicked.";
    QUEUE_DEPTH Gauge, "workqueue_depth" ["name"],
        "Keys that are queued, or were added again while they are processed or held.";
    QUEUE_ADDS Counter, "workqueue_adds_total" ["name"],
        "Keys that were added.";
    QUEUE_RETRIES Counter, "workqueue_retries_total" ["name"],
        "Keys that were added after a failure.";
    QUEUE_DURATION Histogram(QUEUED), "workqueue_queue_duration_seconds" ["name"],
        "How long keys waited in the queue.";
    WORK_DURATION Histogram(QUEUED), "workqueue_work_duration_seconds" ["name"],
        "How long processing a key took.";
    UNFINISHED_WORK Gauge, "workqueue_unfinished_work_seconds" ["name"],
        "Time spent so far on keys in progress, summed.";
    LONGEST_RUNNING Gauge, "workqueue_longest_running_processor_seconds" ["name"],
        "The longest time spent so far on a key in progress.";
    CACHE_AGE Gauge, "setpoint_cache_age_seconds" ["name", "namespace"],
        "The time since the last event, bookmark or list; of several caches of a kind, the longest.";
    STORE_OBJECTS Gauge, "informer_store_objects" ["name"],
        "Objects in the cache.";
    STORE_VERSION Gauge, "informer_store_resource_version" ["name", "namespace"],
        "The resourceVersion of the cache.";
    QUEUED_ITEMS Gauge, "informer_queued_items" ["name", "namespace"],
        "Objects with changes that are not in the cache yet.";
    INFORMER_EVENTS Counter, "informer_events_total" ["name", "namespace", "type"],
        "Events received from watches and streaming lists.";
    RECEIVED_BYTES Counter, "informer_received_bytes_total" ["name", "namespace"],
        "Bytes received from the server.";
    DECODE_ERRORS Counter, "informer_decode_errors_total" ["name", "namespace"],
        "Objects that could not be decoded and were skipped.";
    INFORMER_FAILURES Counter, "informer_failures_total" ["name", "namespace"],
        "Lists and watches that failed.";
    RELISTS Counter, "informer_relists_total" ["name", "namespace", "reason"],
        "Lists after the first one, by reason.";
    INFORMER_RESTARTS Counter, "informer_restarts_total" ["name", "namespace"],
        "Restarts after a panic of a reflector or of the task that applies its changes.";
    HANDLER_LAG Gauge, "informer_handler_lag" ["name", "handler"],
        "Changes that are not delivered to a handler yet.";
    HANDLER_PANICS Counter, "informer_handler_panics_total" ["name", "handler"],
        "Calls of a handler that panicked.";
    REQUESTS_TOTAL Counter, "rest_client_requests_total" ["code", "method", "host"],
        "Requests to the API server by status code, method and host; `<error>` means no response.";
    REQUEST_DURATION Histogram(REQUESTS), "rest_client_request_duration_seconds" ["verb", "host"],
        "Time until the response headers of a request to the API server.";
    REQUEST_RETRIES Counter, "rest_client_request_retries_total" ["code", "verb", "host"],
        "Retried requests.";
    LIMITER_DURATION Histogram(REQUESTS), "rest_client_rate_limiter_duration_seconds" [],
        "How long requests waited for the rate limiter.";
    EVENTS_WRITTEN Counter, "event_recorder_written_total" ["controller"],
        "Writes of Events.";
    EVENTS_DROPPED Counter, "event_recorder_dropped_total" ["controller", "reason"],
        "Events that were not written, by reason.";
    MASTER_STATUS Gauge, "leader_election_master_status" ["name"],
        "Whether this replica leads.";
    SLOWPATH Counter, "leader_election_slowpath_total" ["name"],
        "Attempts to acquire or renew a lease that had to read it first.";
}
