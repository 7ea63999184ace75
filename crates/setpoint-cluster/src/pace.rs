//! How often an object that has many pods is looked at, while much happens to them.
//!
//! To look at it costs as much as it has pods. If each change of a pod caused a look, a pod would cost more the more there are.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint::ObjectKey;
use setpoint_env::Later;
use tokio::time::Instant;

/// When each object may be looked at again.
#[derive(Default)]
pub(crate) struct Pace(Mutex<BTreeMap<ObjectKey, Rest>>);

struct Rest {
    until: Instant,
    /// In which version the object was seen. Another one need not wait.
    version: Option<String>,
}

impl Pace {
    /// How long an object in this version still has to be left alone.
    pub(crate) fn wait(&self, key: &ObjectKey, now: Instant, version: Option<&str>) -> Option<Duration> {
        let rests = self.0.lock();
        let rest = rests.get(key).filter(|rest| rest.version.as_deref() == version && rest.until > now)?;
        Some(rest.until.saturating_duration_since(now))
    }

    /// An object was looked at in this version.
    pub(crate) fn rest(&self, key: &ObjectKey, now: Instant, pause: Duration, version: Option<&str>) {
        let rest = Rest { until: now.later(pause), version: version.map(str::to_owned) };
        self.0.lock().insert(key.clone(), rest);
    }

    /// Forgets an object that is gone.
    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.0.lock().remove(key);
    }
}

/// A time for each of so many pods, `longest` at most.
pub(crate) fn pause(pods: usize, per_pod: Duration, longest: Duration) -> Duration {
    per_pod.saturating_mul(u32::try_from(pods).unwrap_or(u32::MAX)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_was_looked_at_rests_unless_it_has_changed() {
        let (pace, key) = (Pace::default(), ObjectKey::namespaced("default", "web"));
        let (now, pause) = (Instant::now(), Duration::from_millis(50));
        assert_eq!(pace.wait(&key, now, Some("1")), None);
        pace.rest(&key, now, pause, Some("1"));
        let later = now + Duration::from_millis(20);
        assert_eq!(pace.wait(&key, later, Some("1")), Some(Duration::from_millis(30)));
        assert_eq!(pace.wait(&key, later, Some("2")), None);
        assert_eq!(pace.wait(&key, now + pause, Some("1")), None);
    }

    #[test]
    fn a_pause_grows_with_the_pods_up_to_a_bound() {
        let second = Duration::from_secs(1);
        assert_eq!(pause(20, Duration::from_millis(1), second), Duration::from_millis(20));
        assert_eq!(pause(usize::MAX, Duration::from_millis(1), second), second);
    }
}
