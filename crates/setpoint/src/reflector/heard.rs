//! When a reflector last heard of the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use setpoint_env::{Env, Later};
use tokio::time::Instant;

use crate::metrics::Gone;

/// Written when a reflector has taken all that has come, and waits: then it reads the clock anyway. That a server answers
/// is not enough: only what it says of the objects counts. Clones are the same.
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

    /// Something came just now, if it did. Says what a wait from now on ends at.
    pub(super) fn now(&self, has_come: bool, wait: Duration) -> Instant {
        let now = self.env.instant();
        if has_come {
            let since = now.saturating_duration_since(self.origin).as_nanos();
            self.at.store(u64::try_from(since).unwrap_or(u64::MAX).saturating_add(1), Ordering::Relaxed);
        }
        now.later(wait)
    }

    /// How long ago that was, in seconds, as long as the reflector is there; none before the first time.
    pub(super) fn age(&self) -> impl Fn() -> Result<Option<f64>, Gone> + Send + Sync + 'static {
        let (env, origin, at) = (self.env.clone(), self.origin, Arc::downgrade(&self.at));
        move || {
            let at = at.upgrade().ok_or(Gone)?.load(Ordering::Relaxed);
            let since = env.instant().saturating_duration_since(origin);
            let heard = at.checked_sub(1).map(Duration::from_nanos);
            Ok(heard.map(|heard| since.saturating_sub(heard).as_secs_f64()))
        }
    }
}
