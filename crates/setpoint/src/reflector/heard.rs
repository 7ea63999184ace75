//! When a reflector last heard of the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use setpoint_env::{Env, Later};
use tokio::time::Instant;

/// Written when a reflector has taken all that has come, and waits: then it reads the clock anyway. Clones are the same.
#[derive(Clone)]
pub(crate) struct Heard {
    env: Env,
    origin: Instant,
    /// Nanoseconds since the origin, and one; 0 if nothing was heard yet.
    at: Arc<AtomicU64>,
}

impl Heard {
    pub(super) fn new(env: Env) -> Heard {
        Heard { origin: env.instant(), env, at: Arc::default() }
    }

    /// Something came just now, or all of it was taken. Says what a wait from now on ends at.
    pub(super) fn now(&self, wait: Duration) -> Instant {
        let now = self.env.instant();
        let since = now.saturating_duration_since(self.origin).as_nanos();
        self.at.store(u64::try_from(since).unwrap_or(u64::MAX).saturating_add(1), Ordering::Relaxed);
        now.later(wait)
    }

    /// How long ago that was, in seconds, as long as the reflector is there; none before the first time.
    pub(super) fn age(&self) -> impl Fn() -> Option<f64> + Send + Sync + 'static {
        let (env, origin, at) = (self.env.clone(), self.origin, Arc::downgrade(&self.at));
        move || {
            let at = at.upgrade()?.load(Ordering::Relaxed).checked_sub(1)?;
            let since = env.instant().saturating_duration_since(origin);
            Some(since.saturating_sub(Duration::from_nanos(at)).as_secs_f64())
        }
    }
}
