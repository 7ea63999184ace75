//! What the queue knows about its keys: queued, dirty, processing, waiting. No lock, no wakers, no clock.

use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::lanes::{Lanes, Place};
use super::moment::Moment;
use super::timers::{Timer, Timers};

/// A table larger than this is given back when it runs empty.
const SPARE_SLOTS: usize = 4096;

/// One slot a key, as long as the key is queued, processing or waiting for its time.
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
    tickets: u64,
    queued: usize,
    processing: usize,
    /// How many of the processing keys are dirty.
    dirty: usize,
    shutting_down: bool,
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
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Only waiting for its time, or nothing at all.
    Absent,
    Queued,
    Processing,
    /// Processing, and to be queued again.
    Dirty,
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
    /// How many nanoseconds it was queued; only with metrics, otherwise 0.
    pub(super) queued: u64,
}

/// What is being worked on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Unfinished {
    pub(super) total: Duration,
    pub(super) longest: Duration,
}

impl<K> State<K> {
    pub(super) fn new() -> State<K> {
        State {
            table: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            slots: Vec::new(),
            free: Vec::new(),
            lanes: Lanes::default(),
            timers: Timers::default(),
            tickets: 0,
            queued: 0,
            processing: 0,
            dirty: 0,
            shutting_down: false,
        }
    }

    /// How many keys are queued.
    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    /// How many keys want to be processed: queued, or processing and dirty.
    pub(super) fn depth(&self) -> usize {
        self.queued + self.dirty
    }

    pub(super) fn is_shutting_down(&self) -> bool {
        self.shutting_down
    }

    /// Whether no key waits for its time and the queue is not shutting down.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        !self.shutting_down && self.timers.next_due().is_none()
    }

    /// Whether no get will ever give a key again.
    pub(super) fn is_exhausted(&self) -> bool {
        self.shutting_down && self.queued == 0 && self.dirty == 0
    }

    /// Whether nothing is queued and nobody is working.
    pub(super) fn is_idle(&self) -> bool {
        self.queued == 0 && self.processing == 0
    }

    #[inline]
    pub(super) fn next_due(&self) -> Option<Moment> {
        self.timers.next_due()
    }

    pub(super) fn unfinished(&self, now: Moment) -> Unfinished {
        let times = self.slots.iter().filter_map(|slot| slot.started).map(|started| now.since(started));
        times.fold(Unfinished::default(), |sum, time| Unfinished {
            total: sum.total.saturating_add(time),
            longest: sum.longest.max(time),
        })
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

    /// Gives a key a place at the end of a lane.
    #[inline(always)]
    fn place(&mut self, number: u32, priority: i32) {
        let ticket = self.ticket();
        let slot = self.slot(number);
        slot.phase = Phase::Queued;
        slot.ticket = ticket;
        slot.priority = priority;
        self.lanes.push(priority, Place { slot: number, ticket });
    }

    /// Moves a queued key to the end of a higher lane.
    fn raise(&mut self, number: u32, priority: i32) {
        self.place(number, priority);
        let slots = &self.slots;
        self.lanes.bury(self.queued, |place| is_queued(slots, place));
    }

    #[inline(always)]
    fn add_slot(&mut self, number: u32, priority: i32, added: Option<Moment>) -> Added {
        let slot = self.slot(number);
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
                slot.phase = Phase::Dirty;
                slot.priority = priority;
                slot.added = added;
                self.dirty += 1;
                Added::Dirty
            }
            Phase::Dirty => {
                slot.priority = slot.priority.max(priority);
                Added::Nothing
            }
        }
    }

    /// Since when a key is being processed; only with metrics.
    pub(super) fn started(&self, number: u32) -> Option<Moment> {
        self.slots[number as usize].started
    }

    /// Ends the processing of a key. If it is neither dirty, and so queued again, nor waiting for its time, it
    /// is forgotten, and comes back to be dropped outside the lock.
    #[inline]
    pub(super) fn done(&mut self, number: u32) -> Option<K> {
        let slot = self.slot(number);
        let (was, priority) = (slot.phase, slot.priority);
        slot.phase = Phase::Absent;
        slot.started = None;
        self.processing -= 1;
        if was == Phase::Dirty {
            self.dirty -= 1;
            self.queued += 1;
            self.place(number, priority);
            return None;
        }
        self.release(number)
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

    /// Queues every waiting key that is due at `now`. Says how many became ready to get.
    pub(super) fn promote(&mut self, now: Moment, mut count: impl FnMut(Added)) -> usize {
        let mut ready = 0;
        loop {
            let slots = &self.slots;
            let Some(timer) = self.timers.pop_due(now, |timer| is_waiting(slots, timer)) else {
                return ready;
            };
            let slot = self.slot(timer.slot);
            slot.due = None;
            slot.timer = 0;
            let priority = slot.due_priority;
            let added = self.add_slot(timer.slot, priority, Some(timer.due));
            ready += usize::from(added == Added::Queued);
            count(added);
        }
    }

    /// Ends all adds; keys that wait for their time are forgotten, and come back to be dropped outside the
    /// lock.
    pub(super) fn shut_down(&mut self) -> Vec<K> {
        self.shutting_down = true;
        let mut forgotten = Vec::new();
        for timer in self.timers.take_all() {
            if is_waiting(&self.slots, &timer) {
                let slot = self.slot(timer.slot);
                slot.due = None;
                slot.timer = 0;
                forgotten.extend(self.release(timer.slot));
            }
        }
        forgotten
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
    pub(super) fn add(&mut self, key: K, priority: i32, added: Option<Moment>) -> Added {
        if self.shutting_down {
            return Added::Nothing;
        }
        let number = self.find(key);
        self.add_slot(number, priority, added)
    }

    /// The key wants to be processed at `due`; a key that waits already keeps the earlier time. Says whether
    /// the earliest time of all has changed.
    pub(super) fn add_at(&mut self, key: K, priority: i32, due: Moment) -> bool {
        if self.shutting_down {
            return false;
        }
        let number = self.find(key);
        let ticket = self.ticket();
        let slot = self.slot(number);
        let before = slot.due;
        slot.due_priority = before.map_or(priority, |_| slot.due_priority.max(priority));
        if before.is_some_and(|before| before <= due) {
            return false;
        }
        slot.due = Some(due);
        slot.timer = ticket;
        let earliest = self.timers.push(Timer { due, ticket, slot: number });
        if before.is_some() {
            let slots = &self.slots;
            self.timers.bury(|timer| is_waiting(slots, timer));
        }
        earliest
    }
}

impl<K: Clone> State<K> {
    /// Takes the next key. `now` is what it is being processed since, for the metrics.
    #[inline(always)]
    pub(super) fn take(&mut self, now: Option<Moment>) -> Option<Taken<K>> {
        let slots = &self.slots;
        let number = self.lanes.pop(|place| is_queued(slots, place))?;
        self.queued -= 1;
        self.processing += 1;
        let slot = &mut self.slots[number as usize];
        slot.phase = Phase::Processing;
        slot.ticket = 0;
        slot.started = now;
        let queued = match (now, slot.added) {
            (Some(now), Some(added)) => now.nanos_since(added),
            _ => 0,
        };
        let key = slot.key.clone().expect("a queued slot has a key");
        Some(Taken { key, slot: number, priority: slot.priority, queued })
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
        }
    }
}

fn is_queued<K>(slots: &[Slot<K>], place: &Place) -> bool {
    slots.get(place.slot as usize).is_some_and(|slot| slot.ticket == place.ticket)
}

fn is_waiting<K>(slots: &[Slot<K>], timer: &Timer) -> bool {
    slots.get(timer.slot as usize).is_some_and(|slot| slot.timer == timer.ticket)
}
