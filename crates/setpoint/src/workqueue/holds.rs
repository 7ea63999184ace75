//! Keys that are held until something outside the queue has happened: what each waits for, and for how long at most.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::moment::Moment;

/// What a held key waits for in a source. Sources are numbered by whoever makes the queue; a controller's are its
/// caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// The source has got to this version. `changed` is the first version that the key has itself made there.
    Version { source: u32, version: u128, changed: Option<u128> },
    /// The source has got to the version `after`, and has `what` no more.
    Gone { source: u32, what: Named, after: u128 },
}

/// Something in a source. A name can be used again, a uid is not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Named {
    pub(crate) name: Arc<str>,
    pub(crate) uid: Arc<str>,
}

/// The held keys, by their slots, and indices of what they wait for: whoever advances a source finds those that
/// waited for just that.
#[derive(Debug)]
pub(super) struct Holds<K> {
    held: BTreeMap<u32, Hold<K>>,
    sources: Vec<Source>,
    /// Of all held keys, with the ticket and slot of each.
    deadlines: BTreeSet<(Moment, u64, u32)>,
}

/// One held key.
#[derive(Debug)]
pub(super) struct Hold<K> {
    pub(super) key: K,
    pub(super) since: Moment,
    deadline: Moment,
    /// Tells it from another hold in the same slot.
    ticket: u64,
    pub(super) until: Vec<Until>,
    /// How many of these have not happened.
    left: usize,
}

#[derive(Debug, Default)]
struct Source {
    version: u128,
    /// Of its newest list.
    listed: u128,
    versions: BTreeMap<u128, Vec<Waiter>>,
    gone: BTreeMap<Named, Vec<(u128, Waiter)>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Waiter {
    slot: u32,
    ticket: u64,
}

impl<K> Default for Holds<K> {
    fn default() -> Holds<K> {
        Holds { held: BTreeMap::new(), sources: Vec::new(), deadlines: BTreeSet::new() }
    }
}

impl<K> Holds<K> {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// The hold of a slot, and when it ends at the latest.
    pub(super) fn get(&self, slot: u32) -> Option<(&Hold<K>, Moment)> {
        self.held.get(&slot).map(|hold| (hold, hold.deadline))
    }

    /// When the first limit is reached.
    pub(super) fn next_deadline(&self) -> Option<Moment> {
        self.deadlines.first().map(|(deadline, ..)| *deadline)
    }

    fn source(&mut self, number: u32) -> &mut Source {
        let number = number as usize;
        if self.sources.len() <= number {
            self.sources.resize_with(number + 1, Source::default);
        }
        &mut self.sources[number]
    }

    /// Holds the key of a slot. If all that it waits for has happened already, that comes back.
    pub(super) fn insert(
        &mut self,
        slot: u32,
        ticket: u64,
        key: K,
        until: Vec<Until>,
        (since, deadline): (Moment, Moment),
    ) -> Result<(), Vec<Until>> {
        let waiter = Waiter { slot, ticket };
        let left = until.iter().filter(|until| self.source_of(until).wait(until, waiter)).count();
        if left == 0 {
            return Err(until);
        }
        self.deadlines.insert((deadline, ticket, slot));
        self.held.insert(slot, Hold { key, since, deadline, ticket, until, left });
        Ok(())
    }

    fn source_of(&mut self, until: &Until) -> &mut Source {
        match until {
            Until::Version { source, .. } | Until::Gone { source, .. } => self.source(*source),
        }
    }

    /// A source has got to a version, by a list or event by event. Gives the keys that waited for nothing else, in the
    /// order of their versions.
    pub(super) fn advance(&mut self, source: u32, version: u128, is_list: bool) -> Vec<(u32, Hold<K>)> {
        let source = self.source(source);
        source.version = version;
        if is_list {
            source.listed = version;
        }
        if source.versions.first_key_value().is_none_or(|(first, _)| *first > version) {
            return Vec::new();
        }
        let later = match version.checked_add(1) {
            Some(next) => source.versions.split_off(&next),
            None => BTreeMap::new(),
        };
        let reached = std::mem::replace(&mut source.versions, later);
        reached.into_values().flatten().filter_map(|waiter| self.pass(waiter)).collect()
    }

    /// Whether a list has passed by something that the key made: nobody knows whether that was there and went.
    pub(super) fn is_listed(&self, until: &[Until]) -> bool {
        until.iter().any(|until| match until {
            Until::Version { source, changed: Some(changed), .. } => {
                self.sources.get(*source as usize).is_some_and(|source| *changed <= source.listed)
            }
            Until::Version { .. } | Until::Gone { .. } => false,
        })
    }

    /// A source has something no more. Gives the keys that waited for nothing else.
    pub(super) fn gone(&mut self, source: u32, what: &Named) -> Vec<(u32, Hold<K>)> {
        let source = self.source(source);
        let Some(waiters) = source.gone.get_mut(what) else { return Vec::new() };
        let version = source.version;
        let passed: Vec<_> = waiters.extract_if(.., |(after, _)| *after <= version).collect();
        if waiters.is_empty() {
            source.gone.remove(what);
        }
        passed.into_iter().filter_map(|(_, waiter)| self.pass(waiter)).collect()
    }

    /// Whether keys wait for something to go from a source.
    pub(super) fn awaits(&self, source: u32) -> bool {
        self.sources.get(source as usize).is_some_and(|source| !source.gone.is_empty())
    }

    /// What keys wait for to go from a source, as far as its version lets them.
    pub(super) fn awaited(&self, source: u32) -> Vec<Named> {
        let Some(source) = self.sources.get(source as usize) else { return Vec::new() };
        let is_open = |waiters: &[(u128, Waiter)]| waiters.iter().any(|(after, _)| *after <= source.version);
        let open = source.gone.iter().filter(|(_, waiters)| is_open(waiters));
        open.map(|(what, _)| what.clone()).collect()
    }

    fn pass(&mut self, waiter: Waiter) -> Option<(u32, Hold<K>)> {
        let hold = self.held.get_mut(&waiter.slot).filter(|hold| hold.ticket == waiter.ticket)?;
        hold.left -= 1;
        if hold.left > 0 { None } else { self.remove(waiter.slot) }
    }

    fn remove(&mut self, slot: u32) -> Option<(u32, Hold<K>)> {
        let hold = self.held.remove(&slot)?;
        self.deadlines.remove(&(hold.deadline, hold.ticket, slot));
        Some((slot, hold))
    }

    /// Takes a key whose limit is reached at `now`, the first one first.
    pub(super) fn expire(&mut self, now: Moment) -> Option<(u32, Hold<K>)> {
        let (deadline, _, slot) = *self.deadlines.first()?;
        if deadline > now {
            return None;
        }
        let (slot, hold) = self.remove(slot)?;
        let waiter = Waiter { slot, ticket: hold.ticket };
        for until in &hold.until {
            self.source_of(until).forget(until, waiter);
        }
        Some((slot, hold))
    }

    /// Takes all keys.
    pub(super) fn take_all(&mut self) -> BTreeMap<u32, Hold<K>> {
        self.deadlines.clear();
        for source in &mut self.sources {
            source.versions.clear();
            source.gone.clear();
        }
        std::mem::take(&mut self.held)
    }
}

impl Source {
    /// Notes that a key waits for this. False if it has happened. (What is gone cannot be known here.)
    fn wait(&mut self, until: &Until, waiter: Waiter) -> bool {
        match until {
            Until::Version { version, .. } if *version <= self.version => return false,
            Until::Version { version, .. } => self.versions.entry(*version).or_default().push(waiter),
            Until::Gone { what, after, .. } => {
                self.gone.entry(what.clone()).or_default().push((*after, waiter));
            }
        }
        true
    }

    fn forget(&mut self, until: &Until, waiter: Waiter) {
        match until {
            Until::Version { version, .. } => {
                let Some(waiters) = self.versions.get_mut(version) else { return };
                waiters.retain(|other| *other != waiter);
                if waiters.is_empty() {
                    self.versions.remove(version);
                }
            }
            Until::Gone { what, .. } => {
                let Some(waiters) = self.gone.get_mut(what) else { return };
                waiters.retain(|(_, other)| *other != waiter);
                if waiters.is_empty() {
                    self.gone.remove(what);
                }
            }
        }
    }
}
