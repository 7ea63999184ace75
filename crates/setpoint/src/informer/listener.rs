//! One handler at work: its backlog and the task that tells it.

use std::convert::Infallible;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use setpoint_env::Env;
use setpoint_env::watch;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::core::{Core, backlog};
use super::fold::{FoldBuffer, Notice, Popped};
use crate::facts::Facts;
use crate::metrics::{Counter, Gauge};
use crate::reflector::BackoffState;
use crate::{Backoff, Deleted, EventHandler, Object, ObjectKey};

/// After so many calls in a row the task lets others run.
const CALLS_A_TURN: u32 = 64;

/// What the informer and the task of a handler share.
pub(super) struct Listener<T> {
    pub(super) handler: Arc<dyn EventHandler<T>>,
    pub(super) buffer: Mutex<FoldBuffer<T>>,
    pub(super) news: Notify,
    pub(super) lag: Gauge,
    pub(super) panics: Counter,
}

impl<T: Object> Listener<T> {
    /// Calls the handler. A panic costs it this call.
    fn call(&self, key: &ObjectKey, call: impl FnOnce(&dyn EventHandler<T>)) {
        if catch_unwind(AssertUnwindSafe(|| call(&*self.handler))).is_err() {
            self.panics.inc();
            tracing::error!(%key, "a handler panicked; it still gets the next change");
        }
    }

    /// Objects came and went before the handler was told of them.
    pub(super) fn miss<'a>(&self, deleted: impl IntoIterator<Item = &'a Deleted<T>>) {
        for deleted in deleted {
            self.call(deleted.object.key(), |handler| handler.on_missed(deleted));
        }
    }
}

/// What the task of a handler needs.
pub(super) struct Teller<T> {
    pub(super) listener: Arc<Listener<T>>,
    pub(super) synced: watch::Sender<bool>,
    pub(super) resync: Option<Duration>,
    pub(super) core: Weak<Core<T>>,
    pub(super) env: Env,
    pub(super) facts: Facts,
    /// What the cache is of, and what the handler is called.
    pub(super) names: (String, String),
}

impl<T: Object> Teller<T> {
    /// Tells the handler everything, for ever. What panics beside a call of the handler, such as its `poll_ready`,
    /// costs a pause: the backlog stays.
    pub(super) async fn run(self) {
        let now = self.env.instant();
        let mut resync_at = self.resync.and_then(|period| next_resync(now, period, now));
        let mut backoff = BackoffState::new(Backoff::default(), self.env.clone());
        loop {
            let Err(_panic) = AssertUnwindSafe(self.tell(&mut resync_at)).catch_unwind().await;
            self.listener.panics.inc();
            tracing::error!("the task of a handler panicked; it restarts after a pause");
            sleep(backoff.next()).await;
        }
    }

    async fn tell(&self, resync_at: &mut Option<Instant>) -> Infallible {
        let mut calls = 0_u32;
        loop {
            poll_fn(|context| self.listener.handler.poll_ready(context)).await;
            if let (Some(due), Some(period)) = (*resync_at, self.resync)
                && self.env.instant() >= due
            {
                self.begin_resync();
                *resync_at = next_resync(due, period, self.env.instant());
            }
            let popped = self.listener.buffer.lock().pop();
            match popped {
                Popped::Notice(notice) => self.call(notice),
                Popped::Missed(deleted) => self.listener.miss([&deleted]),
                Popped::Synced => drop(self.synced.send_replace(true)),
                Popped::Nothing => {
                    self.listener.lag.set(0);
                    self.facts.tell(|| backlog(&self.names.0, &self.names.1, 0));
                    self.wait(*resync_at).await;
                }
            }
            calls = calls.wrapping_add(1);
            if calls.is_multiple_of(CALLS_A_TURN) {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn wait(&self, resync_at: Option<Instant>) {
        let Some(due) = resync_at else { return self.listener.news.notified().await };
        tokio::select! {
            biased;
            () = self.listener.news.notified() => {}
            () = sleep_until(due) => {}
        }
    }

    /// Takes a snapshot between two batches.
    fn begin_resync(&self) {
        if let Some(core) = self.core.upgrade() {
            core.between_batches(|snapshot| self.listener.buffer.lock().resync(snapshot));
        }
    }

    fn call(&self, notice: Notice<T>) {
        let object = match &notice {
            Notice::Add { object, .. } | Notice::Update { new: object, .. } => object,
            Notice::Delete(deleted) => &deleted.object,
        };
        self.listener.call(object.key(), |handler| match &notice {
            Notice::Add { object, is_initial } => handler.on_add(object, *is_initial),
            Notice::Update { old, new } => handler.on_update(old, new),
            Notice::Delete(deleted) => handler.on_delete(deleted),
        });
    }
}

/// When the resync after the one that was due then comes: at the next multiple of the period. Those that were
/// missed meanwhile are one. `None` for a period that is none, or has no end.
fn next_resync(due: Instant, period: Duration, now: Instant) -> Option<Instant> {
    let late = now.saturating_duration_since(due).as_nanos().checked_rem(period.as_nanos())?;
    let late = Duration::from_nanos(u64::try_from(late).ok()?);
    now.checked_add(period.saturating_sub(late))
}
