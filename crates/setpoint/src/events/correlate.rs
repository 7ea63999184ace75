//! Which events are one event. No I/O.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use lru::LruCache;
use tokio::time::Instant;

use super::event::Event;
use super::spam::Allowance;

/// How many objects, series and groups are remembered; the least recently used is forgotten.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// From how many different notes on similar events are combined.
const SIMILAR: usize = 10;
/// Within how much time.
const WINDOW: Duration = Duration::from_secs(600);
const PREFIX: &str = "(combined from similar events): ";

/// Names one Event on the server, as far as the recorder is concerned.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SeriesKey(String);

/// One Event on the server: what happened, how often, and since when.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) regarding: ObjectReference,
    pub(super) event: Event,
    pub(super) count: i32,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
}

/// Folds, combines and filters events.
#[derive(Debug)]
pub(super) struct Correlator {
    groups: LruCache<String, Group>,
    series: LruCache<SeriesKey, Series>,
    allowances: LruCache<String, Allowance>,
    /// The last time that a name was made of: no two names are the same.
    last_name: i128,
}

/// Similar events: all the same but for the note.
#[derive(Debug)]
struct Group {
    notes: BTreeSet<String>,
    last: Instant,
}

impl Correlator {
    pub(super) fn new() -> Correlator {
        Correlator { groups: remembering(), series: remembering(), allowances: remembering(), last_name: 0 }
    }

    /// What becomes of an event: the Event that it belongs to as it is then, or nothing if the object has had
    /// too many.
    pub(super) fn observe(
        &mut self,
        regarding: ObjectReference,
        event: Event,
        now: Instant,
        wall: Timestamp,
    ) -> Option<(SeriesKey, Series)> {
        let object = object_key(&regarding);
        let (event, key) = self.combine(&object, event, now);
        let series = self.fold(&key, regarding, event, wall);
        let allowance = self.allowances.get_or_insert_mut(object, || Allowance::new(now));
        allowance.take(now).then_some((key, series))
    }

    /// The event itself, or a combined one in its place.
    fn combine(&mut self, object: &str, event: Event, now: Instant) -> (Event, SeriesKey) {
        let related = event.related.as_ref().map(object_key).unwrap_or_default();
        let action = event.action.as_deref().unwrap_or_default();
        let similar = format!("{object}\0{}\0{}\0{action}\0{related}", event.kind, event.reason);
        let new = || Group { notes: BTreeSet::new(), last: now };
        let group = self.groups.get_or_insert_mut(similar.clone(), new);
        if now.duration_since(group.last) > WINDOW {
            group.notes.clear();
        }
        group.last = now;
        if group.notes.len() < SIMILAR {
            group.notes.insert(event.note.clone());
        }
        if group.notes.len() < SIMILAR {
            let key = SeriesKey(format!("{similar}\0{}", event.note));
            return (event, key);
        }
        (event.prefixed(PREFIX), SeriesKey(similar))
    }

    fn fold(&mut self, key: &SeriesKey, regarding: ObjectReference, event: Event, wall: Timestamp) -> Series {
        if let Some(series) = self.series.get_mut(key) {
            series.count = series.count.saturating_add(1);
            series.last = wall;
            series.event = event;
            return series.clone();
        }
        let name = self.name(&regarding, wall);
        let series = Series { name, regarding, event, count: 1, first: wall, last: wall };
        self.series.put(key.clone(), series.clone());
        series
    }

    /// The object's name and the time in hexadecimal, as everybody names events.
    fn name(&mut self, regarding: &ObjectReference, wall: Timestamp) -> String {
        self.last_name = wall.as_nanosecond().max(self.last_name + 1);
        let object = regarding.name.as_deref().unwrap_or_default();
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        let is_good = !object.is_empty()
            && object.len() <= 230
            && object.chars().all(is_plain)
            && !object.starts_with(['-', '.'])
            && !object.ends_with(['-', '.']);
        // Some kinds, like roles, have names that an Event cannot have.
        format!("{}.{:x}", if is_good { object } else { "event" }, self.last_name)
    }
}

/// An empty cache of `REMEMBERED` entries that grows as it fills: `LruCache::new` takes all its memory at once.
fn remembering<K: Hash + Eq, V>() -> LruCache<K, V> {
    let mut cache = LruCache::unbounded();
    cache.resize(REMEMBERED);
    cache
}

/// Names an object.
fn object_key(object: &ObjectReference) -> String {
    let parts =
        [&object.api_version, &object.kind, &object.namespace, &object.name, &object.uid, &object.field_path];
    let parts: Vec<&str> = parts.into_iter().map(|part| part.as_deref().unwrap_or_default()).collect();
    parts.join("\0")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Test {
        correlator: Correlator,
        start: Instant,
    }

    impl Test {
        fn new() -> Test {
            Test { correlator: Correlator::new(), start: Instant::now() }
        }

        fn observe(&mut self, object: &str, event: Event, seconds: u64) -> Option<(String, String, i32)> {
            let regarding = ObjectReference { name: Some(object.to_owned()), ..Default::default() };
            let (now, wall) = (Duration::from_secs(seconds), Timestamp::from_second(seconds as i64).unwrap());
            let (_, series) = self.correlator.observe(regarding, event, self.start + now, wall)?;
            Some((series.name, series.event.note, series.count))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn identical_events_are_one_with_a_count() {
        let mut test = Test::new();
        let event = Event::normal("Synced", "done");
        let (name, note, count) = test.observe("web", event.clone(), 1).unwrap();
        assert_eq!((name.as_str(), note.as_str(), count), ("web.3b9aca00", "done", 1));
        assert_eq!(test.observe("web", event.clone(), 2).unwrap(), (name, note, 2));
        let other = [
            test.observe("db", event.clone(), 3),
            test.observe("web", Event::warning("Synced", "done"), 3),
            test.observe("web", Event::normal("Other", "done"), 3),
            test.observe("web", Event::normal("Synced", "done again"), 3),
            test.observe("web", event.action("Sync"), 3),
        ];
        let names: BTreeSet<_> = other.iter().flatten().map(|(name, ..)| name).collect();
        assert_eq!(names.len(), 5, "{other:?}");
        assert!(other.iter().flatten().all(|(.., count)| *count == 1));
    }

    #[tokio::test(start_paused = true)]
    async fn from_the_tenth_note_on_similar_events_are_combined() {
        let mut test = Test::new();
        let mut seen = Vec::new();
        for n in 0..12 {
            seen.push(test.observe("web", Event::warning("Failed", format!("try {n}")), n).unwrap());
        }
        assert_eq!(seen[8].1, "try 8");
        let combined = ["try 9", "try 10", "try 11"].map(|note| format!("{PREFIX}{note}"));
        assert_eq!(seen[9..].iter().map(|(_, note, _)| note.clone()).collect::<Vec<_>>(), combined);
        assert_eq!(seen[9..].iter().map(|(.., count)| *count).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(seen[10].0 == seen[9].0 && seen[11].0 == seen[9].0);
    }

    #[tokio::test(start_paused = true)]
    async fn similar_events_further_apart_than_ten_minutes_stay_apart() {
        let mut test = Test::new();
        for n in 0..30 {
            let (_, note, _) =
                test.observe("web", Event::warning("Failed", format!("try {n}")), n * 601).unwrap();
            assert_eq!(note, format!("try {n}"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_with_too_many_events_gets_no_more_and_others_do() {
        let mut test = Test::new();
        let told = (0..100).filter(|_| test.observe("web", Event::normal("A", "b"), 1).is_some()).count();
        assert_eq!(told, 25);
        assert!(test.observe("db", Event::normal("A", "b"), 1).is_some());
        let (.., count) = test.observe("web", Event::normal("A", "b"), 400).unwrap();
        assert_eq!(count, 101, "what was not told is counted");
    }

    #[tokio::test(start_paused = true)]
    async fn names_are_never_the_same_and_always_legal() {
        let mut test = Test::new();
        let names = ["web", "web", "system:node", "-x", ""];
        let names = names.map(|object| test.observe(object, Event::normal("A", "b"), 1).unwrap().0);
        let expected = ["web.3b9aca00", "web.3b9aca00", "event.3b9aca01", "event.3b9aca02", "event.3b9aca03"];
        assert_eq!(names, expected);
    }
}
