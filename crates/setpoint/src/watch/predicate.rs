//! Which changes matter.

use std::fmt;
use std::ops::Not;
use std::sync::Arc;

use crate::{Held, Object};

/// A change of an object. What is only asked for its metadata is not decoded ([`Held::meta`]).
#[derive(Debug)]
pub enum Change<'a, T> {
    /// It came into being, or was there when the controller started.
    Added(&'a Held<T>),
    /// It changed, from the first to the second; or was replayed by a resync: then both are the same.
    Updated(&'a Held<T>, &'a Held<T>),
    /// It is gone; this is its last known state.
    Deleted(&'a Held<T>),
}

impl<T> Clone for Change<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Change<'_, T> {}

/// Says which changes cause a reconcile. It belongs to its [`Watch`](super::Watch).
///
/// Most are about updates ([`Predicate::updates`]): they pass every add and every delete, and so does their opposite.
///
/// ```
/// use setpoint::k8s_openapi::api::apps::v1::Deployment;
/// use setpoint::{Held, Predicate, Watch};
///
/// let paused = |one: &Deployment| one.spec.paused;
/// let is_paused = Predicate::updates(move |old: &Held<Deployment>, new| paused(old) != paused(new));
/// let watch = Watch::<Deployment>::new().filter(is_paused.or(Predicate::labels_changed()));
/// let rest = Watch::<Deployment>::new().filter(!Predicate::generation_changed());
/// # let _ = (watch, rest);
/// ```
#[must_use]
pub struct Predicate<T>(Option<Test<T>>);

/// A function, and the one that passes what it does not. Without one, everything passes without a look at it.
struct Test<T> {
    passes: PassFn<T>,
    opposite: PassFn<T>,
}

/// Looks at an update: the old state, and the new one.
type UpdateFn<T> = dyn Fn(&Held<T>, &Held<T>) -> bool + Send + Sync;

type PassFn<T> = Arc<dyn for<'a> Fn(Change<'a, T>) -> bool + Send + Sync>;

impl<T> Clone for Test<T> {
    fn clone(&self) -> Test<T> {
        Test { passes: self.passes.clone(), opposite: self.opposite.clone() }
    }
}

impl<T> Clone for Predicate<T> {
    fn clone(&self) -> Predicate<T> {
        Predicate(self.0.clone())
    }
}

impl<T: 'static> Predicate<T> {
    /// A function of your own that sees every change.
    pub fn new(passes: impl for<'a> Fn(Change<'a, T>) -> bool + Send + Sync + 'static) -> Predicate<T> {
        let passes: PassFn<T> = Arc::new(passes);
        let other = passes.clone();
        Predicate(Some(Test { passes, opposite: Arc::new(move |change| !other(change)) }))
    }

    /// A function of your own that sees updates, as `|old, new|`. Adds and deletes pass.
    pub fn updates(passes: impl Fn(&Held<T>, &Held<T>) -> bool + Send + Sync + 'static) -> Predicate<T> {
        let passes = Arc::new(passes);
        let other = passes.clone();
        let of = |passes: Arc<UpdateFn<T>>| -> PassFn<T> {
            Arc::new(move |change| match change {
                Change::Updated(old, new) => passes(old, new),
                Change::Added(_) | Change::Deleted(_) => true,
            })
        };
        Predicate(Some(Test { passes: of(passes), opposite: of(Arc::new(move |old, new| !other(old, new))) }))
    }

    /// Passes what one of the two passes.
    pub fn or(self, other: Predicate<T>) -> Predicate<T> {
        let (Some(one), Some(other)) = (self.0, other.0) else { return Predicate(None) };
        Predicate(Some(Test {
            passes: either(one.passes, other.passes),
            opposite: both(one.opposite, other.opposite),
        }))
    }

    /// Passes what both pass.
    pub fn and(self, other: Predicate<T>) -> Predicate<T> {
        match (self.0, other.0) {
            (Some(one), Some(other)) => Predicate(Some(Test {
                passes: both(one.passes, other.passes),
                opposite: either(one.opposite, other.opposite),
            })),
            (one, other) => Predicate(one.or(other)),
        }
    }

    /// Whether a change matters. It is only described if somebody asks.
    #[inline]
    pub(crate) fn passes<'a>(&self, change: impl FnOnce() -> Change<'a, T>) -> bool {
        self.0.as_ref().is_none_or(|test| (test.passes)(change()))
    }
}

fn both<T: 'static>(one: PassFn<T>, other: PassFn<T>) -> PassFn<T> {
    Arc::new(move |change| one(change) && other(change))
}

fn either<T: 'static>(one: PassFn<T>, other: PassFn<T>) -> PassFn<T> {
    Arc::new(move |change| one(change) || other(change))
}

/// `!predicate` passes the updates that it does not; of one that sees every change ([`Predicate::new`]), all changes that
/// it does not.
impl<T: 'static> Not for Predicate<T> {
    type Output = Predicate<T>;

    fn not(self) -> Predicate<T> {
        match self.0 {
            Some(Test { passes, opposite }) => Predicate(Some(Test { passes: opposite, opposite: passes })),
            None => Predicate::new(|_| false),
        }
    }
}

impl<T: Object> Predicate<T> {
    /// The spec changed (or whatever else the kind counts), the object began to be deleted, or a finalizer came or
    /// went: what has to be done about an object depends on these too. Resyncs and changes of status, labels and
    /// annotations do not pass.
    #[doc(alias = "GenerationChangedPredicate")]
    pub fn generation_changed() -> Predicate<T> {
        Predicate::updates(|old: &Held<T>, new| {
            let (old, new) = (old.meta(), new.meta());
            old.generation != new.generation
                || old.deletion_timestamp != new.deletion_timestamp
                || old.finalizers != new.finalizers
        })
    }

    /// Anything changed at all: leaves out resyncs.
    #[doc(alias = "ResourceVersionChangedPredicate")]
    pub fn version_changed() -> Predicate<T> {
        Predicate::updates(|old: &Held<T>, new| old.version() != new.version())
    }

    /// The labels changed.
    #[doc(alias = "LabelChangedPredicate")]
    pub fn labels_changed() -> Predicate<T> {
        Predicate::updates(|old: &Held<T>, new| old.meta().labels != new.meta().labels)
    }

    /// The annotations changed.
    #[doc(alias = "AnnotationChangedPredicate")]
    pub fn annotations_changed() -> Predicate<T> {
        Predicate::updates(|old: &Held<T>, new| old.meta().annotations != new.meta().annotations)
    }
}

impl<T> Default for Predicate<T> {
    /// Passes everything.
    fn default() -> Predicate<T> {
        Predicate(None)
    }
}

impl<T> fmt::Debug for Predicate<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Predicate")
    }
}

#[cfg(test)]
mod tests;
