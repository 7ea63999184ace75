//! A worker: takes keys, reconciles them, and lets each be held until the caches show what it wrote.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use kube::Client;
use setpoint_env::{Task, panic_text};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::caches::{Cache, Caches, until_seen};
use super::context::{Context, Shared};
use super::detector::{Detector, Loop};
use super::live::until_known;
use super::metrics::{ControllerMetrics, Ending};
use super::reconciler::AnyReconciler;
use super::writes::{self, Notes, Unknown, Write};
use super::{Action, Key, ReconcileError};
use crate::facts::{
    ControllerProbe, ControllerState, Facts, Finding, LoopEvent, Name, ReconcileResult, Reconciling,
};
use crate::leader_election::Fence;
use crate::mutants::{Promise, is_kept};
use crate::workqueue::{Item, Released, Until};
use crate::{ObjectKey, Reasons, WorkQueue};

/// How long a reconcile waits until the events of earlier ones are written, if there are very many.
const EVENTS: Duration = Duration::from_secs(1);
/// How long a key waits whose rate limiter does not say how long.
const PAUSE: Duration = Duration::from_secs(1);

/// What the workers of one controller share.
pub(super) struct Work<Q> {
    pub(super) queue: WorkQueue<Q>,
    /// What a key is called in logs and facts.
    pub(super) called: fn(&Q) -> ObjectKey,
    pub(super) name: Name,
    pub(super) facts: Facts,
    pub(super) detector: Detector,
    pub(super) reconciler: Box<dyn AnyReconciler<Q>>,
    pub(super) caches: Arc<Caches>,
    pub(super) context: Arc<Shared>,
    pub(super) time_limit: Option<TimeLimit<Q>>,
    pub(super) catch_up_limit: Duration,
    pub(super) workers: usize,
    pub(super) metrics: ControllerMetrics,
}

/// How long one reconcile of a key may take.
pub(super) type TimeLimit<Q> = Arc<dyn Fn(&Q) -> Option<Duration> + Send + Sync>;

impl<Q: Key> ControllerProbe for Work<Q> {
    fn state(&self) -> ControllerState {
        ControllerState { controller: self.name.clone(), workers: self.workers }
    }
}

/// Works until `ending`, writing with `client`. A reconcile that has begun is finished; what is queued or held stays.
/// None begins unless `fence` is open.
pub(super) async fn run<Q: Key>(
    work: Arc<Work<Q>>,
    client: Client,
    fence: Option<Fence>,
    ending: CancellationToken,
) {
    let notes = Notes::new(work.caches.clone(), work.facts.clone(), work.name.clone());
    let tracked = notes.client(&client, &work.context.memory);
    // Keys of which the server is being asked what they wrote.
    let mut asking: Vec<Task<()>> = Vec::new();
    loop {
        // Events are told of everything that is done, so no more is done than can be told.
        let next = async {
            work.context.recorder.has_room(EVENTS).await;
            work.queue.get().await
        };
        let item = tokio::select! {
            biased;
            () = ending.cancelled(), if is_kept(Promise::Shutdown) => break,
            item = next => item,
        };
        let Some(mut item) = item else { break };
        // A process that was stopped for a while may have a key before it knows that another one leads.
        if let Some(fence) = fence.as_ref().filter(|fence| !fence.is_open() && is_kept(Promise::Fence)) {
            work.put_back(item);
            tokio::select! {
                biased;
                () = ending.cancelled() => break,
                () = fence.opened() => continue,
            }
        }
        let name = (work.called)(&item);
        let (reasons, id) = (work.begin(&mut item, &name), work.facts.next_id());
        notes.begin(&name, id);
        let context = Context {
            shared: work.context.clone(),
            client: tracked.clone(),
            untracked: client.clone(),
            reasons: Arc::new(reasons),
            id,
        };
        let reconciled = AssertUnwindSafe(reconcile(&work, &item, &name, context)).catch_unwind();
        if reconciled.await.is_err() {
            // The reconciler's panics are caught before.
            tracing::error!(controller = work.context.name, key = %name, "a rate limiter panicked; requeued");
            work.queue.add_after((*item).clone(), PAUSE);
        }
        let writes = notes.take();
        work.end(&name, &writes);
        if writes.is_empty() || !is_kept(Promise::OwnWrites) {
            item.done();
            continue;
        }
        let caches = work.caches.now();
        let (until, unknown) = until_seen(&caches, writes);
        if unknown.is_empty() {
            hold(&caches, item, until, work.catch_up_limit);
        } else {
            asking.retain(|task| !task.is_finished());
            let asked = ask(work.clone(), client.clone(), caches, item, until, unknown);
            asking.push(work.context.env.spawn(asked));
        }
    }
}

impl<Q: Key> Work<Q> {
    /// A key is queued again, for the same reasons.
    fn put_back(&self, mut item: Item<Q>) {
        let queue = self.queue.at_priority(item.priority());
        let reasons = item.take_reasons();
        reasons.iter().for_each(|reason| queue.add_because((*item).clone(), reason));
        if reasons.is_empty() {
            queue.add((*item).clone());
        }
        item.done();
    }

    /// A reconcile begins: says why, and whether it goes round in circles.
    fn begin(&self, item: &mut Item<Q>, name: &ObjectKey) -> Reasons {
        let mut reasons = item.take_reasons();
        if let Some(found) = self.detector.started(name, &mut reasons) {
            self.found_loop(name, found);
        }
        self.metrics.reasons(&reasons);
        reasons
    }

    fn found_loop(&self, key: &ObjectKey, Loop { times, resource, object, is_new }: Loop) {
        self.metrics.self_triggered();
        if is_new {
            tracing::warn!(
                controller = self.context.name,
                %key,
                times,
                %resource,
                %object,
                "a key triggers itself: only its own writes cause its next reconcile",
            );
        }
        let finding = Finding::SelfTriggered { times, resource, object };
        self.find(key, finding);
    }

    /// A reconcile has ended, and wrote this.
    fn end(&self, key: &ObjectKey, writes: &[Write]) {
        self.detector.ended(key, writes);
        for write in writes.iter().filter(|write| write.is_unchanged) {
            let writes::Outcome::Version { key: object, .. } = &write.outcome else { continue };
            self.metrics.unchanged_write();
            if self.detector.unchanged(key) {
                tracing::warn!(
                    controller = self.context.name,
                    %key,
                    resource = write.resource,
                    %object,
                    "a write changed nothing; compare before writing",
                );
            }
            let (resource, object) = (Name::from(write.resource.as_str()), object.clone());
            self.find(key, Finding::UnchangedWrite { resource, object });
        }
    }

    fn find(&self, key: &ObjectKey, finding: Finding) {
        self.facts.tell(|| LoopEvent::Finding { controller: self.name.clone(), key: key.clone(), finding });
    }
}

fn result_of(result: &Result<Action, ReconcileError>) -> ReconcileResult {
    match result {
        Ok(action) => match action.delay() {
            Some(delay) => ReconcileResult::RequeueAfter { delay },
            None => ReconcileResult::Done,
        },
        Err(error) if error.is_terminal() => ReconcileResult::FailedForGood { error: error.to_string() },
        Err(error) => ReconcileResult::Failed { error: error.to_string() },
    }
}

/// Lets the queue hold a key for something in these caches.
fn hold<Q: Key>(caches: &[Arc<dyn Cache>], item: Item<Q>, until: Vec<Until>, limit: Duration) {
    let until = newest_of_each(until);
    let has_gone = until.iter().any(|until| matches!(until, Until::Gone { .. }));
    let awaited = if has_gone { until.clone() } else { Vec::new() };
    item.hold(until, limit);
    caches.iter().for_each(|cache| cache.settle(&awaited));
}

/// Of several versions of one source, the newest is enough to wait for, and the first change to look for.
fn newest_of_each(untils: Vec<Until>) -> Vec<Until> {
    let mut all: Vec<Until> = Vec::with_capacity(untils.len());
    for until in untils {
        let Until::Version { source, version, changed } = until else {
            if !all.contains(&until) {
                all.push(until);
            }
            continue;
        };
        let same = all.iter_mut().find_map(|other| match other {
            Until::Version { source: of, version, changed } if *of == source => Some((version, changed)),
            _ => None,
        });
        match same {
            Some((newest, first)) => {
                *newest = version.max(*newest);
                *first = first.iter().copied().chain(changed).min();
            }
            None => all.push(Until::Version { source, version, changed }),
        }
    }
    all
}

/// Finds out what became of writes whose answers were lost, and lets the key be held for that. The key is being
/// processed meanwhile, so nobody else gets it; but no worker waits. The caches are those that `until` is about.
async fn ask<Q: Key>(
    work: Arc<Work<Q>>,
    client: Client,
    caches: Arc<Vec<Arc<dyn Cache>>>,
    item: Item<Q>,
    mut until: Vec<Until>,
    unknown: Vec<(String, Unknown)>,
) {
    let started = Instant::now();
    match timeout(work.catch_up_limit, until_known(&caches, &client, &unknown)).await {
        Ok(known) => {
            until.extend(known);
            hold(&caches, item, until, work.catch_up_limit.saturating_sub(started.elapsed()));
        }
        Err(_) => {
            caught_up(&work.metrics, &work.context.name, &(work.called)(&item), started.elapsed(), true);
            item.done();
        }
    }
}

/// Measures how long a key was held.
pub(super) fn released<Q>(
    metrics: &ControllerMetrics,
    name: &str,
    called: fn(&Q) -> ObjectKey,
    released: &Released<Q>,
) {
    caught_up(metrics, name, &called(&released.key), released.waited, released.is_late);
}

fn caught_up(metrics: &ControllerMetrics, name: &str, key: &ObjectKey, waited: Duration, is_late: bool) {
    metrics.caught_up(waited, is_late);
    if is_late {
        tracing::warn!(
            controller = name,
            %key,
            ?waited,
            "a cache does not show what was written; reconciling without it",
        );
    }
}

/// Reconciles one key, and tells the queue what shall happen with it next.
async fn reconcile<Q: Key>(work: &Work<Q>, item: &Item<Q>, name: &ObjectKey, context: Context) {
    let key: Q = (**item).clone();
    let started = Instant::now();
    let running = work.metrics.started();
    let retried = work.queue.num_requeues(&key);
    let told = (&work.facts, &work.name, name.clone());
    let told = Reconciling::begin(told, context.id, &context.reasons, retried);
    let span = tracing::info_span!(
        "reconcile",
        controller = work.context.name,
        key = %name,
        reconcile = context.id,
        reasons = %context.reasons,
    );
    let result = call(work, key.clone(), context).instrument(span).await;
    told.end(|| result_of(&result));
    drop(running);
    let ending = match &result {
        Ok(action) if action.delay().is_some() => Ending::RequeueAfter,
        Ok(_) => Ending::Success,
        Err(failure) if failure.is_terminal() => Ending::TerminalError,
        Err(_) => Ending::Error,
    };
    work.metrics.finished(ending, started.elapsed());
    match result {
        Ok(action) => {
            work.queue.forget(&key);
            if let Some(delay) = action.pick_delay(&work.context.env) {
                work.queue.add_after(key, delay);
            }
        }
        Err(error) if error.is_terminal() => {
            tracing::error!(controller = work.context.name, key = %name, %error, "reconcile failed; the error is terminal, not requeued");
            work.queue.forget(&key);
        }
        Err(error) => {
            if error.is_conflict() {
                // Somebody else was faster: the next try sees what they wrote.
                tracing::debug!(controller = work.context.name, key = %name, %error, retried, "reconcile met a conflict; requeued with backoff");
            } else {
                tracing::warn!(controller = work.context.name, key = %name, %error, retried, "reconcile failed; requeued with backoff");
            }
            work.queue.at_priority(item.priority()).add_rate_limited(key);
        }
    }
}

/// Runs the user's code within its time, and catches its panics.
async fn call<Q: Key>(work: &Work<Q>, key: Q, context: Context) -> Result<Action, ReconcileError> {
    let running = async {
        let limit = work.time_limit.as_ref().and_then(|limit_of| limit_of(&key));
        let running = work.reconciler.call(key, context);
        let Some(limit) = limit else { return running.await };
        timeout(limit, running).await.unwrap_or_else(|_| {
            work.metrics.timed_out();
            Err(format!("it took longer than {limit:?}").into())
        })
    };
    AssertUnwindSafe(running).catch_unwind().await.unwrap_or_else(|panic| {
        work.metrics.panicked();
        Err(format!("it panicked: {}", panic_text(&*panic)).into())
    })
}
