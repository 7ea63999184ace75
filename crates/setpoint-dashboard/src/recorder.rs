//! Listens to the facts for all pages at once.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::facts::{Name, Subscription};
use setpoint::{Fact, Facts};
use setpoint_env::{Env, Task, TaskHealth, watch};
use tokio::sync::Notify;

use crate::findings::Findings;
use crate::history::{History, Sample};
use crate::ping_pong;
use crate::subject::Filter;
use crate::tally::Tally;

/// How many facts are taken under one lock.
const AT_ONCE: usize = 256;

/// What was heard so far. Clones are the same.
#[derive(Clone)]
pub(crate) struct Recorder {
    recorded: Arc<Mutex<Recorded>>,
    /// The number after the last fact, for those who wait.
    end: watch::Sender<u64>,
    /// Whether there is an object with a field that somebody unknown changes back.
    suspicion: Arc<Notify>,
    /// Listens from the beginning, until the task takes over.
    subscription: Arc<Mutex<Option<Subscription>>>,
    /// Tells this process from the one before: numbers begin anew.
    boot: Arc<str>,
}

struct Recorded {
    history: History,
    tally: Tally,
    findings: Findings,
}

impl Recorder {
    pub(crate) fn new(facts: &Facts, env: &Env, slow: Duration) -> Recorder {
        let recorded = Recorded {
            history: History::new(History::MOST, History::MOST_BYTES),
            tally: Tally::default(),
            findings: Findings::new(slow),
        };
        Recorder {
            recorded: Arc::new(Mutex::new(recorded)),
            end: watch::Sender::new(0),
            suspicion: Arc::default(),
            subscription: Arc::new(Mutex::new(Some(facts.subscribe()))),
            boot: format!("{:08x}", env.random() & 0xffff_ffff).into(),
        }
    }

    /// Records as long as the task lives.
    pub(crate) fn start(&self, env: &Env, facts: &Facts) -> Task<()> {
        let (recorder, facts) = (self.clone(), facts.clone());
        env.supervise(&TaskHealth::new("the recorder of the dashboard"), move || {
            let subscription = recorder.subscription.lock().take().unwrap_or_else(|| facts.subscribe());
            recorder.clone().record(subscription)
        })
    }

    async fn record(self, mut facts: Subscription) {
        while let Some(fact) = facts.next().await {
            self.hear(fact, &mut facts);
            tokio::task::yield_now().await;
        }
    }

    /// Takes a fact, and those that are there already.
    fn hear(&self, first: Arc<Fact>, facts: &mut Subscription) {
        let mut recorded = self.recorded.lock();
        let mut next = Some(first);
        for _ in 0..AT_ONCE {
            let Some(fact) = next.take().or_else(|| facts.try_next()) else { break };
            recorded.tally.hear(&fact);
            recorded.findings.hear(&fact);
            recorded.history.push(fact);
        }
        let end = recorded.history.end();
        let is_unexplained = recorded.findings.played.has_unexplained();
        drop(recorded);
        if is_unexplained {
            self.suspicion.notify_one();
        }
        self.end.send_replace(end);
    }

    /// Waits until objects have fields that somebody unknown changes back. Each is given once for each time that this happens.
    pub(crate) async fn unexplained(&self, most: usize) -> Vec<ping_pong::Object> {
        loop {
            self.suspicion.notified().await;
            let found = self.recorded.lock().findings.played.take_unexplained(most);
            if !found.is_empty() {
                return found;
            }
        }
    }

    /// Takes who owns which fields of an object. Says whether that explains who changes them back.
    pub(crate) fn owned(&self, object: &ping_pong::Object, owners: &[(Name, Vec<String>)]) -> bool {
        let mut recorded = self.recorded.lock();
        recorded.findings.played.owned(object, owners);
        !recorded.findings.played.is_unexplained(object)
    }

    pub(crate) fn boot(&self) -> &str {
        &self.boot
    }

    /// Changes with every fact.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.end.subscribe()
    }

    /// The number of the first fact that is kept.
    pub(crate) fn beginning(&self) -> u64 {
        self.recorded.lock().history.start()
    }

    pub(crate) fn sample(&self, from: u64, filter: &Filter, most: usize) -> Sample {
        self.recorded.lock().history.sample(from, filter, most)
    }

    /// What was counted.
    pub(crate) fn numbers(&self, now: Timestamp) -> Value {
        let recorded = self.recorded.lock();
        let findings = recorded.findings.all(now, &recorded.tally);
        let open = findings.iter().filter(|finding| !finding.is_over).count();
        json!({
            "totals": recorded.tally.totals(now),
            "findings": open,
            "boot": &*self.boot,
            "end": recorded.history.end(),
        })
    }

    /// What was found, as JSON.
    pub(crate) fn findings(&self, now: Timestamp) -> Value {
        let recorded = self.recorded.lock();
        json!({"now": now.as_millisecond(), "findings": recorded.findings.all(now, &recorded.tally)})
    }
}
