//! History by the value of a field, for those who watch one value: the thousands that each watch the pods of one node are
//! woken by theirs alone.
//!
//! There is a channel for each value that somebody watches. It holds the events of history that concern its value, and gives
//! them up when history does.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use setpoint_env::watch;

use super::{Event, Field, Revision};

/// The channels of one field.
#[derive(Debug)]
pub(super) struct Channels {
    field: Field,
    by_value: HashMap<Box<str>, Channel>,
    /// With so many channels, those that nobody watches any more are cleared away.
    sweep_at: usize,
}

/// So many channels are worth no look.
const FEW: usize = 64;

/// The events of one value.
#[derive(Debug)]
pub(super) struct Channel {
    events: VecDeque<Arc<Event>>,
    /// Whoever has seen the value up to here misses nothing.
    forgotten: Revision,
    changed: watch::Sender<Revision>,
}

impl Channels {
    pub(super) fn new(field: Field) -> Channels {
        Channels { field, by_value: HashMap::new(), sweep_at: FEW }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_value.is_empty()
    }

    pub(super) fn field(&self) -> Field {
        self.field
    }

    pub(super) fn get(&self, value: &str) -> Option<&Channel> {
        self.by_value.get(value)
    }

    /// Tells of what happens to a value after a revision. `since` are the events of the whole collection since then.
    pub(super) fn subscribe<'a>(
        &mut self,
        value: &str,
        after: Revision,
        since: impl Iterator<Item = &'a Arc<Event>>,
    ) -> watch::Receiver<Revision> {
        if self.by_value.len() >= self.sweep_at {
            self.by_value.retain(|_, channel| channel.changed.receiver_count() > 0);
            self.sweep_at = (2 * self.by_value.len()).max(FEW);
        }
        let field = self.field;
        let channel = self.by_value.entry(value.into()).or_insert_with(|| Channel {
            events: VecDeque::new(),
            forgotten: Revision::MAX,
            changed: watch::Sender::new(after),
        });
        if after < channel.forgotten {
            let concerns =
                |event: &&Arc<Event>| values(field, event).into_iter().flatten().any(|of| of == value);
            channel.events = since.filter(concerns).cloned().collect();
            channel.forgotten = after;
        }
        channel.changed.subscribe()
    }

    /// An event has happened.
    pub(super) fn push(&mut self, event: &Arc<Event>) {
        for value in values(self.field, event).into_iter().flatten() {
            let Some(channel) = self.by_value.get_mut(value) else { continue };
            if channel.changed.receiver_count() == 0 {
                self.by_value.remove(value);
                continue;
            }
            channel.events.push_back(Arc::clone(event));
            channel.changed.send_replace(event.revision());
        }
    }

    /// History gives up its oldest event. One whose field nobody has read is in no channel.
    pub(super) fn forget(&mut self, event: &Arc<Event>) {
        let records = [Some(&event.record), event.previous.as_ref()].into_iter().flatten();
        for value in records.filter_map(|record| self.field.known(record)) {
            let Some(channel) = self.by_value.get_mut(value) else { continue };
            if channel.events.front().is_some_and(|first| Arc::ptr_eq(first, event)) {
                channel.events.pop_front();
                channel.forgotten = event.revision();
            }
        }
    }

    /// All of history up to a revision is given up at once: whoever watches has to begin anew.
    #[cfg(feature = "etcd")]
    pub(super) fn forget_all(&mut self, up_to: Revision) {
        for channel in self.by_value.values_mut() {
            channel.events.clear();
            channel.forgotten = up_to;
            channel.changed.send_replace(up_to);
        }
    }
}

impl Channel {
    pub(super) fn forgotten(&self) -> Revision {
        self.forgotten
    }

    /// The events after a revision, oldest first.
    pub(super) fn after(&self, revision: Revision) -> impl ExactSizeIterator<Item = &Arc<Event>> {
        let start = self.events.partition_point(|event| event.revision() <= revision);
        self.events.range(start..)
    }
}

/// The values that an event concerns: what the field is now, and what it was if that was another.
fn values(field: Field, event: &Event) -> [Option<&str>; 2] {
    let now = field.value(&event.record);
    let before = event.previous.as_deref().map(|previous| field.value(previous));
    [Some(now), before.filter(|before| *before != now)]
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::super::{Action, Change, Expect, Key, Limits, Memory, ReadError, Storage, Watch};
    use super::*;

    const PODS: &str = "core/pods";

    fn now<T>(future: impl Future<Output = T>) -> T {
        future.now_or_never().expect("memory answers at once")
    }

    fn node() -> Field {
        let labels = setpoint_kinds::table().resource("", "v1", "pods").unwrap().behavior().field_labels;
        Field { labels, at: labels.iter().position(|label| label.label == "spec.nodeName").unwrap() }
    }

    fn write(store: &Memory, name: &str, expect: Expect, node: Option<&str>) -> Revision {
        let action = match node {
            Some(node) => {
                let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                    "spec": {"nodeName": node}});
                Action::Put { value: crate::object::encode(&pod), ttl: None }
            }
            None => Action::Delete,
        };
        let key = Key { collection: PODS.into(), path: format!("default/{name}").into() };
        now(store.commit(Change { key, expect, action })).unwrap().revision
    }

    fn watch(store: &Memory, after: Revision, value: &str) -> Result<Watch, ReadError> {
        store.watch_value(&PODS.into(), after, node(), value)
    }

    /// Everything that a watch has to tell, as far as it concerns a value.
    fn told(watch: &mut Watch, value: &str) -> Result<Vec<Revision>, ReadError> {
        let mut revisions = Vec::new();
        loop {
            let batch = watch.ready()?;
            let concerned = batch.events.iter().filter(|event| values(node(), event).contains(&Some(value)));
            revisions.extend(concerned.map(|event| event.revision()));
            if !batch.more {
                return Ok(revisions);
            }
        }
    }

    #[test]
    fn a_watch_of_a_value_is_not_woken_by_others_and_sees_how_far_the_store_is() {
        let store = Memory::new(Limits::default());
        let first = write(&store, "a", Expect::Absent, Some("n1"));
        let mut watch = watch(&store, first, "n1").unwrap();
        assert!(watch.ready().unwrap().events.is_empty());
        let other = write(&store, "b", Expect::Absent, Some("n2"));
        assert!(!watch.has_changed());
        assert_eq!(watch.ready().unwrap().complete_to, other);
        let moved = write(&store, "a", Expect::Revision(first), Some("n2"));
        assert!(watch.has_changed(), "what leaves a value concerns it");
        assert_eq!(told(&mut watch, "n1").unwrap(), [moved]);
        write(&store, "a", Expect::Revision(moved), None);
        assert!(!watch.has_changed(), "it was gone before");
    }

    #[test]
    fn a_quiet_watch_of_a_value_outlives_the_churn_of_others() {
        let store = Memory::new(Limits { events: 8, bytes: 1 << 20 });
        let first = write(&store, "a", Expect::Absent, Some("n1"));
        let mut quiet = watch(&store, first, "n1").unwrap();
        for number in 0..100 {
            write(&store, &format!("b{number}"), Expect::Absent, Some("n2"));
        }
        assert!(told(&mut quiet, "n1").unwrap().is_empty());
        let late = watch(&store, first, "n1").err();
        assert!(matches!(late, Some(ReadError::Compacted { .. })), "nobody knows what a new one has missed");
    }

    #[test]
    fn channels_that_nobody_watches_are_cleared_away() {
        let mut channels = Channels::new(node());
        let held: Vec<_> =
            (0..40).map(|number| channels.subscribe(&number.to_string(), 1, [].iter())).collect();
        for number in 100..10_000 {
            drop(channels.subscribe(&number.to_string(), 1, [].iter()));
        }
        assert!(channels.by_value.len() <= 2 * FEW, "{}", channels.by_value.len());
        assert!((0..held.len()).all(|number| channels.get(&number.to_string()).is_some()));
    }

    #[test]
    fn watches_of_values_tell_what_a_watch_of_all_tells_of_them() {
        let mut random = 7u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for _ in 0..60 {
            let store = Memory::new(Limits { events: 12, bytes: 1 << 20 });
            let mut pods: HashMap<String, Revision> = HashMap::new();
            let mut watches: Vec<(String, Watch, Watch)> = Vec::new();
            for _ in 0..150 {
                let (name, value) = (format!("p{}", next(6)), format!("n{}", next(3)));
                match next(8) {
                    0 => {
                        let after = store.revision().saturating_sub(next(20)).max(1);
                        let all = store.watch(&PODS.into(), after);
                        let one = watch(&store, after, &value);
                        assert_eq!(all.is_ok(), one.is_ok());
                        watches.extend(all.ok().zip(one.ok()).map(|(all, one)| (value, all, one)));
                    }
                    1 if !watches.is_empty() => {
                        let (value, mut all, mut one) =
                            watches.swap_remove(next(watches.len() as u64) as usize);
                        let seen = told(&mut one, &value);
                        // One of all may have missed what does not concern the value.
                        if let Ok(expected) = told(&mut all, &value) {
                            assert_eq!(seen.unwrap(), expected);
                            assert_eq!(all.position(), one.position());
                            watches.push((value, all, one));
                        }
                    }
                    2 if pods.contains_key(&name) => {
                        let expect = Expect::Revision(pods.remove(&name).unwrap());
                        write(&store, &name, expect, None);
                    }
                    _ => {
                        let expect = pods.get(&name).map_or(Expect::Absent, |at| Expect::Revision(*at));
                        pods.insert(name.clone(), write(&store, &name, expect, Some(&value)));
                    }
                }
            }
        }
    }
}
