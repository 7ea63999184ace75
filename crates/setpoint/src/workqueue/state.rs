//! What the queue knows about its keys: queued, dirty, processing, waiting. No lock, no wakers, no clock.

use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::holds::{Hold, Holds, Named, Until};
use super::lanes::{Lanes, Place};
use super::moment::Moment;
use super::phase::Phase;
use super::reasons::{Cause, Causes, Details, Reason, Reasons};
use super::steps::{Step, Steps};
use super::timers::{Timer, Timers};

/// A table larger than this is given back when it runs empty.
const SPARE_SLOTS: usize = 4096;

/// One slot a key, as long as the key is queued, processing, held or waiting for its time.
///
/// Places and timers name a slot by its number and are told from outdated ones by their ticket, so a `get` and
/// a `done` hash nothing. The table is never iterated: its order, which differs from run to run, cannot reach
/// behaviour.
#[derive(Debug)]
pub(super) struct State<K> {
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
    slots: Vec<Slot<K>>,
    free: Vec<u32>,
    lanes: Lanes,
    timers: Timers,
    holds: Holds<K>,
    tickets: u64,
    queued: usize,
    processing: usize,
    /// How many of the processing keys are dirty.
    dirty: usize,
    /// How many of the held keys are dirty, or will be held and are.
    held_dirty: usize,
    shutting_down: bool,
    steps: Option<Steps<K>>,
    /// Whether somebody listens to the steps, as of the last [`State::heed`].
    is_heard: bool,
    /// Whether it is not shutting down, and nobody listens: what happens most has one thing to look at.
    is_quiet: bool,
}

/// Small, since a queue can have very many of them. A ticket of 0 is none.
#[derive(Debug)]
struct Slot<K> {
    /// `None` in a free slot.
    key: Option<K>,
    hash: u64,
    phase: Phase,
    /// Of the queued or dirty key.
    priority: i32,
    /// Of the key's place in its lane, if it is queued.
    ticket: u64,
    /// Since when the key wants to be processed; only with metrics.
    added: Option<Moment>,
    /// Since when it is being processed; only with metrics.
    started: Option<Moment>,
    /// When the key will want to be processed.
    due: Option<Moment>,
    timer: u64,
    due_priority: i32,
    /// Why the key will want to be processed then.
    due_causes: Causes,
    /// Why the queued or dirty key wants to be processed.
    causes: Causes,
    details: Option<Box<Details>>,
}

/// What an add did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// The key was queued already, or the queue is shutting down.
    Nothing,
    /// The key is being processed and will be queued again.
    Dirty,
    /// The key is queued: somebody can get it.
    Queued,
}

/// A key that was taken from the queue.
#[derive(Debug)]
pub(super) struct Taken<K> {
    pub(super) key: K,
    pub(super) slot: u32,
    pub(super) priority: i32,
    pub(super) reasons: Reasons,
    /// How many nanoseconds it was queued; only with metrics, otherwise 0.
    pub(super) queued: u64,
}

/// A key that is held no more.
#[derive(Debug)]
pub(crate) struct Released<K> {
    pub(crate) key: K,
    pub(crate) waited: Duration,
    /// Whether its limit was reached before what it waited for has happened.
    pub(crate) is_late: bool,
    /// What else is to be dropped outside the lock.
    _forgotten: Option<K>,
}

/// How many keys do what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) ready: usize,
    pub(super) processing: usize,
    pub(super) waiting: usize,
    pub(super) held: usize,
    pub(super) dirty: usize,
}

/// A key as it is now, for those who look.
#[derive(Clone, Debug)]
pub(super) struct Standing<K> {
    pub(super) key: K,
    pub(super) phase: Phase,
    pub(super) priority: i32,
    pub(super) reasons: Reasons,
    pub(super) due_in: Option<Duration>,
    pub(super) held: Option<Held>,
}

/// Since when a key is held, for how long at most, and for what.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) since: Duration,
    pub(super) at_most: Duration,
    pub(super) until: Vec<Until>,
}

/// What is being worked on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Unfinished {
    pub(super) total: Duration,
    pub(super) longest: Duration,
}

impl<K> State<K> {
    pub(super) fn new(steps: Option<Steps<K>>) -> State<K> {
        let is_heard = steps.as_ref().is_some_and(Steps::are_heard);
        State {
            table: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            slots: Vec::new(),
            free: Vec::new(),
            lanes: Lanes::default(),
            timers: Timers::default(),
            holds: Holds::default(),
            tickets: 0,
            queued: 0,
            processing: 0,
            dirty: 0,
            held_dirty: 0,
            shutting_down: false,
            steps,
            is_heard,
            is_quiet: !is_heard,
        }
    }

    /// How many keys are queued.
    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    /// How many keys want to be processed: queued, or dirty while they are processing or held.
    pub(super) fn depth(&self) -> usize {
        self.queued + self.dirty + self.held_dirty
    }

    pub(super) fn is_shutting_down(&self) -> bool {
        self.shutting_down
    }

    /// Whether nobody has to be called but a get for a key: it is not shutting down, and nobody listens.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.is_quiet
    }

    /// Looks whether somebody listens to the steps of keys. Called whenever that may have changed, so that no step has to
    /// look.
    pub(super) fn heed(&mut self) {
        self.is_heard = self.steps.as_ref().is_some_and(Steps::are_heard);
        self.is_quiet = !self.is_heard && !self.shutting_down;
    }

    /// Whether there is no time to be kept either.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.is_quiet() && self.timers.next_due().is_none() && self.holds.is_empty()
    }

    /// Whether no get will ever give a key again.
    pub(super) fn is_exhausted(&self) -> bool {
        self.shutting_down && self.queued == 0 && self.dirty == 0
    }

    /// Whether nothing is queued and nobody is working.
    pub(super) fn is_idle(&self) -> bool {
        self.queued == 0 && self.processing == 0
    }

    /// When something is to be done: a key is due, or was held for long enough.
    #[inline]
    pub(super) fn next_due(&self) -> Option<Moment> {
        match (self.timers.next_due(), self.holds.next_deadline()) {
            (Some(due), Some(deadline)) => Some(due.min(deadline)),
            (due, deadline) => due.or(deadline),
        }
    }

    pub(super) fn unfinished(&self, now: Moment) -> Unfinished {
        let times = self.slots.iter().filter_map(|slot| slot.started).map(|started| now.since(started));
        times.fold(Unfinished::default(), |sum, time| Unfinished {
            total: sum.total.saturating_add(time),
            longest: sum.longest.max(time),
        })
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            ready: self.queued,
            processing: self.processing,
            waiting: self.timers.len(),
            held: self.holds.len(),
            dirty: self.dirty + self.held_dirty,
        }
    }

    #[inline]
    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    #[inline]
    fn slot(&mut self, number: u32) -> &mut Slot<K> {
        &mut self.slots[number as usize]
    }

    /// The one place where a key comes into another phase.
    #[inline(always)]
    fn enter(&mut self, number: u32, phase: Phase) -> &mut Slot<K> {
        let slot = &mut self.slots[number as usize];
        slot.phase = phase;
        if self.is_heard {
            slot.tell_phase(self.steps.as_ref());
        }
        slot
    }

    fn tell(&self, key: Option<&K>, step: Step<'_>) {
        if let Some(steps) = self.steps.as_ref().filter(|_| self.is_heard) {
            steps.tell(key, step);
        }
    }

    /// Tells that a key is being added, before anything follows from it.
    #[cold]
    fn tell_added(&self, number: u32, reason: &Reason, priority: i32) {
        let slot = &self.slots[number as usize];
        let is_coalesced =
            matches!(slot.phase, Phase::Queued | Phase::Dirty | Phase::HoldingDirty | Phase::HeldDirty);
        self.tell(slot.key.as_ref(), Step::Added { reason, priority, is_coalesced });
    }

    /// Gives a key a place at the end of a lane.
    #[inline(always)]
    fn place(&mut self, number: u32, priority: i32) {
        let ticket = self.ticket();
        let slot = self.slot(number);
        slot.ticket = ticket;
        slot.priority = priority;
        self.enter(number, Phase::Queued);
        self.lanes.push(priority, Place { slot: number, ticket });
    }

    /// Moves a queued key to the end of a higher lane.
    fn raise(&mut self, number: u32, priority: i32) {
        self.place(number, priority);
        let slots = &self.slots;
        self.lanes.bury(self.queued, |place| is_queued(slots, place));
    }

    #[inline(always)]
    fn add_slot(&mut self, number: u32, priority: i32, added: Option<Moment>, causes: Causes) -> Added {
        let slot = self.slot(number);
        slot.causes = slot.causes.and(causes);
        match slot.phase {
            Phase::Absent => {
                slot.added = added;
                self.place(number, priority);
                self.queued += 1;
                Added::Queued
            }
            Phase::Queued => {
                if priority > slot.priority {
                    self.raise(number, priority);
                }
                Added::Nothing
            }
            Phase::Processing => {
                slot.priority = priority;
                slot.added = added;
                self.enter(number, Phase::Dirty);
                self.dirty += 1;
                Added::Dirty
            }
            Phase::Dirty | Phase::HoldingDirty | Phase::HeldDirty => {
                slot.priority = slot.priority.max(priority);
                Added::Nothing
            }
            was @ (Phase::Holding | Phase::Held) => {
                slot.priority = priority;
                slot.added = added;
                self.enter(number, if was == Phase::Held { Phase::HeldDirty } else { Phase::HoldingDirty });
                self.held_dirty += 1;
                Added::Dirty
            }
        }
    }

    /// Since when a key is being processed; only with metrics.
    pub(super) fn started(&self, number: u32) -> Option<Moment> {
        self.slots[number as usize].started
    }

    /// Ends the processing of a key. If it is neither dirty, and so queued again, nor to be held, nor waiting for
    /// its time, it is forgotten, and comes back to be dropped outside the lock.
    #[inline]
    pub(super) fn done(&mut self, number: u32) -> Option<K> {
        let slot = self.slot(number);
        let (was, priority) = (slot.phase, slot.priority);
        slot.started = None;
        self.processing -= 1;
        if was != Phase::Processing {
            self.stay(number, was, priority);
            return None;
        }
        self.enter(number, Phase::Absent);
        self.release(number)
    }

    /// What becomes of a key that is done and not free to go.
    fn stay(&mut self, number: u32, was: Phase, priority: i32) {
        match was {
            Phase::Holding => {
                self.enter(number, Phase::Held);
            }
            Phase::HoldingDirty => {
                self.enter(number, Phase::HeldDirty);
            }
            _ => {
                self.dirty -= 1;
                self.queued += 1;
                self.place(number, priority);
            }
        }
    }

    /// A source has got to a version. Says how many keys became ready to get.
    pub(super) fn advance(
        &mut self,
        source: u32,
        (version, is_list): (u128, bool),
        now: Moment,
        released: &mut Vec<Released<K>>,
    ) -> usize {
        let passed = self.holds.advance(source, version, is_list);
        self.unhold_all(passed, now, released)
    }

    /// A key whose writes a list has passed by wants to be processed: what it made may have come and gone.
    fn look_again(&mut self, number: u32, until: &[Until], now: Moment) {
        if self.holds.is_listed(until) {
            if self.is_heard {
                self.tell_added(number, &Reason::new(Cause::List), 0);
            }
            self.add_slot(number, 0, Some(now), Causes::of(Cause::List));
        }
    }

    /// Releases every key that is held. Says how many became ready to get.
    pub(super) fn release_all(&mut self, now: Moment, released: &mut Vec<Released<K>>) -> usize {
        let all = self.holds.take_all().into_iter().collect();
        self.unhold_all(all, now, released)
    }

    /// A source has something no more. Says how many keys became ready to get.
    pub(super) fn gone(
        &mut self,
        source: u32,
        what: &Named,
        now: Moment,
        released: &mut Vec<Released<K>>,
    ) -> usize {
        let passed = self.holds.gone(source, what);
        self.unhold_all(passed, now, released)
    }

    /// Whether keys wait for something to go from a source.
    pub(super) fn awaits(&self, source: u32) -> bool {
        self.holds.awaits(source)
    }

    /// What keys wait for to go from a source.
    pub(super) fn awaited(&self, source: u32) -> Vec<Named> {
        self.holds.awaited(source)
    }

    fn unhold_all(
        &mut self,
        passed: Vec<(u32, Hold<K>)>,
        now: Moment,
        released: &mut Vec<Released<K>>,
    ) -> usize {
        let unhold = |(number, hold)| usize::from(self.unhold(number, hold, now, false, released));
        passed.into_iter().map(unhold).sum()
    }

    /// Ends the hold of a key. Says whether it became ready to get.
    fn unhold(
        &mut self,
        number: u32,
        hold: Hold<K>,
        now: Moment,
        is_late: bool,
        released: &mut Vec<Released<K>>,
    ) -> bool {
        let waited = now.since(hold.since);
        self.look_again(number, &hold.until, now);
        self.tell(Some(&hold.key), Step::Released { waited, is_late });
        let slot = self.slot(number);
        let (was, priority) = (slot.phase, slot.priority);
        let mut forgotten = None;
        match was {
            // Whoever works on it has not dropped it yet.
            Phase::Holding => {
                self.enter(number, Phase::Processing);
            }
            Phase::HoldingDirty => {
                self.enter(number, Phase::Dirty);
                self.held_dirty -= 1;
                self.dirty += 1;
            }
            Phase::HeldDirty => {
                self.held_dirty -= 1;
                self.queued += 1;
                self.place(number, priority);
            }
            _ => {
                self.enter(number, Phase::Absent);
                forgotten = self.release(number);
            }
        }
        released.push(Released { key: hold.key, waited, is_late, _forgotten: forgotten });
        was == Phase::HeldDirty
    }

    /// Frees a slot that nothing needs any more.
    #[inline(always)]
    fn release(&mut self, number: u32) -> Option<K> {
        let slot = &mut self.slots[number as usize];
        if slot.phase != Phase::Absent || slot.due.is_some() {
            return None;
        }
        if let Ok(entry) = self.table.find_entry(slot.hash, |other| *other == number) {
            entry.remove();
        }
        let key = slot.key.take();
        self.free.push(number);
        if self.table.is_empty() && self.slots.len() > SPARE_SLOTS {
            self.give_back();
        }
        key
    }

    /// Gives the memory of an empty table back.
    #[cold]
    fn give_back(&mut self) {
        self.table = HashTable::new();
        self.slots = Vec::new();
        self.free = Vec::new();
    }

    /// Queues every waiting key that is due at `now`, and releases those that were held for long enough. Says how
    /// many became ready to get.
    pub(super) fn promote(
        &mut self,
        now: Moment,
        released: &mut Vec<Released<K>>,
        count: impl FnMut(Added),
    ) -> usize {
        let mut ready = self.promote_due(now, count);
        while let Some((number, hold)) = self.holds.expire(now) {
            ready += usize::from(self.unhold(number, hold, now, true, released));
        }
        ready
    }

    fn promote_due(&mut self, now: Moment, mut count: impl FnMut(Added)) -> usize {
        let mut ready = 0;
        loop {
            let slots = &self.slots;
            let Some(timer) = self.timers.pop_due(now, |timer| is_waiting(slots, timer)) else {
                return ready;
            };
            let slot = self.slot(timer.slot);
            slot.due = None;
            slot.timer = 0;
            let (priority, causes) = (slot.due_priority, std::mem::take(&mut slot.due_causes));
            if self.is_heard {
                let reasons = Reasons::new(causes, None);
                reasons.iter().for_each(|reason| self.tell_added(timer.slot, &reason, priority));
            }
            let added = self.add_slot(timer.slot, priority, Some(timer.due), causes);
            ready += usize::from(added == Added::Queued);
            count(added);
        }
    }

    /// Ends all adds; keys that are held or wait for their time are forgotten, and come back to be dropped outside
    /// the lock.
    pub(super) fn shut_down(&mut self) -> Vec<K> {
        (self.shutting_down, self.is_quiet) = (true, false);
        if let Some(steps) = self.steps.as_ref().filter(|_| self.is_heard) {
            (steps.tell)(None);
        }
        let mut forgotten = Vec::new();
        for (number, hold) in self.holds.take_all() {
            forgotten.push(hold.key);
            self.leave(number);
            forgotten.extend(self.release(number));
        }
        for timer in self.timers.take_all() {
            if is_waiting(&self.slots, &timer) {
                let slot = self.slot(timer.slot);
                slot.due = None;
                slot.timer = 0;
                slot.due_causes = Causes::NONE;
                if slot.phase == Phase::Absent {
                    slot.details = None;
                }
                forgotten.extend(self.release(timer.slot));
            }
        }
        forgotten
    }
}

impl<K> State<K> {
    /// Takes from a key what would bring it back: it was written since the caches were read, and nobody waits for
    /// them any more.
    fn leave(&mut self, number: u32) {
        let slot = self.slot(number);
        let was = slot.phase;
        (slot.causes, slot.details) = (Causes::NONE, None);
        match was {
            Phase::Dirty => self.dirty -= 1,
            Phase::HoldingDirty | Phase::HeldDirty => self.held_dirty -= 1,
            _ => {}
        }
        match was {
            Phase::Dirty | Phase::Holding | Phase::HoldingDirty => {
                self.enter(number, Phase::Processing);
            }
            Phase::Held | Phase::HeldDirty => {
                self.enter(number, Phase::Absent);
            }
            Phase::Absent | Phase::Queued | Phase::Processing => {}
        }
    }
}

impl<K: Eq + Hash> State<K> {
    /// The slot of a key; a new one if it has none.
    #[inline(always)]
    fn find(&mut self, key: K) -> u32 {
        use hashbrown::hash_table::Entry;

        let hash = self.hasher.hash_one(&key);
        let slots = &self.slots;
        let same = |number: &u32| slots[*number as usize].key.as_ref() == Some(&key);
        let hash_of = |number: &u32| slots[*number as usize].hash;
        let vacant = match self.table.entry(hash, same, hash_of) {
            Entry::Occupied(found) => return *found.get(),
            Entry::Vacant(vacant) => vacant,
        };
        let number = self.free.pop().unwrap_or(slots.len() as u32);
        vacant.insert(number);
        match self.slots.get_mut(number as usize) {
            // Nothing else is left in a free slot.
            Some(free) => (free.key, free.hash) = (Some(key), hash),
            None => self.slots.push(Slot::new(key, hash)),
        }
        number
    }

    /// The key wants to be processed.
    #[inline]
    pub(super) fn add(&mut self, key: K, priority: i32, added: Option<Moment>, cause: Cause) -> Added {
        if !self.is_quiet && self.shutting_down {
            return Added::Nothing;
        }
        let number = self.find(key);
        if self.is_heard {
            self.tell_added(number, &Reason::new(cause), priority);
        }
        self.add_slot(number, priority, added, Causes::of(cause))
    }

    /// The key wants to be processed, since something happened to an object.
    pub(super) fn add_because(
        &mut self,
        key: K,
        priority: i32,
        added: Option<Moment>,
        reason: Reason,
    ) -> Added {
        if self.shutting_down {
            return Added::Nothing;
        }
        let number = self.find(key);
        if self.is_heard {
            self.tell_added(number, &reason, priority);
        }
        self.slot(number).details.get_or_insert_default().add(reason);
        self.add_slot(number, priority, added, Causes::NONE)
    }

    /// The key wants to be processed at `due`; a key that waits already keeps the earlier time. Says whether
    /// the earliest time of all has changed.
    pub(super) fn add_at(
        &mut self,
        key: K,
        priority: i32,
        due: Moment,
        (reason, delay): (Reason, Duration),
    ) -> bool {
        if self.shutting_down {
            return false;
        }
        let number = self.find(key);
        let ticket = self.ticket();
        let slot = self.slot(number);
        let (before, cause) = (slot.due, reason.cause);
        slot.due_priority = before.map_or(priority, |_| slot.due_priority.max(priority));
        let is_sooner = before.is_none_or(|before| due < before);
        if is_sooner {
            // The later time is given up, and with it what would have been the reason then.
            slot.due_causes = slot.due_causes.without(Causes::OF_A_TIME);
        }
        if reason.object.is_some() || reason.resource.is_some() {
            // Who takes the key before its time sees them too.
            slot.details.get_or_insert_default().add(reason);
        } else if is_sooner || before == Some(due) || !Causes::OF_A_TIME.has(cause) {
            slot.due_causes = slot.due_causes.and(Causes::of(cause));
        }
        if !is_sooner {
            return false;
        }
        slot.due = Some(due);
        slot.timer = ticket;
        self.tell(self.slots[number as usize].key.as_ref(), Step::Delayed { delay, cause });
        let earliest = self.timers.push(Timer { due, ticket, slot: number });
        if before.is_some() {
            let slots = &self.slots;
            self.timers.bury(|timer| is_waiting(slots, timer));
        }
        earliest
    }
}

impl<K: Clone> State<K> {
    /// At most `most` keys of each kind: ready, processed, waiting, held. In no order.
    pub(super) fn standing(&self, most: usize, now: Moment) -> Vec<Standing<K>> {
        let (mut room, mut found) = ([most; 4], Vec::new());
        for (number, slot) in self.slots.iter().enumerate() {
            if room == [0; 4] {
                break;
            }
            let Some(key) = &slot.key else { continue };
            let kind = match slot.phase {
                Phase::Queued => 0,
                Phase::Processing | Phase::Dirty | Phase::Holding | Phase::HoldingDirty => 1,
                Phase::Held | Phase::HeldDirty => 2,
                Phase::Absent => 3,
            };
            let Some(left) = room[kind].checked_sub(1) else { continue };
            room[kind] = left;
            let held = u32::try_from(number).ok().and_then(|number| self.holds.get(number));
            let held = held.map(|(hold, deadline)| Held {
                since: now.since(hold.since),
                at_most: deadline.since(now),
                until: hold.until.clone(),
            });
            let (mut causes, due) = (slot.causes, slot.due);
            if slot.phase == Phase::Absent {
                causes = causes.and(slot.due_causes);
            }
            found.push(Standing {
                key: key.clone(),
                phase: slot.phase,
                priority: slot.priority,
                reasons: Reasons::new(causes, slot.details.clone()),
                due_in: due.map(|due| due.since(now)),
                held,
            });
        }
        found
    }

    /// Lets a key that is being processed be held when it is done. False if all that it would wait for has happened.
    /// While the queue shuts down, the key is left as it is.
    pub(super) fn hold(&mut self, number: u32, until: Vec<Until>, times: (Moment, Moment)) -> bool {
        if self.shutting_down {
            self.leave(number);
            return true;
        }
        let ticket = self.ticket();
        let key = self.slots[number as usize].key.clone().expect("a processing slot has a key");
        let told = self.is_heard.then(|| until.clone());
        if let Err(until) = self.holds.insert(number, ticket, key, until, times) {
            self.look_again(number, &until, times.0);
            return false;
        }
        if let Some(until) = told {
            let limit = times.1.since(times.0);
            self.tell(self.slots[number as usize].key.as_ref(), Step::Held { until: &until, limit });
        }
        if self.slot(number).phase == Phase::Dirty {
            self.enter(number, Phase::HoldingDirty);
            self.dirty -= 1;
            self.held_dirty += 1;
        } else {
            self.enter(number, Phase::Holding);
        }
        true
    }

    /// What is told of a key that need not be held at all.
    pub(super) fn pass(&self, number: u32) -> Released<K> {
        let key = self.slots[number as usize].key.clone().expect("a processing slot has a key");
        Released { key, waited: Duration::ZERO, is_late: false, _forgotten: None }
    }

    /// Takes the next key. `now` is what it is being processed since, for the metrics.
    #[inline(always)]
    pub(super) fn take(&mut self, now: Option<Moment>) -> Option<Taken<K>> {
        let slots = &self.slots;
        let number = self.lanes.pop(|place| is_queued(slots, place))?;
        self.queued -= 1;
        self.processing += 1;
        let slot = self.enter(number, Phase::Processing);
        let reasons = Reasons::new(std::mem::take(&mut slot.causes), slot.details.take());
        slot.ticket = 0;
        slot.started = now;
        let queued = match (now, slot.added) {
            (Some(now), Some(added)) => now.nanos_since(added),
            _ => 0,
        };
        let key = slot.key.clone().expect("a queued slot has a key");
        Some(Taken { key, slot: number, priority: slot.priority, reasons, queued })
    }
}

impl<K> Slot<K> {
    fn new(key: K, hash: u64) -> Slot<K> {
        Slot {
            key: Some(key),
            hash,
            phase: Phase::Absent,
            priority: 0,
            ticket: 0,
            added: None,
            started: None,
            due: None,
            timer: 0,
            due_priority: 0,
            due_causes: Causes::NONE,
            causes: Causes::NONE,
            details: None,
        }
    }

    #[cold]
    fn tell_phase(&self, steps: Option<&Steps<K>>) {
        let Some(steps) = steps else { return };
        let reasons = Reasons::new(self.causes, self.details.clone());
        let step = Step::Entered { phase: self.phase, priority: self.priority, reasons: &reasons };
        steps.tell(self.key.as_ref(), step);
    }
}

fn is_queued<K>(slots: &[Slot<K>], place: &Place) -> bool {
    slots.get(place.slot as usize).is_some_and(|slot| slot.ticket == place.ticket)
}

fn is_waiting<K>(slots: &[Slot<K>], timer: &Timer) -> bool {
    slots.get(timer.slot as usize).is_some_and(|slot| slot.timer == timer.ticket)
}
