//! Which changes matter.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// A change of an object, as far as its metadata tells.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// It came into being, or was there when the controller started.
    Added(&'a ObjectMeta),
    /// It changed, or was told again by a resync: then both are the same.
    Updated(&'a ObjectMeta, &'a ObjectMeta),
    /// It is gone; this is its last known state.
    Deleted(&'a ObjectMeta),
}

/// Says which changes of a kind make a controller reconcile. See [`Controller::filter`].
///
/// Each of these lets every add and delete pass, and is about updates.
///
/// [`Controller::filter`]: super::Controller::filter
#[derive(Clone)]
#[must_use]
pub struct Predicate(Option<Matters>);

/// `None` passes everything, without a look at it.
type Matters = Arc<dyn Fn(Change<'_>) -> bool + Send + Sync>;

impl Predicate {
    /// A function of your own.
    pub fn new(matters: impl Fn(Change<'_>) -> bool + Send + Sync + 'static) -> Predicate {
        Predicate(Some(Arc::new(matters)))
    }

    fn updates(matters: impl Fn(&ObjectMeta, &ObjectMeta) -> bool + Send + Sync + 'static) -> Predicate {
        Predicate::new(move |change| match change {
            Change::Updated(old, new) => matters(old, new),
            Change::Added(_) | Change::Deleted(_) => true,
        })
    }

    /// The spec changed (or whatever else the kind counts), the object began to be deleted, or a finalizer came or
    /// went: what has to be done about an object depends on these too. Resyncs and changes of status, labels and
    /// annotations do not pass.
    pub fn generation_changed() -> Predicate {
        Predicate::updates(|old, new| {
            old.generation != new.generation
                || old.deletion_timestamp != new.deletion_timestamp
                || old.finalizers != new.finalizers
        })
    }

    /// Anything changed at all: leaves out resyncs.
    pub fn version_changed() -> Predicate {
        Predicate::updates(|old, new| old.resource_version != new.resource_version)
    }

    /// The labels changed.
    pub fn labels_changed() -> Predicate {
        Predicate::updates(|old, new| old.labels != new.labels)
    }

    /// The annotations changed.
    pub fn annotations_changed() -> Predicate {
        Predicate::updates(|old, new| old.annotations != new.annotations)
    }

    /// Passes what one of the two passes.
    pub fn or(self, other: Predicate) -> Predicate {
        let (Some(one), Some(other)) = (self.0, other.0) else { return Predicate(None) };
        Predicate::new(move |change| one(change) || other(change))
    }

    /// Passes what both pass.
    pub fn and(self, other: Predicate) -> Predicate {
        match (self.0, other.0) {
            (Some(one), Some(other)) => Predicate::new(move |change| one(change) && other(change)),
            (one, other) => Predicate(one.or(other)),
        }
    }

    /// Whether a change matters. It is only described if somebody asks.
    pub(super) fn passes<'a>(&self, change: impl FnOnce() -> Change<'a>) -> bool {
        self.0.as_ref().is_none_or(|matters| matters(change()))
    }
}

impl Default for Predicate {
    /// Passes everything.
    fn default() -> Predicate {
        Predicate(None)
    }
}

impl fmt::Debug for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Predicate")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(version: &str, generation: i64, label: &str) -> ObjectMeta {
        ObjectMeta {
            resource_version: Some(version.into()),
            generation: Some(generation),
            labels: Some([("a".to_owned(), label.to_owned())].into()),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn each_predicate_passes_what_its_name_says() {
        let old = meta("1", 1, "x");
        let cases = [
            (meta("1", 1, "x"), [false, false, false]),
            (meta("2", 1, "x"), [false, true, false]),
            (meta("2", 2, "x"), [true, true, false]),
            (meta("2", 1, "y"), [false, true, true]),
        ];
        let predicates =
            [Predicate::generation_changed(), Predicate::version_changed(), Predicate::labels_changed()];
        for (new, expect) in &cases {
            let change = Change::Updated(&old, new);
            let passed: Vec<bool> = predicates.iter().map(|predicate| predicate.passes(|| change)).collect();
            assert_eq!(passed, expect, "{new:?}");
        }
        assert!(predicates.iter().all(|predicate| predicate.passes(|| Change::Deleted(&old))));
    }

    #[test]
    fn a_filter_by_generation_passes_what_finalizers_need() {
        let old = meta("1", 1, "x");
        let finalized = ObjectMeta { finalizers: Some(vec!["example.com/a".into()]), ..meta("2", 1, "x") };
        let deleted = ObjectMeta {
            deletion_timestamp: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
                k8s_openapi::jiff::Timestamp::UNIX_EPOCH,
            )),
            ..finalized.clone()
        };
        let passes = |old, new| Predicate::generation_changed().passes(|| Change::Updated(old, new));
        assert!(passes(&old, &finalized) && passes(&finalized, &old), "a finalizer came or went");
        assert!(passes(&finalized, &deleted), "it is to go");
        assert!(!passes(&old, &meta("2", 1, "y")), "a label is no news");
    }

    #[test]
    fn predicates_can_be_combined() {
        let (old, new) = (meta("1", 1, "x"), meta("2", 1, "y"));
        let change = Change::Updated(&old, &new);
        let either = Predicate::generation_changed().or(Predicate::labels_changed());
        let both = Predicate::generation_changed().and(Predicate::labels_changed());
        assert!(either.passes(|| change) && !both.passes(|| change));
    }
}
