//! Counts requests, by who sends them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use setpoint::kube::Client;
use setpoint::kube::client::Body;
use setpoint_apiserver::{ApiServer, User};
use tower::{ServiceExt, service_fn};

/// Clones count together.
#[derive(Clone, Default)]
pub(crate) struct Requests(Arc<Mutex<BTreeMap<&'static str, Arc<AtomicU64>>>>);

impl Requests {
    /// A client whose requests are counted under this name.
    pub(crate) fn client(&self, server: &ApiServer, who: &'static str) -> Client {
        let count = self.0.lock().entry(who).or_default().clone();
        let service = server.as_user(User::admin());
        let counted = service_fn(move |request: http::Request<Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            service.clone().oneshot(request)
        });
        Client::new(counted, "default")
    }

    /// How many each has sent.
    pub(crate) fn by_sender(&self) -> Vec<(&'static str, u64)> {
        self.0.lock().iter().map(|(who, count)| (*who, count.load(Ordering::Relaxed))).collect()
    }
}
