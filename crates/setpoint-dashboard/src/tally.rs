//! Counts of what happened: in all, by cache, by controller.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use setpoint::facts::{
    CacheName, LeadershipState, LoopEvent, Name, ReconcileResult, ReflectorState, WorkState, WriteResult,
};
use setpoint::{Fact, ObjectKey, Reasons, ResourceVersion};

/// More caches or controllers than any process has: what comes beyond is not counted by name.
const MOST_NAMES: usize = 1000;
/// Of how many reconciles it remembers how long they took.
const DURATIONS: usize = 256;
/// How many versions of a cache are followed on their way from the watch into the cache.
const ON_THE_WAY: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Tally {
    heard: u64,
    missed: u64,
    caches: BTreeMap<CacheName, Cache>,
    controllers: BTreeMap<Name, Controller>,
    leases: BTreeMap<Name, (Name, LeadershipState)>,
}

/// What was heard of one list and watch.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    pub(crate) state: Option<(Timestamp, ReflectorState)>,
    received: u64,
    applied: u64,
    lists: u64,
    pub(crate) failures: u64,
    /// What the watch brought and the cache does not have yet.
    on_the_way: VecDeque<(Option<ResourceVersion>, Timestamp)>,
    /// How long the last batch was on its way.
    lag: Duration,
}

#[derive(Debug, Default)]
struct Controller {
    work: Option<WorkState>,
    added: u64,
    coalesced: u64,
    delayed: u64,
    reconciles: u64,
    failed: u64,
    writes: u64,
    unchanged: u64,
    refused: u64,
    late: u64,
    running: BTreeMap<u64, Running>,
    took: VecDeque<Duration>,
}

#[derive(Debug)]
struct Running {
    key: ObjectKey,
    since: Timestamp,
    reasons: Reasons,
    retries: u32,
}

impl Tally {
    pub(crate) fn hear(&mut self, fact: &Fact) {
        self.heard = self.heard.saturating_add(1);
        match &fact.event {
            LoopEvent::Missed { count } => {
                self.missed = self.missed.saturating_add(*count);
                // Ends may be among what was missed.
                self.controllers.values_mut().for_each(|controller| controller.running.clear());
            }
            LoopEvent::Reflector { cache, state: ReflectorState::Stopped } => {
                self.caches.remove(cache);
            }
            LoopEvent::Reflector { cache, state } => {
                if let Some(cache) = self.cache(cache) {
                    cache.turned(fact.at, state.clone());
                }
            }
            LoopEvent::Received { cache, version, changes, .. } => {
                if let Some(cache) = self.cache(cache) {
                    cache.received += changes.count as u64;
                    if cache.on_the_way.len() < ON_THE_WAY {
                        cache.on_the_way.push_back((version.clone(), fact.at));
                    }
                }
            }
            LoopEvent::Applied { cache, version, changes, is_list } => {
                // One that has stopped may still apply what it had.
                if let Some(cache) = self.caches.get_mut(cache) {
                    cache.applied += changes.count as u64;
                    cache.lists += u64::from(*is_list);
                    cache.arrived(version.as_ref(), fact.at);
                }
            }
            LoopEvent::Leadership { lease, identity, state } if self.leases.len() < MOST_NAMES => {
                self.leases.insert(lease.clone(), (identity.clone(), state.clone()));
            }
            event => self.hear_controller(fact.at, event),
        }
    }

    fn hear_controller(&mut self, at: Timestamp, event: &LoopEvent) {
        let name = match event {
            LoopEvent::Work { controller, .. } => controller,
            event => match crate::subject::of(event) {
                Some((name, _)) => name,
                None => return,
            },
        };
        let Some(controller) = entry(&mut self.controllers, name) else { return };
        match event {
            LoopEvent::Work { state, .. } => controller.work = Some(*state),
            LoopEvent::Added { is_coalesced, .. } => {
                controller.added += 1;
                controller.coalesced += u64::from(*is_coalesced);
            }
            LoopEvent::Delayed { .. } => controller.delayed += 1,
            LoopEvent::Released { is_late, .. } => controller.late += u64::from(*is_late),
            LoopEvent::ReconcileStarted { key, id, reasons, retries, .. }
                if controller.running.len() < MOST_NAMES =>
            {
                let (key, reasons) = (key.clone(), reasons.clone());
                controller.running.insert(*id, Running { key, since: at, reasons, retries: *retries });
            }
            LoopEvent::ReconcileEnded { id, result, took, .. } => {
                controller.running.remove(id);
                controller.reconciles += 1;
                let is_failure =
                    matches!(result, ReconcileResult::Failed { .. } | ReconcileResult::FailedForGood { .. });
                controller.failed += u64::from(is_failure);
                if controller.took.len() == DURATIONS {
                    controller.took.pop_front();
                }
                controller.took.push_back(*took);
            }
            LoopEvent::Write { result, .. } => controller.wrote(result),
            _ => {}
        }
    }

    fn cache(&mut self, name: &CacheName) -> Option<&mut Cache> {
        entry(&mut self.caches, name)
    }

    pub(crate) fn caches(&self) -> impl Iterator<Item = (&CacheName, &Cache)> {
        self.caches.iter()
    }

    /// All of it, as JSON.
    pub(crate) fn totals(&self, now: Timestamp) -> Value {
        let caches: Vec<Value> = self.caches.iter().map(|(name, cache)| cache.shown(name, now)).collect();
        let controllers: Vec<Value> =
            self.controllers.iter().map(|(name, controller)| controller.shown(name)).collect();
        let lease = |(lease, (identity, state)): (&Name, &(Name, LeadershipState))| json!({"lease": lease, "identity": identity, "state": state});
        let leases: Vec<Value> = self.leases.iter().map(lease).collect();
        json!({
            "facts": self.heard,
            "missed": self.missed,
            "caches": caches,
            "controllers": controllers,
            "leases": leases,
        })
    }
}

fn entry<'a, K: Ord + Clone, V: Default>(map: &'a mut BTreeMap<K, V>, key: &K) -> Option<&'a mut V> {
    if !map.contains_key(key) {
        if map.len() >= MOST_NAMES {
            return None;
        }
        map.insert(key.clone(), V::default());
    }
    map.get_mut(key)
}

impl Cache {
    fn turned(&mut self, at: Timestamp, state: ReflectorState) {
        self.failures +=
            u64::from(matches!(state, ReflectorState::Failed { .. } | ReflectorState::Panicked { .. }));
        self.state = Some((at, state));
    }

    /// The cache has got to a version: everything up to it has arrived.
    fn arrived(&mut self, version: Option<&ResourceVersion>, now: Timestamp) {
        while let Some((on_the_way, since)) = self.on_the_way.front() {
            let is_later = matches!((version, on_the_way), (Some(at), Some(way)) if at.is_before(way));
            if is_later {
                break;
            }
            self.lag = between(*since, now);
            self.on_the_way.pop_front();
        }
    }

    /// How long the oldest change has waited to be applied.
    pub(crate) fn waits(&self, now: Timestamp) -> Duration {
        self.on_the_way.front().map_or(Duration::ZERO, |(_, since)| between(*since, now))
    }

    fn shown(&self, name: &CacheName, now: Timestamp) -> Value {
        let since = self.state.as_ref().map(|(at, _)| at.as_millisecond());
        json!({
            "id": name.id,
            "resource": name.resource,
            "namespace": name.namespace,
            "state": self.state.as_ref().map(|(_, state)| state),
            "since": since,
            "received": self.received,
            "applied": self.applied,
            "lists": self.lists,
            "failures": self.failures,
            "lagMs": millis(self.lag.max(self.waits(now))),
        })
    }
}

impl Controller {
    fn wrote(&mut self, result: &WriteResult) {
        self.writes += 1;
        match result {
            WriteResult::Written { is_unchanged, .. } => self.unchanged += u64::from(*is_unchanged),
            WriteResult::Refused { .. } => self.refused += 1,
            _ => {}
        }
    }

    fn shown(&self, name: &Name) -> Value {
        let mut took: Vec<Duration> = self.took.iter().copied().collect();
        took.sort_unstable();
        let at = |part: usize| took.get((took.len() * part / 100).min(took.len().saturating_sub(1)));
        let running = |(id, running): (&u64, &Running)| {
            json!({
                "id": id,
                "key": running.key,
                "since": running.since.as_millisecond(),
                "reasons": running.reasons.to_string(),
                "retries": running.retries,
            })
        };
        json!({
            "controller": name,
            "work": self.work,
            "added": self.added,
            "coalesced": self.coalesced,
            "delayed": self.delayed,
            "reconciles": self.reconciles,
            "failed": self.failed,
            "writes": self.writes,
            "unchanged": self.unchanged,
            "refused": self.refused,
            "late": self.late,
            "p50Ms": at(50).map(|time| millis(*time)),
            "p99Ms": at(99).map(|time| millis(*time)),
            "running": self.running.iter().map(running).collect::<Vec<_>>(),
        })
    }
}

/// The time from one moment to another; zero if the clock was set back.
pub(crate) fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

/// Milliseconds, with what is below one.
pub(crate) fn millis(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use setpoint::facts::CacheChanges;
    use setpoint_env::Later;

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::UNIX_EPOCH.later(Duration::from_millis(ms))
    }

    fn fact(ms: u64, event: LoopEvent) -> Fact {
        Fact { number: ms, at: at(ms), event }
    }

    #[test]
    fn a_cache_lags_from_the_watch_until_it_has_the_change() {
        let mut tally = Tally::default();
        let cache = CacheName { resource: "pods".into(), namespace: None, id: 1 };
        let received = |version: &str| LoopEvent::Received {
            cache: cache.clone(),
            version: Some(version.into()),
            changes: CacheChanges { count: 2, first: Vec::new() },
            pending: 2,
        };
        tally.hear(&fact(100, received("5")));
        tally.hear(&fact(200, received("9")));
        let lag = |tally: &Tally, now: u64| tally.totals(at(now))["caches"][0]["lagMs"].as_f64();
        assert_eq!(lag(&tally, 400), Some(300.0));
        let applied = |version: &str| LoopEvent::Applied {
            cache: cache.clone(),
            version: Some(version.into()),
            is_list: false,
            changes: CacheChanges { count: 2, first: Vec::new() },
        };
        tally.hear(&fact(410, applied("5")));
        assert_eq!(lag(&tally, 420), Some(310.0), "of the batch that has just arrived");
        tally.hear(&fact(600, applied("9")));
        assert_eq!(lag(&tally, 10_000), Some(400.0));
        assert_eq!(tally.totals(at(0))["caches"][0]["received"], 4);
    }

    #[test]
    fn two_caches_of_a_resource_do_not_take_each_others_changes_for_their_own() {
        let mut tally = Tally::default();
        let cache = |id| CacheName { resource: "pods".into(), namespace: None, id };
        let changes = || CacheChanges { count: 1, first: Vec::new() };
        let version = || Some("5".into());
        for id in [1, 2] {
            let (cache, pending) = (cache(id), 1);
            tally.hear(&fact(
                100,
                LoopEvent::Received { cache, version: version(), changes: changes(), pending },
            ));
        }
        let is_list = false;
        let applied = LoopEvent::Applied { cache: cache(1), version: version(), is_list, changes: changes() };
        tally.hear(&fact(200, applied));
        let totals = tally.totals(at(900));
        let lags: Vec<_> = (0..2).map(|n| totals["caches"][n]["lagMs"].as_f64()).collect();
        assert_eq!(lags, [Some(100.0), Some(800.0)]);
    }

    #[test]
    fn a_cache_that_is_stopped_is_forgotten() {
        let mut tally = Tally::default();
        let cache = CacheName { resource: "pods".into(), namespace: None, id: 1 };
        let turned = |state| LoopEvent::Reflector { cache: cache.clone(), state };
        tally.hear(&fact(1, turned(ReflectorState::Watching { from: None })));
        assert_eq!(tally.caches().count(), 1);
        tally.hear(&fact(2, turned(ReflectorState::Stopped)));
        assert_eq!(tally.caches().count(), 0);
    }

    #[test]
    fn a_reconcile_runs_until_its_end_is_told() {
        let mut tally = Tally::default();
        let (controller, key): (Name, ObjectKey) = ("web".into(), "default/web".into());
        let (c, k) = (controller.clone(), key.clone());
        let reasons = Reasons::default();
        tally.hear(&fact(
            1,
            LoopEvent::ReconcileStarted { controller: c, key: k, id: 7, reasons, retries: 2 },
        ));
        let running = |tally: &Tally| tally.totals(at(2))["controllers"][0]["running"].clone();
        assert_eq!(running(&tally)[0]["key"], "default/web");
        let result = ReconcileResult::Failed { error: "no".into() };
        let took = Duration::from_millis(30);
        tally.hear(&fact(31, LoopEvent::ReconcileEnded { controller, key, id: 7, result, took }));
        assert_eq!(running(&tally), json!([]));
        let shown = tally.totals(at(40))["controllers"][0].clone();
        assert_eq!(
            (&shown["reconciles"], &shown["failed"], &shown["p99Ms"]),
            (&json!(1), &json!(1), &json!(30.0))
        );
    }
}
