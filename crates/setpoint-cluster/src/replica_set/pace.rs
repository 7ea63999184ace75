//! How often a set says that more of its pods are ready.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint::ObjectKey;
use setpoint_env::Later;
use tokio::time::Instant;

/// As long as pods are still to come, a set says so at most this often. It is short against what a pod takes to start.
const PAUSE: Duration = Duration::from_millis(50);

/// When each set last said something.
#[derive(Default)]
pub(super) struct Pace(Mutex<BTreeMap<ObjectKey, Instant>>);

impl Pace {
    /// How long a set has to wait; if it has not, this is when it says something.
    pub(super) fn wait(&self, key: &ObjectKey, now: Instant) -> Option<Duration> {
        let mut last = self.0.lock();
        let next = last.get(key).map(|last| last.later(PAUSE)).filter(|next| *next > now);
        match next {
            Some(next) => Some(next.saturating_duration_since(now)),
            None => {
                last.insert(key.clone(), now);
                None
            }
        }
    }

    /// Forgets a set that is gone.
    pub(super) fn forget(&self, key: &ObjectKey) {
        self.0.lock().remove(key);
    }
}
