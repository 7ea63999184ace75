//! Stops a client that never waits: paused time does not advance while something runs, so its run would not end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// How many requests each client has sent at the present instant.
#[derive(Debug, Default)]
pub(crate) struct Paces {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// More requests of one client at one instant are a livelock; without it, nobody is stopped.
    limit: Option<u32>,
    clients: BTreeMap<Arc<str>, Pace>,
}

#[derive(Debug, Default)]
struct Pace {
    at: Duration,
    requests: u32,
    is_stopped: bool,
}

impl Paces {
    pub(crate) fn set_limit(&self, limit: u32) {
        self.state.lock().limit = Some(limit);
    }

    /// Counts a request. One beyond the limit, and any after it, may not be sent.
    pub(crate) fn may_send(&self, client: &Arc<str>, now: Duration) -> bool {
        let mut state = self.state.lock();
        let Some(limit) = state.limit else { return true };
        let pace = state.clients.entry(Arc::clone(client)).or_default();
        if pace.is_stopped {
            return false;
        }
        if pace.at != now {
            (pace.at, pace.requests) = (now, 0);
        }
        pace.requests = pace.requests.saturating_add(1);
        pace.is_stopped = pace.requests > limit;
        !pace.is_stopped
    }

    pub(crate) fn is_stopped(&self, client: &str) -> bool {
        self.state.lock().clients.get(client).is_some_and(|pace| pace.is_stopped)
    }

    /// The clients that were stopped, and when.
    pub(crate) fn stopped(&self) -> Vec<(Arc<str>, Duration)> {
        let state = self.state.lock();
        let those = state.clients.iter().filter(|(_, pace)| pace.is_stopped);
        those.map(|(client, pace)| (Arc::clone(client), pace.at)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_at_one_instant_are_too_many() {
        let (paces, client) = (Paces::default(), Arc::from("a"));
        let send = |at| paces.may_send(&client, Duration::from_secs(at));
        assert!((0..100).all(|_| send(0)), "nobody is stopped without a limit");
        paces.set_limit(3);
        assert!((1..=9).all(|n| send(n / 3)));
        assert_eq!((send(3), paces.stopped()), (true, Vec::new()));
        assert_eq!((send(3), send(3), send(4)), (true, false, false));
        assert_eq!(paces.stopped(), [(client.clone(), Duration::from_secs(3))]);
        assert!(paces.is_stopped("a") && !paces.is_stopped("b"));
    }
}
