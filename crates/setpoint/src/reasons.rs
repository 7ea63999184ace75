//! Why a key wants to be processed: the merged set of reasons that the work queue carries with it.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::facts::Name;
use crate::{Held, Object, ObjectKey, ResourceVersion};

/// What happened that a key wants to be processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Cause {
    /// An object came into being.
    Added,
    /// An object changed.
    Updated,
    /// An object is gone; or does not concern the key any more.
    Deleted,
    /// An object was told again by a resync.
    Resync,
    /// It was there when the work began: at the start, or with a term of leadership.
    Start,
    /// The key failed before.
    Retry,
    /// Somebody asked for it, for after some time: [`Action::requeue_after`](crate::Action::requeue_after).
    Requeue,
    /// The caches show what the key has written, but learnt it from a list: what happened in between nobody saw.
    List,
    /// A stream named the key: [`Controller::triggered_by`](crate::Controller::triggered_by).
    Trigger,
    /// Whoever added the key gave no reason.
    Unnamed,
}

impl Cause {
    /// In the order of their bits.
    const ALL: [Cause; 10] = [
        Cause::Added,
        Cause::Updated,
        Cause::Deleted,
        Cause::Resync,
        Cause::Start,
        Cause::Retry,
        Cause::Requeue,
        Cause::List,
        Cause::Trigger,
        Cause::Unnamed,
    ];

    /// As in the metric label `cause`.
    pub fn as_str(self) -> &'static str {
        match self {
            Cause::Added => "added",
            Cause::Updated => "updated",
            Cause::Deleted => "deleted",
            Cause::Resync => "resync",
            Cause::Start => "start",
            Cause::Retry => "retry",
            Cause::Requeue => "requeue",
            Cause::List => "list",
            Cause::Trigger => "trigger",
            Cause::Unnamed => "unnamed",
        }
    }
}

/// One reason why a key wants to be processed.
///
/// In the explicit style, give it to [`WorkQueue::add_because`](crate::WorkQueue::add_because). A
/// [`Controller`](crate::Controller) does so by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reason {
    /// What happened.
    pub cause: Cause,
    /// To what: a resource like `deployments.apps`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<Name>,
    /// Which object of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectKey>,
    /// The object's version; the newest, if it changed several times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<ResourceVersion>,
    /// The field manager who changed it last, where that is known: if the cache keeps `managedFields`
    /// ([`InformerBuilder::keep_managed_fields`](crate::InformerBuilder::keep_managed_fields)), or if it was an own write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<Name>,
    /// Whether it is what the key's last reconcile wrote itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_own_write: bool,
}

impl Reason {
    /// A reason that is not about an object.
    pub fn new(cause: Cause) -> Reason {
        Reason { cause, resource: None, object: None, version: None, manager: None, is_own_write: false }
    }

    /// Something happened to an object of a resource: see [`SharedInformer::name`](crate::SharedInformer::name).
    pub fn object<T: Object>(cause: Cause, resource: &Name, object: &Held<T>) -> Reason {
        let (key, version) = (object.key().clone(), object.version().cloned());
        Reason { resource: Some(resource.clone()), object: Some(key), version, ..Reason::new(cause) }
    }

    /// Whether two are about the same change of the same object, maybe in another version.
    fn is_like(&self, other: &Reason) -> bool {
        self.cause == other.cause && self.object == other.object && self.resource == other.resource
    }
}

/// `deployments.apps default/web updated`, `retry`.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(resource) = &self.resource {
            write!(f, "{resource} ")?;
        }
        if let Some(object) = &self.object {
            write!(f, "{object} ")?;
        }
        f.write_str(self.cause.as_str())?;
        if let Some(manager) = &self.manager {
            write!(f, " by {manager}")?;
        }
        if self.is_own_write {
            f.write_str(" (own write)")?;
        }
        Ok(())
    }
}

/// Why a key is processed: all reasons since it was last taken, merged. The same change of the same object is one reason,
/// with the newest version. At most [`Reasons::MOST`] objects are named; how many more there were is counted.
///
/// They say why the key was *looked at*. What to do follows from how things are, never from the reasons: many changes may
/// be one, and after a restart there are none but [`Cause::Start`].
#[derive(Clone, Default, PartialEq)]
pub struct Reasons {
    /// Of reasons without an object, a bit a cause.
    causes: Causes,
    details: Option<Box<Details>>,
}

/// Causes, a bit each: what a queue keeps of reasons that are not about objects.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Causes(u16);

/// What a queue keeps of reasons that are about objects.
#[doc(hidden)]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    reasons: Vec<Reason>,
    more: u64,
}

impl Causes {
    /// None.
    pub const NONE: Causes = Causes(0);

    /// One.
    #[inline]
    pub const fn of(cause: Cause) -> Causes {
        Causes(1 << cause as u16)
    }

    /// Those of both.
    #[inline]
    #[must_use]
    pub const fn and(self, other: Causes) -> Causes {
        Causes(self.0 | other.0)
    }

    /// Those that are true at their own time only: all others have happened when they are added.
    pub const OF_A_TIME: Causes = Causes::of(Cause::Retry).and(Causes::of(Cause::Requeue));

    /// Those that are not among others.
    #[must_use]
    pub const fn without(self, others: Causes) -> Causes {
        Causes(self.0 & !others.0)
    }

    /// Whether one is among them.
    #[inline]
    #[must_use]
    pub const fn has(self, cause: Cause) -> bool {
        self.0 & Causes::of(cause).0 != 0
    }

    fn iter(self) -> impl Iterator<Item = Cause> {
        Cause::ALL.into_iter().filter(move |cause| self.has(*cause))
    }
}

impl Details {
    /// Adds a reason, if it is none that is there.
    pub fn add(&mut self, reason: Reason) {
        if let Some(known) = self.reasons.iter_mut().find(|known| known.is_like(&reason)) {
            *known = reason;
        } else if self.reasons.len() < Reasons::MOST {
            self.reasons.push(reason);
        } else {
            self.more = self.more.saturating_add(1);
        }
    }
}

impl Reasons {
    /// How many objects are named.
    pub const MOST: usize = 8;

    /// What the queue kept of them.
    #[doc(hidden)]
    #[inline]
    pub fn new(causes: Causes, details: Option<Box<Details>>) -> Reasons {
        Reasons { causes, details }
    }

    /// All of them: first those about objects, in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = Reason> {
        self.detailed().iter().cloned().chain(self.causes.iter().map(Reason::new))
    }

    /// Those about objects.
    pub fn detailed(&self) -> &[Reason] {
        self.details.as_deref().map_or(&[], |details| &details.reasons)
    }

    pub(crate) fn detailed_mut(&mut self) -> &mut [Reason] {
        self.details.as_deref_mut().map_or(&mut [], |details| &mut details.reasons)
    }

    /// How many objects are not named, since there were too many. One may be counted several times.
    pub fn more(&self) -> u64 {
        self.details.as_deref().map_or(0, |details| details.more)
    }

    /// Whether something of this kind is among them.
    pub fn contains(&self, cause: Cause) -> bool {
        self.causes.0 & Causes::of(cause).0 != 0 || self.detailed().iter().any(|reason| reason.cause == cause)
    }

    /// Whether the last reconcile of the key wrote all that it is processed for now, and it has no other reason.
    pub fn are_own_writes(&self) -> bool {
        let detailed = self.detailed();
        let is_all = self.causes == Causes::NONE && self.more() == 0;
        is_all && !detailed.is_empty() && detailed.iter().all(|reason| reason.is_own_write)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.causes == Causes::NONE && self.details.is_none()
    }
}

impl From<Reason> for Reasons {
    fn from(reason: Reason) -> Reasons {
        [reason].into_iter().collect()
    }
}

impl FromIterator<Reason> for Reasons {
    fn from_iter<I: IntoIterator<Item = Reason>>(reasons: I) -> Reasons {
        let mut all = Reasons::default();
        for reason in reasons {
            if reason.object.is_none() && reason.resource.is_none() {
                all.causes = all.causes.and(Causes::of(reason.cause));
            } else {
                all.details.get_or_insert_default().add(reason);
            }
        }
        all
    }
}

/// One after the other, with commas.
impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut is_first = true;
        for reason in self.iter() {
            let comma = if std::mem::take(&mut is_first) { "" } else { ", " };
            write!(f, "{comma}{reason}")?;
        }
        match self.more() {
            0 => Ok(()),
            more => write!(f, ", and {more} more"),
        }
    }
}

impl fmt::Debug for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{self}]")
    }
}

#[derive(Serialize, Deserialize)]
struct Serialized {
    all: Vec<Reason>,
    #[serde(default)]
    more: u64,
}

impl Serialize for Reasons {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Serialized { all: self.iter().collect(), more: self.more() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Reasons {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Reasons, D::Error> {
        let Serialized { all, more } = Serialized::deserialize(deserializer)?;
        let mut reasons: Reasons = all.into_iter().collect();
        if more > 0 {
            reasons.details.get_or_insert_default().more = more;
        }
        Ok(reasons)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn updated(name: &str, version: &str) -> Reason {
        Reason {
            resource: Some("pods".into()),
            object: Some(name.into()),
            version: Some(version.into()),
            ..Reason::new(Cause::Updated)
        }
    }

    #[test]
    fn the_same_change_of_an_object_is_one_reason_in_its_newest_version() {
        let reasons: Reasons = [
            updated("a", "1"),
            Reason::new(Cause::Retry),
            updated("a", "2"),
            Reason { cause: Cause::Deleted, ..updated("a", "3") },
            Reason::new(Cause::Retry),
        ]
        .into_iter()
        .collect();
        assert_eq!(reasons.to_string(), "pods a updated, pods a deleted, retry");
        assert_eq!(reasons.detailed()[0].version, Some("2".into()));
    }

    #[test]
    fn so_many_objects_are_named_and_the_rest_is_counted() {
        let reasons: Reasons = (0..20).map(|n| updated(&n.to_string(), "1")).collect();
        assert_eq!((reasons.detailed().len(), reasons.more()), (Reasons::MOST, 12));
        assert!(reasons.to_string().ends_with("pods 7 updated, and 12 more"), "{reasons}");
    }

    #[test]
    fn reasons_are_own_writes_only_if_all_of_them_are() {
        let own = Reason { is_own_write: true, ..updated("a", "1") };
        assert!(Reasons::from(own.clone()).are_own_writes());
        assert!(!Reasons::default().are_own_writes());
        assert!(![own.clone(), updated("b", "1")].into_iter().collect::<Reasons>().are_own_writes());
        assert!(![own, Reason::new(Cause::Requeue)].into_iter().collect::<Reasons>().are_own_writes());
    }

    #[test]
    fn reasons_are_read_as_they_are_written() {
        let many: Reasons =
            (0..10).map(|n| updated(&n.to_string(), "1")).chain([Reason::new(Cause::Start)]).collect();
        let text = serde_json::to_string(&many).unwrap();
        assert_eq!(serde_json::from_str::<Reasons>(&text).unwrap(), many, "{text}");
    }

    #[test]
    fn every_cause_has_a_bit_of_its_own() {
        for cause in Cause::ALL {
            assert_eq!(Causes::of(cause).iter().collect::<Vec<_>>(), [cause]);
        }
    }
}
