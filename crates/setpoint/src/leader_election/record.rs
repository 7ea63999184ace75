//! What a lease says, and what follows from it. No I/O.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;

use super::LeaseConfig;

/// A lease as it was last seen.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    lease: Lease,
    /// When its record was last seen to change, on the local clock. A change of anything else, like a label,
    /// is no sign of life.
    changed: Duration,
}

/// What to do with the lease.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Write this.
    Write(Box<Lease>),
    /// Somebody else holds it.
    Wait,
}

impl Observed {
    /// Notes what was seen at `now`.
    pub(super) fn update(before: Option<Observed>, lease: Lease, now: Duration) -> Observed {
        let changed = match before {
            Some(before) if before.lease.spec == lease.spec => before.changed,
            _ => now,
        };
        Observed { lease, changed }
    }

    fn spec(&self) -> Option<&LeaseSpec> {
        self.lease.spec.as_ref()
    }

    /// The holder; none if the lease is free.
    pub(super) fn holder(&self) -> Option<&str> {
        self.spec()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
    }

    pub(super) fn transitions(&self) -> i32 {
        self.spec().and_then(|spec| spec.lease_transitions).unwrap_or_default()
    }

    /// How long the holder may be silent: what it says itself, or else what we would say.
    fn duration(&self, config: &LeaseConfig) -> Duration {
        let seconds = self.spec().and_then(|spec| spec.lease_duration_seconds);
        seconds.and_then(|seconds| u64::try_from(seconds).ok()).map_or(config.lease, Duration::from_secs)
    }

    /// What a candidate or leader does next, by the local clock's `now`.
    pub(super) fn step(&self, config: &LeaseConfig, now: Duration, wall: Timestamp) -> Step {
        let is_mine = self.holder() == Some(&config.identity);
        let is_held = self.holder().is_some() && now < self.changed.saturating_add(self.duration(config));
        if !is_mine && is_held {
            return Step::Wait;
        }
        let mut lease = self.lease.clone();
        let spec = lease.spec.get_or_insert_default();
        if !is_mine {
            spec.acquire_time = Some(MicroTime(wall));
            spec.lease_transitions = Some(self.transitions().saturating_add(1));
        }
        hold(spec, config, wall);
        Step::Write(Box::new(lease))
    }

    /// The lease without a holder; none if it is not ours.
    pub(super) fn released(&self, config: &LeaseConfig, wall: Timestamp) -> Option<Lease> {
        if self.holder() != Some(&config.identity) {
            return None;
        }
        let mut lease = self.lease.clone();
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(wall));
        spec.acquire_time = Some(MicroTime(wall));
        Some(lease)
    }
}

/// The first lease.
pub(super) fn created(config: &LeaseConfig, wall: Timestamp) -> Lease {
    let mut lease = Lease::default();
    lease.metadata.name = Some(config.name.clone());
    lease.metadata.namespace = Some(config.namespace.clone());
    let spec = lease.spec.get_or_insert_default();
    spec.acquire_time = Some(MicroTime(wall));
    spec.lease_transitions = Some(0);
    hold(spec, config, wall);
    lease
}

fn hold(spec: &mut LeaseSpec, config: &LeaseConfig, wall: Timestamp) {
    spec.holder_identity = Some(config.identity.clone());
    // In whole seconds, rounded up: the others shall not wait for less than we think.
    let seconds = config.lease.as_secs() + u64::from(config.lease.subsec_nanos() > 0);
    spec.lease_duration_seconds = Some(i32::try_from(seconds).unwrap_or(i32::MAX));
    spec.renew_time = Some(MicroTime(wall));
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn config(identity: &str) -> LeaseConfig {
        LeaseConfig { identity: identity.to_owned(), ..LeaseConfig::new("default", "foo") }
    }

    fn wall(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn held(by: &str, since: Duration) -> Observed {
        Observed::update(None, created(&config(by), wall(0)), since)
    }

    fn written(step: Step) -> LeaseSpec {
        let Step::Write(lease) = step else { panic!("{step:?}") };
        lease.spec.unwrap()
    }

    #[test]
    fn a_silent_holder_is_replaced_after_its_lease_by_the_clock_of_the_one_who_waits() {
        let seen = held("a", 100 * SECOND);
        assert_eq!(seen.step(&config("b"), 114 * SECOND, wall(0)), Step::Wait);
        // The wall clock may say what it likes.
        assert_eq!(seen.step(&config("b"), 114 * SECOND, wall(1_000_000)), Step::Wait);
        let spec = written(seen.step(&config("b"), 115 * SECOND, wall(-50)));
        assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("b"), Some(1)));
        assert_eq!(spec.acquire_time, Some(MicroTime(wall(-50))));
    }

    #[test]
    fn a_renewal_keeps_the_time_of_acquisition_and_the_transitions() {
        let seen = held("a", SECOND);
        let spec = written(seen.step(&config("a"), 3 * SECOND, wall(3)));
        assert_eq!((spec.acquire_time, spec.lease_transitions), (Some(MicroTime(wall(0))), Some(0)));
        assert_eq!((spec.renew_time, spec.lease_duration_seconds), (Some(MicroTime(wall(3))), Some(15)));
    }

    #[test]
    fn only_a_changed_record_is_a_sign_of_life() {
        let first = held("a", SECOND);
        let mut touched = first.lease.clone();
        touched.metadata.resource_version = Some("7".to_owned());
        touched.metadata.labels = Some([("touched".to_owned(), "yes".to_owned())].into());
        let seen = Observed::update(Some(first), touched.clone(), 10 * SECOND);
        assert_eq!(seen.changed, SECOND);
        touched.spec.as_mut().unwrap().renew_time = Some(MicroTime(wall(9)));
        assert_eq!(Observed::update(Some(seen), touched, 10 * SECOND).changed, 10 * SECOND);
    }

    #[test]
    fn a_released_lease_has_no_holder_keeps_its_transitions_and_can_be_taken_at_once() {
        let seen = held("a", SECOND);
        assert_eq!(seen.released(&config("b"), wall(5)), None, "not b's to release");
        let seen = Observed::update(None, seen.released(&config("a"), wall(5)).unwrap(), 5 * SECOND);
        assert_eq!((seen.holder(), seen.transitions()), (None, 0));
        assert_eq!(written(seen.step(&config("b"), 5 * SECOND, wall(5))).lease_transitions, Some(1));
    }

    #[test]
    fn a_lease_that_nobody_ever_held_is_taken() {
        let seen = Observed::update(None, Lease::default(), SECOND);
        assert_eq!(written(seen.step(&config("a"), SECOND, wall(0))).holder_identity.as_deref(), Some("a"));
    }

    #[test]
    fn parts_of_a_second_are_rounded_up_for_the_others() {
        let config = LeaseConfig { lease: Duration::from_millis(15_001), ..config("a") };
        assert_eq!(created(&config, wall(0)).spec.unwrap().lease_duration_seconds, Some(16));
    }
}
