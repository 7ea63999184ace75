//! Writes that end before the lease can be another's.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use setpoint_env::watch;
use tower::BoxError;

use super::clock::LocalClock;
use crate::mutants::{Promise, is_kept};

/// Open as long as the lease is surely held. Clones are the same fence.
#[derive(Clone, Debug)]
pub struct Fence {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    lease: String,
    clock: LocalClock,
    deadline: watch::Sender<Option<Deadline>>,
}

/// Until when the lease is surely held.
#[derive(Clone, Copy, Debug)]
struct Deadline {
    at: Duration,
    /// The same by the wall clock, which goes on while a machine sleeps: when it was set, and for how long.
    wall: Timestamp,
    length: Duration,
}

/// A write that was not made, or cut, since the lease is no longer surely held.
///
/// A write that was cut may have been committed or not; the next leader finds out.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{what}: the lease {lease} is no longer certainly held by this replica")]
pub struct NotLeader {
    lease: String,
    what: String,
}

impl NotLeader {
    /// The reason for a failed request, if it is this one.
    pub fn find(error: &kube::Error) -> Option<&NotLeader> {
        let mut next: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref::<NotLeader>() {
                return Some(found);
            }
            next = error.source();
        }
        None
    }
}

impl Fence {
    /// A fence that is closed until [`Fence::extend`].
    pub(super) fn new(lease: String, clock: LocalClock) -> Fence {
        Fence { inner: Arc::new(Inner { lease, clock, deadline: watch::Sender::default() }) }
    }

    /// The lease is surely held from `sent` on for `length`, both by the local clock.
    pub(super) fn extend(&self, sent: Duration, length: Duration) {
        let clock = &self.inner.clock;
        // What has passed since it was sent is taken off, so that both clocks end at the same time.
        let length = sent.saturating_add(length).saturating_sub(clock.now());
        let at = clock.now().saturating_add(length);
        self.inner.deadline.send_replace(Some(Deadline { at, wall: clock.wall(), length }));
    }

    /// Ends it for good.
    pub(super) fn close(&self) {
        self.inner.deadline.send_replace(None);
    }

    /// Whether the lease is surely held now.
    pub fn is_open(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// For how long the lease is surely held, by the local clock.
    pub fn remaining(&self) -> Duration {
        let clock = &self.inner.clock;
        let Some(deadline) = *self.inner.deadline.borrow() else { return Duration::ZERO };
        let by_wall = deadline.length.saturating_sub(clock.wall_since(deadline.wall));
        deadline.at.saturating_sub(clock.now()).min(by_wall)
    }

    /// For things that are done without a Kubernetes client: an error if the lease is no longer surely held.
    pub fn check(&self, what: &str) -> Result<(), NotLeader> {
        if self.is_open() { Ok(()) } else { Err(self.refusal(format!("refused {what}"))) }
    }

    /// Waits until the lease is no longer surely held.
    pub async fn closed(&self) {
        let mut deadline = self.inner.deadline.subscribe();
        loop {
            let Some(Deadline { at, .. }) = *deadline.borrow_and_update() else { return };
            if self.inner.clock.now() >= at {
                return;
            }
            tokio::select! {
                biased;
                changed = deadline.changed() => if changed.is_err() { return },
                () = self.inner.clock.sleep_until(at) => {}
            }
        }
    }

    /// Waits until the lease is surely held.
    pub(crate) async fn opened(&self) {
        let mut deadline = self.inner.deadline.subscribe();
        // The sender lives as long as the fence.
        while !self.is_open() && deadline.changed().await.is_ok() {}
    }

    /// The same client, whose writes are refused and cut when the lease is no longer surely held. Reads pass.
    pub fn client(&self, client: &Client) -> Client {
        let (fence, inner) = (self.clone(), client.clone());
        let service = tower::service_fn(move |request| {
            let (fence, client) = (fence.clone(), inner.clone());
            async move { fence.send(&client, request).await }
        });
        Client::new(service, client.default_namespace())
    }

    async fn send(&self, client: &Client, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        if !is_write(&request) || !is_kept(Promise::Fence) {
            return Ok(client.send(request).await?);
        }
        let what = format!("{} {}", request.method(), request.uri().path());
        self.check(&what)?;
        tokio::select! {
            biased;
            () = self.closed() => Err(self.refusal(format!("cut {what}")).into()),
            response = client.send(request) => Ok(response?),
        }
    }

    fn refusal(&self, what: String) -> NotLeader {
        NotLeader { lease: self.inner.lease.clone(), what }
    }
}

/// Whatever can change something; also the connections of `exec`, `attach` and `port-forward`.
fn is_write(request: &Request<Body>) -> bool {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    !is_read || request.headers().contains_key(http::header::UPGRADE)
}
