//! What a webhook server measures, under the names that dashboards know from controller-runtime.

use http::StatusCode;
use serde_json::Value;
use setpoint_env::Env;
use tokio::time::Instant;

use crate::Metrics;
use crate::metrics::names;

/// The metrics of all webhooks of a server.
#[derive(Clone)]
pub(super) struct WebhookMetrics {
    metrics: Metrics,
    env: Env,
}

/// A call that is being answered.
pub(super) struct Call<'a> {
    of: &'a WebhookMetrics,
    path: &'a str,
    begun: Instant,
}

impl WebhookMetrics {
    pub(super) fn new(metrics: Metrics, env: Env) -> WebhookMetrics {
        // Who looks for panics finds none, rather than no series.
        metrics.counter(names::WEBHOOK_PANICS, &[]);
        WebhookMetrics { metrics, env }
    }

    pub(super) fn begin<'a>(&'a self, path: &'a str) -> Call<'a> {
        self.metrics.gauge(names::WEBHOOK_IN_FLIGHT, &[path]).inc();
        Call { of: self, path, begun: self.env.instant() }
    }

    pub(super) fn panicked(&self) {
        self.metrics.counter(names::WEBHOOK_PANICS, &[]).inc();
    }
}

impl Call<'_> {
    /// It gets this review. One of a conversion allows nothing, and is not counted here.
    pub(super) fn reviewed(&self, review: &Value) {
        let Some(is_allowed) = review["response"]["allowed"].as_bool() else { return };
        let without = if is_allowed { 200 } else { 403 };
        let code = review["response"]["status"]["code"].as_u64().unwrap_or(without).to_string();
        let values = [self.path, if is_allowed { "true" } else { "false" }, &code];
        self.of.metrics.counter(names::WEBHOOK_ANSWERS, &values).inc();
    }

    /// It is answered with this code.
    pub(super) fn answered(&self, code: StatusCode) {
        let values = [self.path, code.as_str()];
        self.of.metrics.counter(names::WEBHOOK_REQUESTS, &values).inc();
        let time = self.of.env.instant().saturating_duration_since(self.begun);
        self.of.metrics.histogram(names::WEBHOOK_LATENCY, &values).observe(time);
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.of.metrics.gauge(names::WEBHOOK_IN_FLIGHT, &[self.path]).dec();
    }
}
