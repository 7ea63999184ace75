//! What is counted of requests.

use std::collections::HashMap;
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;

use crate::Metrics;
use crate::metrics::{Counter, Histogram, names};

/// The metrics of a client. A series is made when it is first counted, and looked up in here from then on.
#[derive(Debug)]
pub(super) struct ClientMetrics {
    all: Metrics,
    host: String,
    pub(super) waited: Histogram,
    requests: Mutex<HashMap<(Method, Option<u16>), Counter>>,
    durations: Mutex<HashMap<Method, Histogram>>,
}

impl ClientMetrics {
    pub(super) fn new(metrics: &Metrics, host: &str) -> ClientMetrics {
        ClientMetrics {
            all: metrics.clone(),
            host: host.to_owned(),
            waited: metrics.histogram(names::LIMITER_DURATION, &[]),
            requests: Mutex::default(),
            durations: Mutex::default(),
        }
    }

    pub(super) fn to_host(&self, host: &str) -> ClientMetrics {
        ClientMetrics::new(&self.all, host)
    }

    /// A request has an answer, or will have none.
    pub(super) fn answered(&self, method: &Method, code: Option<u16>, time: Duration) {
        let mut requests = self.requests.lock();
        let new = || self.all.counter(names::REQUESTS_TOTAL, &[&words(code), method.as_str(), &self.host]);
        requests.entry((method.clone(), code)).or_insert_with(new).inc();
        drop(requests);
        let new = || self.all.histogram(names::REQUEST_DURATION, &[method.as_str(), &self.host]);
        self.durations.lock().entry(method.clone()).or_insert_with(new).observe(time);
    }

    pub(super) fn retried(&self, method: &Method, code: Option<u16>) {
        self.all.counter(names::REQUEST_RETRIES, &[&words(code), method.as_str(), &self.host]).inc();
    }
}

fn words(code: Option<u16>) -> String {
    code.map_or_else(|| "<error>".to_owned(), |code| code.to_string())
}
