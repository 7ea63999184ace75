//! How soon a pod that failed is replaced: later and later on the same node.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint::ObjectKey;
use setpoint_env::Later;
use tokio::time::Instant;

/// The first wait, and the longest.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(15 * 60);

/// When a pod of a set was last replaced on a node, for the generation of the set that was observed.
#[derive(Default)]
pub(super) struct BackOff(Mutex<BTreeMap<ObjectKey, Of>>);

#[derive(Default)]
struct Of {
    generation: Option<i64>,
    nodes: BTreeMap<String, (Instant, Duration)>,
}

impl BackOff {
    /// How long a failed pod on a node has to wait; if it has not, this is when it is replaced.
    pub(super) fn wait(
        &self,
        key: &ObjectKey,
        generation: Option<i64>,
        node: &str,
        now: Instant,
    ) -> Option<Duration> {
        let mut sets = self.0.lock();
        let of = sets.entry(key.clone()).or_default();
        if of.generation != generation {
            *of = Of { generation, nodes: BTreeMap::new() };
        }
        let Some((last, wait)) = of.nodes.get_mut(node) else {
            of.nodes.insert(node.to_owned(), (now, FIRST));
            return None;
        };
        let since = now.saturating_duration_since(*last);
        if since < *wait {
            return Some(last.later(*wait).saturating_duration_since(now));
        }
        // One that lasted has a clean record.
        let is_over = since > LONGEST.saturating_mul(2);
        *wait = if is_over { FIRST } else { wait.saturating_mul(2).min(LONGEST) };
        *last = now;
        None
    }

    /// Forgets a set that is gone.
    pub(super) fn forget(&self, key: &ObjectKey) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_double_until_the_set_changes() {
        let (back_off, key) = (BackOff::default(), ObjectKey::namespaced("a", "b"));
        let start = Instant::now();
        let wait = |generation, seconds| {
            back_off.wait(&key, Some(generation), "n", start.later(Duration::from_secs(seconds)))
        };
        assert_eq!(wait(1, 0), None);
        assert_eq!(wait(1, 0), Some(FIRST));
        assert_eq!(wait(1, 1), None);
        assert_eq!(wait(1, 1), Some(FIRST * 2));
        assert_eq!(wait(2, 1), None);
    }
}
