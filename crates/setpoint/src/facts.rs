//! Beside all stages: what the loop does, as one stream of typed facts.
//!
//! Every stage tells through one [`Facts`]: the list and watch of each reflector, what its cache applied, how far handlers
//! are behind, each key's way through its queue with the reasons for it, reconciles, their writes, leadership. Nothing is
//! built while nobody listens. Whoever wants to know (a test, a page, `setpoint demo`) subscribes; nobody records anything
//! of their own.
//!
//! ```
//! # let rt = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
//! # rt.block_on(async {
//! use setpoint::facts::{Facts, LoopEvent};
//! use setpoint::{Env, WorkQueue};
//!
//! let facts = Facts::new(Env::system());
//! let queue = WorkQueue::builder().facts("webs", &facts).build();
//! let mut stream = facts.subscribe();
//! queue.add("default/web");
//! let fact = stream.next().await.unwrap();
//! assert!(matches!(&fact.event, LoopEvent::Added { key, .. } if key.name() == "web"), "{fact:?}");
//! # });
//! ```

mod event;
mod name;
mod reconciling;
mod ring;
mod size;
mod state;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

pub use event::{
    Awaited, CacheChange, CacheChanges, CacheName, FieldChange, Finding, LeadershipState, LoopEvent,
    ReconcileResult, ReflectorState, WorkState, WriteResult,
};
use k8s_openapi::jiff::Timestamp;
pub use name::Name;
use parking_lot::Mutex;
pub(crate) use reconciling::Reconciling;
use serde::{Deserialize, Serialize};
use setpoint_env::Env;
use state::Probes;
pub(crate) use state::{CacheProbe, ControllerProbe, QueueProbe};
pub use state::{
    CacheState, Cached, ControllerState, HandlerState, KeyState, LoopState, QueueState, ScopeState,
};
use tokio::sync::Notify;

use self::ring::{Found, Ring};

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// Its number: one more than that of the fact before. They are counted while somebody listens.
    pub number: u64,
    /// When it happened, by the clock of the [`Env`].
    pub at: Timestamp,
    /// What happened.
    pub event: LoopEvent,
}

/// Where the parts of one process tell what they do. Clones are the same.
///
/// A [`Runtime`](crate::controller::Runtime) has one, which all of its caches and controllers use. It keeps the last facts
/// while somebody listens, up to a bound in number and in bytes: a listener that is slower is told how many it missed, and
/// holds up nobody.
#[derive(Clone)]
pub struct Facts {
    teller: Arc<Teller>,
}

/// The side of those who tell: when it goes, the streams end.
struct Teller {
    hub: Arc<Hub>,
}

struct Hub {
    env: Env,
    listeners: Arc<AtomicUsize>,
    is_closed: AtomicBool,
    ids: AtomicU64,
    ring: Mutex<Ring>,
    news: Notify,
    /// Who can be asked how it is.
    probes: Probes,
}

impl Hub {
    /// Lets those who look seldom know that the number of listeners has changed. Each looks at the number under its own
    /// lock, so whoever comes last leaves what is true. Not to be called under the lock of the ring, which they take.
    fn heed(&self) {
        self.probes.queues().iter().for_each(|queue| queue.heed());
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.hub.is_closed.store(true, Ordering::Release);
        self.hub.news.notify_waiters();
    }
}

impl Facts {
    /// The most facts that are kept for slow listeners.
    pub const MOST: usize = 16_384;
    /// The most bytes that these may take, about.
    pub const MOST_BYTES: usize = 8 << 20;

    /// Facts with the time of this clock.
    pub fn new(env: Env) -> Facts {
        Facts::with_bounds(env, Facts::MOST, Facts::MOST_BYTES)
    }

    /// The same with other bounds on what is kept for slow listeners. The last fact is always kept.
    pub fn with_bounds(env: Env, most: usize, most_bytes: usize) -> Facts {
        let hub = Hub {
            env,
            listeners: Arc::default(),
            is_closed: AtomicBool::new(false),
            ids: AtomicU64::new(0),
            ring: Mutex::new(Ring::new(most, most_bytes)),
            news: Notify::new(),
            probes: Probes::default(),
        };
        Facts { teller: Arc::new(Teller { hub: Arc::new(hub) }) }
    }

    /// Listens from now on.
    pub fn subscribe(&self) -> Subscription {
        let hub = self.teller.hub.clone();
        // Under the lock of the ring: whoever leaves at the same time must not clear it.
        let ring = hub.ring.lock();
        hub.listeners.fetch_add(1, Ordering::Relaxed);
        let next = ring.end();
        drop(ring);
        hub.heed();
        Subscription { hub, next, missed: 0 }
    }

    /// The time that facts have which are told now.
    pub fn now(&self) -> Timestamp {
        self.teller.hub.env.now()
    }

    /// Whether somebody listens. If not, there is nothing to tell.
    #[inline]
    pub fn is_heard(&self) -> bool {
        self.teller.hub.listeners.load(Ordering::Relaxed) > 0
    }

    /// How many listen, for those who look often.
    pub(crate) fn listeners(&self) -> Arc<AtomicUsize> {
        self.teller.hub.listeners.clone()
    }

    /// Tells something, if somebody listens.
    #[inline]
    pub(crate) fn tell(&self, event: impl FnOnce() -> LoopEvent) {
        if self.is_heard() {
            self.push(event());
            self.wake();
        }
    }

    /// Adds a fact without waking who listens, for those who hold a lock: they call [`Facts::wake`] later.
    #[cold]
    pub(crate) fn push(&self, event: LoopEvent) {
        let hub = &self.teller.hub;
        let mut ring = hub.ring.lock();
        // Under the lock: the order of the facts is that of their times.
        let at = hub.env.now();
        if hub.listeners.load(Ordering::Relaxed) > 0 {
            ring.push(at, event);
        }
    }

    /// Wakes who listens.
    #[cold]
    pub(crate) fn wake(&self) {
        self.teller.hub.news.notify_waiters();
    }

    /// A number for a reconcile, another one each time.
    pub(crate) fn next_id(&self) -> u64 {
        self.teller.hub.ids.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }
}

impl Default for Facts {
    /// Facts with the time of the system's clock.
    fn default() -> Facts {
        Facts::new(Env::system())
    }
}

impl fmt::Debug for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Facts").field("is_heard", &self.is_heard()).finish_non_exhaustive()
    }
}

/// Listens to [`Facts`], from [`Facts::subscribe`] until it is dropped.
#[must_use = "dropping a subscription ends it"]
pub struct Subscription {
    hub: Arc<Hub>,
    /// The number of the next fact.
    next: u64,
    missed: u64,
}

impl Subscription {
    /// Waits for the next fact. If facts were lost, since this is called too seldom, the next one is a
    /// [`LoopEvent::Missed`]. `None` when all who could tell something are gone, and everything was told.
    ///
    /// The future can be dropped at any time: nothing is lost.
    pub async fn next(&mut self) -> Option<Arc<Fact>> {
        let hub = self.hub.clone();
        loop {
            let mut news = std::pin::pin!(hub.news.notified());
            // From here on a wake-up counts.
            news.as_mut().enable();
            let is_closed = hub.is_closed.load(Ordering::Acquire);
            if let Some(fact) = self.try_next() {
                return Some(fact);
            }
            if is_closed {
                return None;
            }
            news.await;
        }
    }

    /// The next fact, if there is one already.
    pub fn try_next(&mut self) -> Option<Arc<Fact>> {
        match self.hub.ring.lock().get(self.next) {
            Found::Fact(fact) => {
                self.next = self.next.saturating_add(1);
                Some(fact)
            }
            Found::Missed { count, before } => {
                self.next = self.next.saturating_add(count);
                self.missed = self.missed.saturating_add(count);
                Some(before)
            }
            Found::Nothing => None,
        }
    }

    /// How many facts were lost so far.
    pub fn missed(&self) -> u64 {
        self.missed
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut ring = self.hub.ring.lock();
        if self.hub.listeners.fetch_sub(1, Ordering::Relaxed) == 1 {
            ring.clear();
        }
        drop(ring);
        self.hub.heed();
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription")
            .field("next", &self.next)
            .field("missed", &self.missed)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
