//! Names loops that trigger themselves: reconciles that nothing but their own last writes has caused.

use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;

use super::writes::{Outcome, Write};
use crate::facts::Name;
use crate::{Cause, ObjectKey, Reason, Reasons, ResourceVersion};

/// Of how many keys it remembers the last writes.
const KEYS: NonZeroUsize = NonZeroUsize::new(1000).unwrap();
/// How many writes of a reconcile are remembered.
const WRITES: usize = 32;
/// After so many in a row it is a loop: a controller that gets somewhere stops before.
pub(super) const TIMES: u32 = 5;

/// What the last reconciles wrote. Bounded: of keys that were not written for long, nothing is known.
#[derive(Debug)]
pub(super) struct Detector(Mutex<LruCache<ObjectKey, Seen>>);

#[derive(Debug, Default)]
struct Seen {
    /// What the last reconcile wrote.
    writes: Vec<Written>,
    /// What the last one was triggered by, if only by own writes.
    triggers: Vec<(Name, ObjectKey)>,
    /// How many in a row were, by the same object.
    times: u32,
    has_told_loop: bool,
    has_told_unchanged: bool,
}

#[derive(Debug)]
struct Written {
    resource: String,
    object: ObjectKey,
    /// None if it is gone.
    version: Option<ResourceVersion>,
    manager: Option<Name>,
}

/// A loop.
#[derive(Debug, PartialEq)]
pub(super) struct Loop {
    pub(super) times: u32,
    /// What it writes again and again.
    pub(super) resource: Name,
    pub(super) object: ObjectKey,
    /// Whether it was not told before.
    pub(super) is_new: bool,
}

impl Default for Detector {
    fn default() -> Detector {
        Detector(Mutex::new(LruCache::new(KEYS)))
    }
}

impl Detector {
    /// A reconcile begins. Marks the reasons that are its own writes, and says whether it goes round in circles.
    pub(super) fn started(&self, key: &ObjectKey, reasons: &mut Reasons) -> Option<Loop> {
        let mut keys = self.0.lock();
        let seen = keys.get_mut(key)?;
        for reason in reasons.detailed_mut() {
            if let Some(written) = seen.writes.iter().find(|written| written.explains(reason)) {
                reason.is_own_write = true;
                reason.manager = reason.manager.take().or_else(|| written.manager.clone());
            }
        }
        if !reasons.are_own_writes() {
            (seen.times, seen.triggers) = (0, Vec::new());
            return None;
        }
        let about = |reason: &Reason| Some((reason.resource.clone()?, reason.object.clone()?));
        let triggers: Vec<_> = reasons.detailed().iter().filter_map(about).collect();
        // One that makes its children one by one gets somewhere: it is another object each time.
        let again = triggers.iter().find(|trigger| seen.triggers.contains(trigger)).cloned();
        seen.times = if again.is_some() { seen.times.saturating_add(1) } else { 1 };
        seen.triggers = triggers;
        let (resource, object) = again.filter(|_| seen.times >= TIMES)?;
        let is_new = !std::mem::replace(&mut seen.has_told_loop, true);
        Some(Loop { times: seen.times, resource, object, is_new })
    }

    /// A reconcile ended, and wrote this.
    pub(super) fn ended(&self, key: &ObjectKey, writes: &[Write]) {
        let mut keys = self.0.lock();
        if writes.is_empty() {
            if let Some(seen) = keys.get_mut(key) {
                seen.writes.clear();
            }
            return;
        }
        let seen = keys.get_or_insert_mut(key.clone(), Seen::default);
        // The last ones: of one object, the last version is what comes back.
        seen.writes = writes.iter().rev().filter_map(Written::of).take(WRITES).collect();
    }

    /// A reconcile sent a write that changed nothing. Says whether it is the first one of this key.
    pub(super) fn unchanged(&self, key: &ObjectKey) -> bool {
        let mut keys = self.0.lock();
        let seen = keys.get_or_insert_mut(key.clone(), Seen::default);
        !std::mem::replace(&mut seen.has_told_unchanged, true)
    }
}

impl Written {
    fn of(write: &Write) -> Option<Written> {
        let (object, version) = match &write.outcome {
            Outcome::Version { key, version } => (key.clone(), Some(version.clone())),
            Outcome::Gone { key, .. } => (key.clone(), None),
            Outcome::Unknown(_) => return None,
        };
        Some(Written { resource: write.resource.clone(), object, version, manager: write.manager.clone() })
    }

    /// Whether a change is this write coming back.
    fn explains(&self, reason: &Reason) -> bool {
        let is_same = reason.resource.as_deref() == Some(self.resource.as_str())
            && reason.object.as_ref() == Some(&self.object);
        is_same
            && match reason.cause {
                Cause::Added | Cause::Updated => self.version.is_some() && reason.version == self.version,
                Cause::Deleted => self.version.is_none(),
                _ => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrote(name: &str, version: &str) -> Write {
        let (key, version) = (ObjectKey::from(name), ResourceVersion::from(version));
        Write::new("pods", Outcome::Version { key, version })
    }

    fn updated(name: &str, version: &str) -> Reasons {
        let (resource, object) = (Some("pods".into()), Some(name.into()));
        Reason { resource, object, version: Some(version.into()), ..Reason::new(Cause::Updated) }.into()
    }

    /// Rounds of a controller: what each is caused by, and what it writes. Says in which rounds a loop is named.
    fn loops(rounds: impl IntoIterator<Item = (Reasons, Vec<Write>)>) -> Vec<(usize, bool)> {
        let (detector, key) = (Detector::default(), ObjectKey::from("a"));
        let mut found = Vec::new();
        for (n, (mut reasons, writes)) in rounds.into_iter().enumerate() {
            found.extend(detector.started(&key, &mut reasons).map(|it| (n, it.is_new)));
            detector.ended(&key, &writes);
        }
        found
    }

    #[test]
    fn a_key_whose_own_write_comes_back_again_and_again_is_named_once() {
        let rounds = (0..8).map(|n| (updated("p", &n.to_string()), vec![wrote("p", &(n + 1).to_string())]));
        assert_eq!(loops(rounds), [(5, true), (6, false), (7, false)]);
    }

    #[test]
    fn what_others_wrote_and_what_gets_somewhere_is_no_loop() {
        let others =
            (0..9).map(|n| (updated("p", &(2 * n).to_string()), vec![wrote("p", &(2 * n + 1).to_string())]));
        assert_eq!(loops(others), [], "somebody writes in between");
        let child = |n: i32| format!("p{n}");
        let children = (0..9).map(|n| (updated(&child(n), "1"), vec![wrote(&child(n + 1), "1")]));
        assert_eq!(loops(children), [], "another object each time");
        let retries = (0..9).map(|n| {
            let both = updated("p", &n.to_string()).iter().chain([Reason::new(Cause::Retry)]).collect();
            (both, vec![wrote("p", &(n + 1).to_string())])
        });
        assert_eq!(loops(retries), [], "it has another reason");
    }

    #[test]
    fn a_deletion_of_its_own_is_an_own_write() {
        let (detector, key) = (Detector::default(), ObjectKey::from("a"));
        let gone = Outcome::Gone { key: "p".into(), uid: "u".into() };
        detector.ended(&key, &[Write::new("pods", gone)]);
        let mut reasons: Reasons =
            Reason { cause: Cause::Deleted, ..updated("p", "9").iter().next().unwrap() }.into();
        assert_eq!(detector.started(&key, &mut reasons), None);
        assert!(reasons.are_own_writes(), "{reasons}");
    }

    #[test]
    fn it_forgets_keys_that_were_not_written_for_long() {
        let detector = Detector::default();
        for n in 0..2 * KEYS.get() {
            detector.ended(&n.to_string().as_str().into(), &[wrote("p", "1")]);
        }
        assert_eq!(detector.0.lock().len(), KEYS.get());
    }
}
