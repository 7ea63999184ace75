//! A controller that is ready to work: for as long as the program runs, or for each term of a leader.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use kube::Client;
use setpoint_env::watch;
use setpoint_env::{Env, Later, Task};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::caches::Cache;
use super::intake::Intake;
use super::sources::Sources;
use super::worker::{self, Work};
use super::{Key, live};
use crate::Cause;
use crate::facts::{LoopEvent, WorkState};
use crate::leader_election::Fence;
use crate::mutants::{Promise, is_kept};
use crate::workqueue::LOW_PRIORITY;

/// How long events may take that were recorded just before the end.
const FLUSH_LIMIT: Duration = Duration::from_secs(5);
/// How often a wait for old caches is logged, at most.
const SECOND: Duration = Duration::from_secs(1);

/// A controller whose caches have synced, whatever its keys are.
pub(crate) struct Prepared(Box<dyn Works>);

impl Prepared {
    pub(super) fn new<Q: Key>(ready: Ready<Q>) -> Prepared {
        Prepared(Box::new(ready))
    }

    /// Works until the shift ends; then finishes what is in work, and leaves what is queued. Says whether all of it
    /// was finished. Dropped earlier, it stops where it stands, and can be called again: for each term of a leader.
    pub(crate) async fn work(&self, shift: Shift) -> bool {
        self.0.work(shift).await
    }
}

trait Works: Send + Sync {
    fn work(&self, shift: Shift) -> BoxFuture<'_, bool>;
}

impl<Q: Key> Works for Ready<Q> {
    fn work(&self, shift: Shift) -> BoxFuture<'_, bool> {
        Box::pin(Ready::work(self, shift))
    }
}

/// The same with its keys.
pub(super) struct Ready<Q> {
    pub(super) work: Arc<Work<Q>>,
    pub(super) intake: Arc<Intake<Q>>,
    pub(super) sources: Arc<Sources<Q>>,
    pub(super) env: Env,
    pub(super) _triggers: Vec<Task<()>>,
    /// While it is there, whoever adds watches finds the sources.
    pub(super) _running: watch::Sender<Weak<Sources<Q>>>,
}

/// One time of work.
pub(crate) struct Shift {
    /// To write with.
    pub(crate) client: Client,
    /// Of the lease, if this replica leads by one.
    pub(crate) fence: Option<Fence>,
    /// When to end.
    pub(crate) ending: CancellationToken,
    /// Whether somebody else may have worked just before.
    pub(crate) is_term: bool,
    /// How long the reconciles that run then may take; for ever if there is none.
    pub(crate) grace: Option<Duration>,
}

impl<Q: Key> Ready<Q> {
    async fn work(&self, shift: Shift) -> bool {
        let Shift { client, fence, ending, is_term, grace } = shift;
        let _told = Told(&self.work);
        if is_term && !is_kept(Promise::Terms) {
            self.work.queue.release_all();
        } else if is_term && is_kept(Promise::TermStart) {
            self.work.tell_state(WorkState::CatchingUp);
            tokio::select! {
                biased;
                () = ending.cancelled() => return true,
                () = self.catch_up(&client) => {}
            }
        }
        let _open = self.intake.open(&self.work.context.name);
        self.work.tell_state(WorkState::Working);
        self.replay().await;
        let run = |_| {
            let (work, client, fence) = (self.work.clone(), client.clone(), fence.clone());
            self.env.spawn(worker::run(work, client, fence, ending.clone()))
        };
        let workers: Vec<Task<()>> = (0..self.work.workers).map(run).collect();
        ending.cancelled().await;
        if !is_kept(Promise::Shutdown) {
            self.work.queue.release_all();
            self.work.queue.shut_down();
        }
        let ends = grace.map(|grace| self.env.instant().later(grace));
        let is_finished = finish(workers, ends).await;
        self.work.queue.shut_down();
        let left = ends.map_or(FLUSH_LIMIT, |ends| ends.saturating_duration_since(self.env.instant()));
        let unwritten = self.work.context.recorder.flush(left.min(FLUSH_LIMIT)).await;
        if unwritten > 0 {
            tracing::warn!(unwritten, "some events were not written in time");
        }
        is_finished
    }

    /// Waits until every cache is at least as new as what the server has now.
    async fn catch_up(&self, client: &Client) {
        let has_begun = |cache: &dyn Cache| is_kept(Promise::CacheSync) || cache.sync_state().is_ok();
        let now = self.work.caches.now();
        let caches = now.iter().filter(|cache| has_begun(&***cache));
        let all = join_all(caches.map(|cache| live::catch_up(&**cache, client)));
        let mut all = std::pin::pin!(all);
        while tokio::time::timeout(self.work.catch_up_limit.max(SECOND), &mut all).await.is_err() {
            let controller = &self.work.context.name;
            tracing::warn!(controller, "a cache is older than what the last leader wrote; waiting for it");
        }
    }

    /// Queues what the caches have: whoever worked before may have left it, and a standby keeps nothing.
    async fn replay(&self) {
        if is_kept(Promise::Replay) {
            let queue = self.work.queue.at_priority(LOW_PRIORITY);
            self.sources.replay(|key| queue.add_for(key, Cause::Start)).await;
        }
    }
}

/// However the work ends, it is told.
struct Told<'a, Q: Key>(&'a Work<Q>);

impl<Q: Key> Drop for Told<'_, Q> {
    fn drop(&mut self) {
        self.0.tell_state(WorkState::Stopped);
    }
}

impl<Q: Key> Work<Q> {
    fn tell_state(&self, state: WorkState) {
        self.facts.tell(|| LoopEvent::Work { controller: self.name.clone(), state });
    }
}

/// Waits for workers until `ends`, then cuts them off. Says whether they all ended before.
async fn finish(mut workers: Vec<Task<()>>, ends: Option<Instant>) -> bool {
    let all = join_all(workers.iter_mut());
    let ended = match ends {
        Some(ends) => tokio::time::timeout_at(ends, all).await.ok(),
        None => Some(all.await),
    };
    let Some(ended) = ended else {
        for worker in workers {
            worker.stop().await;
        }
        return false;
    };
    for error in ended.into_iter().filter_map(Result::err) {
        tracing::error!(%error, "a worker ended early");
    }
    true
}
