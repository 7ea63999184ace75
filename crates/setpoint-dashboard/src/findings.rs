//! What is worth a look: loops, writers that undo each other, failures, lag, slow reconciles, hot keys, writes for nothing.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use lru::LruCache;
use serde::Serialize;
use setpoint::facts::{Finding as Found, LoopEvent, Name, ReconcileResult, ReflectorState};
use setpoint::{Fact, ObjectKey};

use crate::ping_pong::PingPong;
use crate::tally::{Cache, Tally, between};

/// Of how many keys it remembers what they do.
const KEYS: NonZeroUsize = NonZeroUsize::new(5000).unwrap();
/// How many findings are kept.
const FINDINGS: NonZeroUsize = NonZeroUsize::new(500).unwrap();
/// A key is hot that is reconciled this often within [`WINDOW`].
const HOT: usize = 20;
const WINDOW: Duration = Duration::from_secs(10);
/// A key fails again and again from this failure on.
const FAILURES: u32 = 3;
/// A cache lags whose oldest change has waited this long.
const LAG: Duration = Duration::from_secs(2);
/// What did not happen for so long is over.
const OVER: Duration = Duration::from_secs(30);
/// How many fields are named.
const FIELDS: usize = 8;

/// What kind of thing was found. The worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Kind {
    /// Nothing but its own writes causes the next reconcile.
    Loop,
    /// Two writers change the same field back and forth.
    PingPong,
    /// A key fails again and again.
    Failing,
    /// A key failed, and is not retried.
    Terminal,
    /// A list or watch fails, or its changes wait.
    Lag,
    /// The caches did not show a write in time.
    Late,
    /// A key is reconciled very often.
    Hot,
    /// A reconcile takes long.
    Slow,
    /// A write changed nothing.
    Unchanged,
}

/// Something that was found.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    pub(crate) kind: Kind,
    pub(crate) controller: Option<Name>,
    pub(crate) key: Option<ObjectKey>,
    /// What it is about, if that is not the key itself.
    pub(crate) resource: Option<Name>,
    /// Of lags: which cache, since a resource may have several.
    pub(crate) cache: Option<u64>,
    pub(crate) object: Option<ObjectKey>,
    /// The fields that are written.
    pub(crate) fields: Vec<String>,
    /// Who writes them: the field manager, if it is known.
    pub(crate) writer: Option<Name>,
    /// Who else writes them, if two undo each other.
    pub(crate) others: Vec<Name>,
    /// How often it was seen.
    pub(crate) times: u64,
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) error: Option<String>,
    /// Of slow ones, how long; of lags, for how long; of hot ones, over which time the rate was measured.
    pub(crate) millis: Option<f64>,
    /// Of hot ones, reconciles a second.
    pub(crate) rate: Option<f64>,
    /// Whether it has not happened for a while.
    pub(crate) is_over: bool,
}

/// What a key has done lately.
#[derive(Debug, Default)]
struct Lately {
    starts: VecDeque<Timestamp>,
    failures: u32,
    writer: Option<Name>,
    /// What it wrote last, by object.
    wrote: VecDeque<(Name, ObjectKey, Vec<String>)>,
}

type Subject = (Name, ObjectKey);

#[derive(Debug)]
pub(crate) struct Findings {
    slow: Duration,
    keys: LruCache<Subject, Lately>,
    pub(crate) played: PingPong,
    found: LruCache<(Kind, Name, ObjectKey), Finding>,
}

impl Findings {
    pub(crate) fn new(slow: Duration) -> Findings {
        let (keys, found) = (LruCache::new(KEYS), LruCache::new(FINDINGS));
        Findings { slow, keys, played: PingPong::default(), found }
    }

    pub(crate) fn hear(&mut self, fact: &Fact) {
        let Some((controller, key)) = crate::subject::of(&fact.event) else { return };
        let subject = (controller.clone(), key.clone());
        match &fact.event {
            LoopEvent::ReconcileStarted { reasons, .. } => {
                let lately = self.lately(&subject);
                let own = reasons.detailed().iter().find(|reason| reason.is_own_write);
                if let Some(manager) = own.and_then(|reason| reason.manager.clone()) {
                    lately.writer = Some(manager);
                }
                if let Some((time, rate)) = lately.start(fact.at) {
                    let hot = self.note(Kind::Hot, subject, fact.at);
                    (hot.rate, hot.millis) = (Some(rate), Some(crate::tally::millis(time)));
                }
            }
            LoopEvent::ReconcileEnded { result, took, .. } => {
                if *took >= self.slow {
                    let millis = crate::tally::millis(*took);
                    self.note(Kind::Slow, subject.clone(), fact.at).millis = Some(millis);
                }
                self.ended(subject, fact.at, result);
            }
            LoopEvent::Write { resource, object: Some(object), manager, changed, .. } => {
                let changed = changed.as_deref().unwrap_or_default();
                let fields = changed.iter().map(|field| field.path.clone()).take(FIELDS).collect();
                self.lately(&subject).wrote(resource.clone(), object.clone(), fields);
                let object = (resource.clone(), object.clone());
                if let Some(undone) = self.played.wrote(&subject, object.clone(), manager.as_ref(), changed) {
                    let finding = self.note(Kind::PingPong, subject, fact.at);
                    finding.times = undone.times.into();
                    (finding.fields, finding.writer) = (undone.fields, undone.manager);
                    (finding.resource, finding.object) = (Some(object.0), Some(object.1));
                }
            }
            LoopEvent::Released { is_late: true, waited, .. } => {
                self.note(Kind::Late, subject, fact.at).millis = Some(crate::tally::millis(*waited));
            }
            LoopEvent::Finding { finding, .. } => self.found(subject, fact.at, finding),
            _ => {}
        }
    }

    fn lately(&mut self, subject: &Subject) -> &mut Lately {
        self.keys.get_or_insert_mut_ref(subject, Lately::default)
    }

    fn ended(&mut self, subject: Subject, at: Timestamp, result: &ReconcileResult) {
        let failures = match result {
            ReconcileResult::Failed { .. } => self.lately(&subject).failures.saturating_add(1),
            _ => 0,
        };
        self.lately(&subject).failures = failures;
        // It fails in one of both ways at a time.
        for (kind, is_so) in [(Kind::Failing, failures > 0), (Kind::Terminal, is_terminal(result))] {
            let place = (kind, subject.0.clone(), subject.1.clone());
            if let Some(finding) = self.found.get_mut(&place).filter(|_| !is_so) {
                finding.is_over = true;
            }
        }
        match result {
            ReconcileResult::Failed { error } if failures >= FAILURES => {
                let finding = self.note(Kind::Failing, subject, at);
                (finding.times, finding.error) = (failures.into(), Some(error.clone()));
            }
            ReconcileResult::FailedForGood { error } => {
                self.note(Kind::Terminal, subject, at).error = Some(error.clone());
            }
            _ => {}
        }
    }

    fn found(&mut self, subject: Subject, at: Timestamp, found: &Found) {
        let (kind, resource, object, times) = match found {
            Found::SelfTriggered { times, resource, object } => (Kind::Loop, resource, object, Some(*times)),
            Found::UnchangedWrite { resource, object } => (Kind::Unchanged, resource, object, None),
            _ => return,
        };
        let lately = self.lately(&subject);
        let (writer, fields) = (lately.writer.clone(), lately.fields(resource, object));
        let finding = self.note(kind, subject, at);
        (finding.resource, finding.object) = (Some(resource.clone()), Some(object.clone()));
        finding.writer = writer.or(finding.writer.take());
        if !fields.is_empty() {
            finding.fields = fields;
        }
        if let Some(times) = times {
            finding.times = times.into();
        }
    }

    fn note(&mut self, kind: Kind, (controller, key): Subject, at: Timestamp) -> &mut Finding {
        let at = at.as_millisecond();
        let finding = self.found.get_or_insert_mut((kind, controller.clone(), key.clone()), || Finding {
            controller: Some(controller),
            key: Some(key),
            ..Finding::new(kind, at)
        });
        finding.times = finding.times.saturating_add(1);
        finding.last = at;
        finding.is_over = false;
        finding
    }

    /// All that was found, what goes on and the worst first.
    pub(crate) fn all(&self, now: Timestamp, tally: &Tally) -> Vec<Finding> {
        let explains = |kind: Kind, (_, controller, key): &(Kind, Name, ObjectKey), hot: &Finding| {
            let found = self.found.peek(&(kind, controller.clone(), key.clone()));
            found.is_some_and(|found| !found.at(now).is_over || hot.at(now).is_over)
        };
        // A key that triggers itself, or is undone, is hot for that reason: it is said once, also when both are over.
        let is_explained =
            |place, hot| explains(Kind::Loop, place, hot) || explains(Kind::PingPong, place, hot);
        let found =
            self.found.iter().filter(|(place, found)| place.0 != Kind::Hot || !is_explained(place, found));
        let mut all: Vec<Finding> =
            found.map(|(place, finding)| self.with_others(place, finding.at(now))).collect();
        all.extend(tally.caches().filter_map(|(name, cache)| {
            let object = name.namespace.as_ref().map(|namespace| ObjectKey::from(&**namespace));
            let (resource, cache_id) = (Some(name.resource.clone()), Some(name.id));
            Some(Finding { resource, cache: cache_id, object, ..lag(cache, now)? })
        }));
        all.sort_by_key(|finding| (finding.is_over, finding.kind, std::cmp::Reverse(finding.last)));
        all
    }
}

impl Findings {
    /// Names those who undo it.
    fn with_others(
        &self,
        (kind, controller, key): &(Kind, Name, ObjectKey),
        mut finding: Finding,
    ) -> Finding {
        if let (Kind::PingPong, Some(resource), Some(object)) = (kind, &finding.resource, &finding.object) {
            let (object, by) = ((resource.clone(), object.clone()), (controller.clone(), key.clone()));
            finding.others = self.played.others(&object, &by, &finding.fields);
        }
        finding
    }
}

fn is_terminal(result: &ReconcileResult) -> bool {
    matches!(result, ReconcileResult::FailedForGood { .. })
}

/// Whether a cache is behind, or cannot follow.
fn lag(cache: &Cache, now: Timestamp) -> Option<Finding> {
    let at = now.as_millisecond();
    let waits = cache.waits(now);
    let (error, since) = match &cache.state {
        Some((at, ReflectorState::Failed { error, .. } | ReflectorState::Panicked { error })) => {
            (Some(error.clone()), *at)
        }
        _ if waits >= LAG => (None, now),
        _ => return None,
    };
    let millis = crate::tally::millis(waits.max(between(since, now)));
    Some(Finding { error, millis: Some(millis), times: cache.failures.max(1), ..Finding::new(Kind::Lag, at) })
}

impl Finding {
    fn new(kind: Kind, at: i64) -> Finding {
        Finding {
            kind,
            controller: None,
            key: None,
            resource: None,
            cache: None,
            object: None,
            fields: Vec::new(),
            writer: None,
            others: Vec::new(),
            times: 0,
            first: at,
            last: at,
            error: None,
            millis: None,
            rate: None,
            is_over: false,
        }
    }

    fn at(&self, now: Timestamp) -> Finding {
        let since = now.as_millisecond().saturating_sub(self.last);
        let over = if self.kind == Kind::Hot { WINDOW } else { OVER };
        // A key that fails waits longer and longer between two tries; one that is not retried says no more.
        let is_quiet = u128::try_from(since).is_ok_and(|since| since > over.as_millis());
        let lasts = matches!(self.kind, Kind::Failing | Kind::Terminal);
        let is_over = self.is_over || (is_quiet && !lasts);
        Finding { is_over, ..self.clone() }
    }
}

impl Lately {
    /// Notes a start. If there are too many, says in which time the last ones came, and how many a second that is.
    fn start(&mut self, at: Timestamp) -> Option<(Duration, f64)> {
        if self.starts.len() == HOT {
            self.starts.pop_front();
        }
        self.starts.push_back(at);
        let first = self.starts.front().filter(|_| self.starts.len() == HOT)?;
        let time = between(*first, at).max(Duration::from_millis(1));
        let intervals = HOT.saturating_sub(1);
        (time <= WINDOW).then(|| (time, intervals as f64 / time.as_secs_f64()))
    }

    fn wrote(&mut self, resource: Name, object: ObjectKey, fields: Vec<String>) {
        self.wrote.retain(|(other, key, _)| (other, key) != (&resource, &object));
        if self.wrote.len() == FIELDS {
            self.wrote.pop_front();
        }
        self.wrote.push_back((resource, object, fields));
    }

    fn fields(&self, resource: &Name, object: &ObjectKey) -> Vec<String> {
        let found = self.wrote.iter().find(|(other, key, _)| (other, key) == (resource, object));
        found.map(|(_, _, fields)| fields.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use setpoint::facts::{CacheName, FieldChange, WriteResult};
    use setpoint::{Cause, Reason, Reasons};
    use setpoint_env::Later;

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::UNIX_EPOCH.later(Duration::from_millis(ms))
    }

    struct Heard(Findings, Tally);

    impl Heard {
        fn new() -> Heard {
            Heard(Findings::new(Duration::from_secs(1)), Tally::default())
        }

        fn hear(&mut self, ms: u64, event: LoopEvent) {
            let fact = Fact { number: ms, at: at(ms), event };
            self.0.hear(&fact);
            self.1.hear(&fact);
        }

        fn start(&mut self, ms: u64, reason: Reason) {
            let (controller, key) = ("stamp".into(), "default/web".into());
            let started =
                LoopEvent::ReconcileStarted { controller, key, id: ms, reasons: reason.into(), retries: 0 };
            self.hear(ms, started);
        }

        fn end(&mut self, ms: u64, result: ReconcileResult, took: u64) {
            let (controller, key) = ("stamp".into(), "default/web".into());
            let took = Duration::from_millis(took);
            self.hear(ms, LoopEvent::ReconcileEnded { controller, key, id: ms, result, took });
        }

        fn kinds(&self, ms: u64) -> Vec<(Kind, bool)> {
            self.0.all(at(ms), &self.1).iter().map(|found| (found.kind, found.is_over)).collect()
        }
    }

    /// A write to the ConfigMap that is reconciled.
    fn write(manager: Option<&str>, changed: FieldChange) -> LoopEvent {
        LoopEvent::Write {
            controller: "stamp".into(),
            key: "default/web".into(),
            id: 1,
            method: "PATCH".into(),
            resource: "configmaps".into(),
            subresource: None,
            object: Some("default/web".into()),
            manager: manager.map(Name::from),
            result: WriteResult::Written { version: "2".into(), is_unchanged: false },
            before: None,
            changed: Some(vec![changed]),
        }
    }

    #[test]
    fn a_loop_is_named_with_its_field_and_its_writer() {
        let mut heard = Heard::new();
        let own = Reason {
            resource: Some("configmaps".into()),
            object: Some("default/web".into()),
            manager: Some("stamp-manager".into()),
            is_own_write: true,
            ..Reason::new(Cause::Updated)
        };
        heard.start(1, own);
        let changed = FieldChange { path: "data.last".into(), before: None, after: Some("1".into()) };
        heard.hear(2, write(None, changed));
        let (resource, object) = ("configmaps".into(), "default/web".into());
        let finding = Found::SelfTriggered { times: 5, resource, object };
        heard.hear(3, LoopEvent::Finding { controller: "stamp".into(), key: "default/web".into(), finding });
        let all = heard.0.all(at(4), &heard.1);
        assert_eq!((all[0].kind, all[0].times, all[0].is_over), (Kind::Loop, 5, false));
        assert_eq!(all[0].fields, ["data.last"]);
        assert_eq!(all[0].writer, Some("stamp-manager".into()));
        assert_eq!(heard.kinds(60_000), [(Kind::Loop, true)]);
        (0..20).for_each(|n| heard.start(5 + n, Reason::new(Cause::Resync)));
        assert_eq!(heard.kinds(30), [(Kind::Loop, false)], "that it is hot is said by the loop");
    }

    #[test]
    fn a_key_that_fails_is_found_at_its_third_failure_and_is_over_when_it_works() {
        let mut heard = Heard::new();
        let failed = || ReconcileResult::Failed { error: "no such node".into() };
        heard.end(1, failed(), 1);
        heard.end(2, failed(), 1);
        assert_eq!(heard.kinds(3), []);
        heard.end(3, failed(), 1);
        assert_eq!(heard.kinds(4), [(Kind::Failing, false)]);
        assert_eq!(heard.0.all(at(4), &heard.1)[0].error.as_deref(), Some("no such node"));
        assert_eq!(heard.kinds(600_000), [(Kind::Failing, false)], "it waits for its next try");
        heard.end(5, ReconcileResult::Done, 1);
        assert_eq!(heard.kinds(6), [(Kind::Failing, true)]);
    }

    #[test]
    fn a_key_that_is_not_retried_is_found_at_once_and_is_no_key_that_fails_again_and_again() {
        let mut heard = Heard::new();
        let terminal = || ReconcileResult::FailedForGood { error: "no such class".into() };
        heard.end(1, terminal(), 1);
        assert_eq!(heard.kinds(2), [(Kind::Terminal, false)]);
        assert_eq!(heard.0.all(at(2), &heard.1)[0].error.as_deref(), Some("no such class"));
        assert_eq!(heard.kinds(600_000), [(Kind::Terminal, false)], "it waits for a change");
        (2..9).for_each(|ms| heard.end(ms, ReconcileResult::Failed { error: "away".into() }, 1));
        assert_eq!(heard.kinds(10), [(Kind::Failing, false), (Kind::Terminal, true)], "now it is retried");
        heard.end(11, terminal(), 1);
        assert_eq!(heard.kinds(12), [(Kind::Terminal, false), (Kind::Failing, true)]);
        heard.end(13, ReconcileResult::Done, 1);
        assert!(heard.kinds(14).iter().all(|(_, is_over)| *is_over));
    }

    #[test]
    fn a_field_that_another_writer_changes_back_is_named_with_both() {
        let mut heard = Heard::new();
        for n in 0..4 {
            assert_eq!(heard.kinds(10 * n), [], "after {n} times");
            let (before, after) = (Some("off".into()), Some("on".into()));
            let changed = FieldChange { path: "data.mode".into(), before, after };
            heard.hear(10 * n + 1, write(Some("keeper"), changed));
        }
        let object = ("configmaps".into(), "default/web".into());
        heard.0.played.owned(&object, &[("rival".into(), vec!["data.mode".to_owned()])]);
        let all = heard.0.all(at(50), &heard.1);
        assert_eq!(
            (all[0].kind, all[0].times, &*all[0].fields),
            (Kind::PingPong, 3, &["data.mode".into()][..])
        );
        assert_eq!((&all[0].writer, &*all[0].others), (&Some("keeper".into()), &["rival".into()][..]));
        assert_eq!(
            (&all[0].resource, &all[0].object),
            (&Some("configmaps".into()), &Some("default/web".into()))
        );
        (0..20).for_each(|n| heard.start(50 + n, Reason::new(Cause::Resync)));
        assert_eq!(heard.kinds(80), [(Kind::PingPong, false)], "that it is hot is said by it");
        assert_eq!(heard.kinds(60_000), [(Kind::PingPong, true)], "also when both are over");
        (0..20).for_each(|n| heard.start(60_000 + n, Reason::new(Cause::Resync)));
        assert_eq!(
            heard.kinds(60_030),
            [(Kind::Hot, false), (Kind::PingPong, true)],
            "that is another reason"
        );
    }

    #[test]
    fn a_hot_key_is_one_that_is_reconciled_twenty_times_in_ten_seconds() {
        let mut heard = Heard::new();
        (0..30).for_each(|n| heard.start(n * 1000, Reason::new(Cause::Resync)));
        assert_eq!(heard.kinds(30_000), []);
        (0..20).for_each(|n| heard.start(30_000 + n * 100, Reason::new(Cause::Resync)));
        assert_eq!(heard.kinds(32_000), [(Kind::Hot, false)]);
        let hot = heard.0.all(at(32_000), &heard.1).remove(0);
        assert_eq!((hot.rate, hot.millis), (Some(10.0), Some(1900.0)), "19 intervals of 100 ms");
        assert_eq!(heard.kinds(60_000), [(Kind::Hot, true)]);
    }

    #[test]
    fn slow_reconciles_and_caches_that_cannot_follow_are_found() {
        let mut heard = Heard::new();
        heard.end(2000, ReconcileResult::Done, 1500);
        let cache = CacheName { resource: "pods".into(), namespace: None, id: 1 };
        let (error, pause) = ("forbidden".to_owned(), Duration::from_secs(1));
        let state = ReflectorState::Failed { error, pause, lists_next: true };
        heard.hear(3000, LoopEvent::Reflector { cache: cache.clone(), state });
        assert_eq!(heard.kinds(3001), [(Kind::Lag, false), (Kind::Slow, false)]);
        let turned = |state| LoopEvent::Reflector { cache: cache.clone(), state };
        heard.hear(4000, turned(ReflectorState::Watching { from: None }));
        assert_eq!(heard.kinds(4001), [(Kind::Slow, false)]);
        let (error, pause) = ("not found".to_owned(), Duration::from_secs(1));
        heard.hear(5000, turned(ReflectorState::Failed { error, pause, lists_next: true }));
        assert_eq!(heard.kinds(5001), [(Kind::Lag, false), (Kind::Slow, false)]);
        heard.hear(6000, turned(ReflectorState::Stopped));
        assert_eq!(heard.kinds(6001), [(Kind::Slow, false)], "what is gone does not lag");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut heard = Heard::new();
        for n in 0..3 * KEYS.get() {
            let key = ObjectKey::from(n.to_string().as_str());
            let result = ReconcileResult::FailedForGood { error: "x".into() };
            let took = Duration::ZERO;
            heard.hear(1, LoopEvent::ReconcileEnded { controller: "a".into(), key, id: 1, result, took });
        }
        assert_eq!((heard.0.keys.len(), heard.0.found.len()), (KEYS.get(), FINDINGS.get()));
        let _ = Reasons::default();
    }
}
