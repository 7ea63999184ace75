//! A queue as it is now, for those who look.

use super::Inner;
use super::state::Standing;
use super::telling::Telling;
use crate::facts::{KeyState, QueueProbe, QueueState};

impl<K: Clone + Send + 'static> QueueProbe for Inner<K> {
    fn state(&self, most: usize) -> QueueState {
        let counts = self.shared.counts();
        let telling = self.telling.as_ref();
        let standing = if most > 0 { self.shared.standing(most) } else { Vec::new() };
        let keys = telling.map(|telling| standing.into_iter().map(|key| state_of(telling, key)).collect());
        QueueState {
            queue: telling.map_or_else(|| "unnamed".into(), |telling| telling.queue.clone()),
            ready: counts.ready,
            processing: counts.processing,
            waiting: counts.waiting,
            held: counts.held,
            dirty: counts.dirty,
            is_shutting_down: self.shared.is_shutting_down(),
            keys: keys.unwrap_or_default(),
        }
    }

    fn heed(&self) {
        self.shared.heed();
    }
}

fn state_of<K: 'static>(telling: &Telling<K>, standing: Standing<K>) -> KeyState {
    let Standing { key, phase, priority, reasons, due_in, held } = standing;
    let until = held.iter().flat_map(|held| &held.until).map(|until| telling.awaited(until)).collect();
    KeyState {
        key: (telling.key)(&key),
        phase,
        priority,
        reasons,
        due_in,
        held_for: held.as_ref().map(|held| held.since),
        held_at_most: held.as_ref().map(|held| held.at_most),
        until,
    }
}
