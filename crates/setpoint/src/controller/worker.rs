//! A worker: takes keys, reconciles them, and holds each back until the caches show what it wrote.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use kube::Client;
use tokio::time::{Instant, timeout};
use tracing::Instrument;

use super::caches::{self, Cache};
use super::context::{Context, Shared};
use super::metrics::{ControllerMetrics, Outcome};
use super::reconciler::AnyReconciler;
use super::writes::{Notes, Write};
use super::{Action, ReconcileError};
use crate::workqueue::Item;
use crate::{ObjectKey, WorkQueue};

/// What the workers of one controller share.
pub(super) struct Work {
    pub(super) queue: WorkQueue<ObjectKey>,
    pub(super) reconciler: Box<dyn AnyReconciler>,
    pub(super) caches: Vec<Box<dyn Cache>>,
    pub(super) context: Arc<Shared>,
    pub(super) time_limit: Option<Duration>,
    pub(super) catch_up_limit: Duration,
    pub(super) metrics: ControllerMetrics,
}

/// Works until the queue is shut down and empty, writing with `client`.
pub(super) async fn run(work: Arc<Work>, client: Client) {
    let notes = Notes::default();
    let tracked = notes.client(&client);
    // Keys that wait for caches. They are still being processed as far as the queue is concerned, so nobody
    // else gets them; but they do not keep this worker from its work.
    let mut waiting: FuturesUnordered<BoxFuture<'static, ()>> = FuturesUnordered::new();
    loop {
        let item = tokio::select! {
            biased;
            Some(()) = waiting.next() => continue,
            item = work.queue.get() => item,
        };
        let Some(item) = item else { break };
        let context =
            Context { shared: work.context.clone(), client: tracked.clone(), untracked: client.clone() };
        reconcile(&work, &item, context).await;
        let writes = notes.take();
        if writes.is_empty() {
            item.done();
        } else {
            waiting.push(Box::pin(hold(work.clone(), client.clone(), item, writes)));
        }
    }
    // The queue says that it is empty only when these are done too.
    while waiting.next().await.is_some() {}
}

/// Holds a key back until every cache has seen what was written, at most for the limit.
async fn hold(work: Arc<Work>, client: Client, item: Item<ObjectKey>, writes: Vec<Write>) {
    let started = Instant::now();
    let seen = caches::wait_until_seen(&work.caches, &client, writes);
    tokio::select! {
        biased;
        () = work.context.shutdown.cancelled() => {}
        waited = timeout(work.catch_up_limit, seen) => {
            let is_late = waited.is_err();
            work.metrics.caught_up(started.elapsed(), is_late);
            if is_late {
                tracing::warn!(
                    controller = work.context.name,
                    key = %*item,
                    waited = ?work.catch_up_limit,
                    "a cache does not show what was written; reconciling without it",
                );
            }
        }
    }
    item.done();
}

/// Reconciles one key, and tells the queue what shall happen with it next.
async fn reconcile(work: &Work, item: &Item<ObjectKey>, context: Context) {
    let key: ObjectKey = (**item).clone();
    let started = Instant::now();
    let running = work.metrics.started();
    let span = tracing::info_span!("reconcile", controller = work.context.name, key = %key);
    let result = call(work, key.clone(), context).instrument(span).await;
    drop(running);
    let retried = work.queue.num_requeues(&key);
    let outcome = match &result {
        Ok(action) if action.delay().is_some() => Outcome::RequeueAfter,
        Ok(_) => Outcome::Success,
        Err(failure) if failure.is_terminal() => Outcome::TerminalError,
        Err(_) => Outcome::Error,
    };
    work.metrics.finished(outcome, started.elapsed());
    match result {
        Ok(action) => {
            work.queue.forget(&key);
            if let Some(delay) = action.delay() {
                work.queue.add_after(key, delay);
            }
        }
        Err(error) if error.is_terminal() => {
            tracing::error!(controller = work.context.name, %key, %error, "reconcile failed; it is not tried again");
            work.queue.forget(&key);
        }
        Err(error) => {
            if error.is_conflict() {
                // Somebody else was faster: the next try sees what they wrote.
                tracing::debug!(controller = work.context.name, %key, %error, retried, "reconcile met a conflict; it is tried again");
            } else {
                tracing::warn!(controller = work.context.name, %key, %error, retried, "reconcile failed; it is tried again");
            }
            work.queue.at_priority(item.priority()).add_rate_limited(key);
        }
    }
}

/// Runs the user's code within its time, and catches its panics.
async fn call(work: &Work, key: ObjectKey, context: Context) -> Result<Action, ReconcileError> {
    let running = AssertUnwindSafe(work.reconciler.call(key, context)).catch_unwind();
    let finished = match work.time_limit {
        Some(limit) => match timeout(limit, running).await {
            Ok(finished) => finished,
            Err(_) => return Err(format!("it took longer than {limit:?}").into()),
        },
        None => running.await,
    };
    finished.unwrap_or_else(|panic| {
        work.metrics.panicked();
        let message = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let message = message.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(format!("it panicked: {}", message.unwrap_or_default()).into())
    })
}
