//! Faults that a seed chooses.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Effect, FaultKind, Match, Refusal};
use crate::hash::Fnv;
use crate::request::RequestInfo;

/// How likely each kind of fault is.
///
/// What happens to a request depends on the seed, the client's name and the request's number alone, and for
/// each kind by itself: switching one kind off changes nothing about the others.
///
/// ```
/// use std::time::Duration;
/// use setpoint_sim::{FaultKind, Match, Swarm};
///
/// let _ = Swarm::every(0.05);                                    // each kind: one request in twenty
/// let _ = Swarm::every(0.2).subset();                            // the seed switches about half of them off
/// let _ = Swarm::quiet().chance(FaultKind::LoseResponse, 0.5)
///     .on(Match::writes().client("controller"))
///     .longest(Duration::from_secs(30));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Swarm {
    chances: BTreeMap<FaultKind, f64>,
    subset: bool,
    matching: Match,
    longest: Duration,
}

impl Swarm {
    /// No faults, to add some with [`Swarm::chance`].
    pub fn quiet() -> Swarm {
        let longest = Duration::from_secs(5);
        Swarm { chances: BTreeMap::new(), subset: false, matching: Match::any(), longest }
    }

    /// Every kind with this chance for each request that it can meet.
    pub fn every(chance: f64) -> Swarm {
        FaultKind::ALL.into_iter().fold(Swarm::quiet(), |swarm, kind| swarm.chance(kind, chance))
    }

    /// Sets the chance of one kind, between 0 and 1.
    pub fn chance(mut self, kind: FaultKind, chance: f64) -> Swarm {
        self.chances.insert(kind, chance);
        self
    }

    /// Lets the seed switch each kind on or off for the whole run: some bugs need a fault's absence.
    pub fn subset(mut self) -> Swarm {
        self.subset = true;
        self
    }

    /// Only requests that `matching` selects (its `nth` is not looked at).
    pub fn on(mut self, matching: Match) -> Swarm {
        self.matching = matching;
        self
    }

    /// The longest delay and time-out; 5 s unless told.
    pub fn longest(mut self, time: Duration) -> Swarm {
        self.longest = time;
        self
    }

    /// The kinds that are on in the run of this seed.
    pub fn kinds(&self, seed: u64) -> Vec<FaultKind> {
        let on = |kind: &FaultKind| !self.subset || mix(mix(seed, 0), *kind as u64) & 1 == 1;
        self.chances.keys().copied().filter(on).collect()
    }

    /// What happens to the request that is number `number` of `client`.
    pub(crate) fn draw(&self, seed: u64, client: &str, number: u64, request: &RequestInfo) -> Vec<Effect> {
        if !self.matching.selects(client, request) {
            return Vec::new();
        }
        let stream = mix(mix(seed, Fnv::of(client.as_bytes())), number);
        let kinds = self.kinds(seed).into_iter().filter(|kind| kind.is_legal_for(request));
        kinds
            .filter_map(|kind| {
                let dice = mix(stream, kind as u64);
                (unit(dice) < self.chances[&kind]).then(|| self.effect(kind, mix(dice, 1)))
            })
            .collect()
    }

    fn effect(&self, kind: FaultKind, dice: u64) -> Effect {
        let time = Duration::try_from_secs_f64(self.longest.as_secs_f64() * unit(dice)).unwrap_or_default();
        let events = dice % 8;
        match kind {
            FaultKind::DelayRequest => Effect::DelayRequest(time),
            FaultKind::DelayResponse => Effect::DelayResponse(time),
            FaultKind::RefuseConnection => Effect::RefuseConnection,
            FaultKind::DropRequest => Effect::DropRequest,
            FaultKind::Conflict => Effect::Refuse(Refusal::Conflict),
            FaultKind::TooManyRequests => {
                Effect::Refuse(Refusal::TooManyRequests { retry_after: Duration::from_secs(1 + dice % 3) })
            }
            FaultKind::InternalError => Effect::Refuse(Refusal::InternalError),
            FaultKind::ServiceUnavailable => Effect::Refuse(Refusal::ServiceUnavailable),
            FaultKind::Expired => Effect::Refuse(Refusal::Expired),
            FaultKind::LoseResponse => Effect::LoseResponse,
            FaultKind::BadGateway => Effect::BadGateway,
            FaultKind::TimeOut => Effect::TimeOut(time),
            // Half of the cuts within 64 bytes, some after thousands: small answers are to be hit too.
            FaultKind::CutResponse => Effect::CutAfterBytes(dice % (1 << (mix(dice, 3) % 13))),
            FaultKind::CutWatch if unit(mix(dice, 2)) < 0.5 => Effect::CutInsideEvent(events),
            FaultKind::CutWatch => Effect::CutAfterEvents(events),
            FaultKind::EndWatch => Effect::EndAfterEvents(events),
            FaultKind::ExpireWatch => Effect::ErrorAfterEvents(events, Refusal::Expired),
            FaultKind::DelayEvents => Effect::DelayEvents(time),
            FaultKind::StallWatch => Effect::StallAfterEvents(events, time),
            FaultKind::LagWatch => Effect::LagAfterEvents(events, 1 + mix(dice, 4) % 3),
            FaultKind::Crash => match mix(dice, 5) % 3 {
                0 => Effect::CrashBefore,
                1 => Effect::CrashAfterCommit,
                _ => Effect::CrashAfterAnswer,
            },
        }
    }
}

/// SplitMix64's output function over two words: a new generator would shift every seed, so it stays here.
fn mix(a: u64, b: u64) -> u64 {
    let mut z = a.wrapping_add(b.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number from 0 up to 1, without 1.
fn unit(dice: u64) -> f64 {
    (dice >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put() -> RequestInfo {
        let uri = "/api/v1/namespaces/default/configmaps/a".parse().unwrap();
        RequestInfo::parse(&http::Method::PUT, &uri, b"")
    }

    fn draws(swarm: &Swarm, seed: u64, client: &str) -> Vec<Vec<Effect>> {
        (1..=200).map(|number| swarm.draw(seed, client, number, &put())).collect()
    }

    #[test]
    fn seed_client_and_number_decide_and_nothing_else() {
        let swarm = Swarm::every(0.1);
        assert_eq!(draws(&swarm, 1, "a"), draws(&swarm, 1, "a"));
        assert_ne!(draws(&swarm, 1, "a"), draws(&swarm, 2, "a"));
        assert_ne!(draws(&swarm, 1, "a"), draws(&swarm, 1, "b"));
    }

    #[test]
    fn switching_one_kind_off_leaves_the_others_as_they_were() {
        let every = draws(&Swarm::every(0.1), 1, "a");
        let fewer = draws(&Swarm::every(0.1).chance(FaultKind::LoseResponse, 0.0), 1, "a");
        let without: Vec<Vec<_>> = every
            .iter()
            .map(|effects| effects.iter().filter(|e| **e != Effect::LoseResponse).cloned().collect())
            .collect();
        assert_eq!(fewer, without);
        assert_ne!(fewer, every);
    }

    #[test]
    fn a_chance_is_met_within_reason() {
        let swarm = Swarm::quiet().chance(FaultKind::DropRequest, 0.25);
        let hits = (1..=4000).filter(|n| !swarm.draw(9, "a", *n, &put()).is_empty()).count();
        assert!((900..1100).contains(&hits), "{hits} of 4000");
    }

    #[test]
    fn a_subset_differs_from_seed_to_seed_and_stays_within_a_seed() {
        let swarm = Swarm::every(0.1).subset();
        let sizes: Vec<_> = (0..50).map(|seed| swarm.kinds(seed).len()).collect();
        assert_eq!(swarm.kinds(3), swarm.kinds(3));
        assert!(sizes.iter().any(|n| *n < 8) && sizes.iter().any(|n| *n > 8), "{sizes:?}");
    }

    #[test]
    fn no_time_is_longer_than_the_longest() {
        let swarm = Swarm::every(1.0).longest(Duration::from_millis(10));
        for effect in draws(&swarm, 4, "a").into_iter().flatten() {
            if let Effect::DelayRequest(time) | Effect::DelayResponse(time) | Effect::TimeOut(time) = effect {
                assert!(time < Duration::from_millis(10), "{effect:?}");
            }
        }
    }
}
