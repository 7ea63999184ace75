//! The queue under its lock, and who is woken when.
//!
//! The rules, which the model checker tries (`tests/workqueue`):
//! - Each key that becomes ready wakes one waiting get, the one that has waited longest. A woken get that is
//!   dropped before it looked passes the call on.
//! - While keys wait for their time, or are held, one of the waiting gets is the *timekeeper*: it alone sleeps until
//!   the earliest time. Whoever stops being it wakes another get, which takes over.
//! - Wakers are called, and keys dropped, after the lock is released.

use std::collections::VecDeque;
use std::hash::Hash;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::time::Instant;

use super::holds::{Named, Until};
use super::moment::Moment;
use super::reasons::{Cause, Reason};
use super::state::{Added, Counts, Released, Standing, State, Taken, Unfinished};
use super::steps::Steps;
use super::sync::{Mutex, MutexGuard};

/// The state of a queue, shared by everybody who adds, gets and is done.
#[derive(Debug)]
pub(super) struct Shared<K> {
    locked: Mutex<Locked<K>>,
    /// What moments are counted from.
    origin: Instant,
    /// Whether to note when keys were added and taken.
    timed: bool,
    calls: Outside<K>,
}

/// Whom a queue calls after its lock is released.
struct Outside<K> {
    /// Told of every key that is held no more.
    on_release: Option<ReleaseFn<K>>,
    /// Wakes those who listen to the steps of keys.
    wake: Option<WakeFn>,
}

pub(super) type ReleaseFn<K> = Box<dyn Fn(Released<K>) + Send + Sync>;
pub(super) type WakeFn = Box<dyn Fn() + Send + Sync>;

impl<K> std::fmt::Debug for Outside<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Outside")
    }
}

#[derive(Debug)]
struct Locked<K> {
    state: State<K>,
    gets: Waiters,
    drains: Waiters,
    /// The get that sleeps until the earliest time.
    timekeeper: Option<u64>,
}

/// What a get found.
pub(super) enum Found<K> {
    Taken(Taken<K>),
    ShutDown,
    /// Nothing yet. The timekeeper is to look again at this time.
    Wait(Option<Instant>),
}

/// Who is to be called after the lock is released.
#[derive(Default)]
#[must_use]
struct Calls {
    first: Option<Waker>,
    more: Vec<Waker>,
}

impl Calls {
    #[inline]
    fn push(&mut self, waker: Option<Waker>) {
        match waker {
            Some(waker) if self.first.is_none() => self.first = Some(waker),
            Some(waker) => self.more.push(waker),
            None => {}
        }
    }

    #[inline]
    fn wake(self) {
        if let Some(first) = self.first {
            first.wake();
            self.more.into_iter().for_each(Waker::wake);
        }
    }
}

/// Those who wait, in the order in which they came. A number keeps its place when its owner was woken in vain.
#[derive(Debug, Default)]
struct Waiters {
    last: u64,
    wakers: VecDeque<(u64, Waker)>,
}

impl Waiters {
    fn find(&self, id: u64) -> Result<usize, usize> {
        self.wakers.binary_search_by_key(&id, |(id, _)| *id)
    }

    /// Notes that `id` waits, a new one if it has no number yet. Gives back the waker that this one replaces.
    fn wait(&mut self, id: &mut Option<u64>, waker: &Waker) -> (u64, Option<Waker>) {
        let id = *id.get_or_insert_with(|| {
            self.last += 1;
            self.last
        });
        match self.find(id) {
            Ok(at) if self.wakers[at].1.will_wake(waker) => (id, None),
            Ok(at) => (id, Some(std::mem::replace(&mut self.wakers[at].1, waker.clone()))),
            Err(at) => {
                self.wakers.insert(at, (id, waker.clone()));
                (id, None)
            }
        }
    }

    fn remove(&mut self, id: u64) -> Option<Waker> {
        let at = self.find(id).ok()?;
        self.wakers.remove(at).map(|(_, waker)| waker)
    }

    #[inline]
    fn next(&mut self) -> Option<Waker> {
        // Mostly nobody waits.
        if self.wakers.is_empty() { None } else { self.wakers.pop_front().map(|(_, waker)| waker) }
    }

    fn all(&mut self, calls: &mut Calls) {
        while let Some(waker) = self.next() {
            calls.push(Some(waker));
        }
    }
}

impl<K> Locked<K> {
    /// After the last keys were taken or done: tells those whose wait has ended.
    fn settle(&mut self, calls: &mut Calls) {
        if self.state.is_exhausted() {
            self.gets.all(calls);
        }
        if self.state.is_idle() {
            self.drains.all(calls);
        }
    }

    /// A get stops waiting. If nobody is the timekeeper then, and one is needed, somebody is called to be it.
    /// Gives back the waker of a get that had not been called.
    fn leave(&mut self, id: u64, calls: &mut Calls) -> Option<Waker> {
        let unused = self.gets.remove(id);
        if self.timekeeper == Some(id) {
            self.timekeeper = None;
        }
        if self.timekeeper.is_none() && self.state.next_due().is_some() {
            calls.push(self.gets.next());
        }
        unused
    }

    #[inline]
    fn promote(
        &mut self,
        now: Moment,
        calls: &mut Calls,
        released: &mut Vec<Released<K>>,
        count: impl FnMut(Added),
    ) {
        let ready = self.state.promote(now, released, count);
        self.call(ready, calls);
    }

    /// Calls a get for each key that became ready.
    fn call(&mut self, ready: usize, calls: &mut Calls) {
        for _ in 0..ready {
            calls.push(self.gets.next());
        }
    }

    /// The earliest time has changed: whoever keeps the time looks again.
    fn call_timekeeper(&mut self) -> Option<Waker> {
        match self.timekeeper {
            Some(timekeeper) => self.gets.remove(timekeeper),
            None => self.gets.next(),
        }
    }
}

impl<K> Shared<K> {
    /// `steps` are told under the lock, and `wake` is called after it.
    pub(super) fn new(
        timed: bool,
        on_release: Option<ReleaseFn<K>>,
        steps: Option<(Steps<K>, WakeFn)>,
    ) -> Shared<K> {
        let (gets, drains) = (Waiters::default(), Waiters::default());
        let (steps, wake) = steps.unzip();
        let locked = Mutex::new(Locked { state: State::new(steps), gets, drains, timekeeper: None });
        Shared { locked, origin: Instant::now(), timed, calls: Outside { on_release, wake } }
    }

    fn tell(&self, released: Vec<Released<K>>) {
        self.wake_listeners();
        if let Some(on_release) = &self.calls.on_release {
            released.into_iter().for_each(on_release);
        }
    }

    /// After the lock is released: those who listen to steps look whether there are any.
    #[inline]
    fn wake_listeners(&self) {
        if let Some(wake) = &self.calls.wake {
            wake();
        }
    }

    fn now(&self) -> Moment {
        Moment::new(self.origin, Instant::now())
    }

    #[inline]
    fn stamp(&self) -> Option<Moment> {
        self.timed.then(|| self.now())
    }

    /// How many keys are queued, once those that are due are counted in.
    pub(super) fn len(&self, count: impl FnMut(Added)) -> usize {
        let (mut calls, mut released) = (Calls::default(), Vec::new());
        let mut locked = self.locked.lock();
        if locked.state.next_due().is_some() {
            locked.promote(self.now(), &mut calls, &mut released, count);
        }
        let len = locked.state.queued();
        drop(locked);
        calls.wake();
        self.tell(released);
        len
    }

    /// A source has got to a version, or stays where it is: releases the keys that waited for it. Says whether keys
    /// wait for something to go from the source.
    pub(super) fn advance(&self, source: u32, version: Option<u128>, is_list: bool) -> bool {
        let mut awaits = false;
        self.release(|state, now, released| {
            let ready = version.map_or(0, |version| state.advance(source, (version, is_list), now, released));
            awaits = state.awaits(source);
            ready
        });
        awaits
    }

    /// Releases every key that is held.
    pub(super) fn release_all(&self) {
        self.release(State::release_all);
    }

    /// A source has some things no more: releases the keys that waited for that.
    pub(super) fn gone(&self, source: u32, things: &[Named]) {
        if !things.is_empty() {
            self.release(|state, now, released| {
                things.iter().map(|what| state.gone(source, what, now, released)).sum()
            });
        }
    }

    fn release(&self, release: impl FnOnce(&mut State<K>, Moment, &mut Vec<Released<K>>) -> usize) {
        let (mut calls, mut released) = (Calls::default(), Vec::new());
        let now = self.now();
        let mut locked = self.locked.lock();
        let ready = release(&mut locked.state, now, &mut released);
        locked.call(ready, &mut calls);
        drop(locked);
        calls.wake();
        self.tell(released);
    }

    /// Somebody may have begun to listen to the steps, or ceased.
    pub(super) fn heed(&self) {
        self.locked.lock().state.heed();
    }

    /// What keys wait for to go from a source.
    pub(super) fn awaited(&self, source: u32) -> Vec<Named> {
        self.locked.lock().state.awaited(source)
    }

    pub(super) fn depth(&self) -> usize {
        self.locked.lock().state.depth()
    }

    pub(super) fn counts(&self) -> Counts {
        self.locked.lock().state.counts()
    }

    pub(super) fn unfinished(&self) -> Unfinished {
        self.locked.lock().state.unfinished(self.now())
    }

    pub(super) fn is_shutting_down(&self) -> bool {
        self.locked.lock().state.is_shutting_down()
    }

    /// Ends the processing of a key. Says how long it took; only with metrics.
    #[inline]
    pub(super) fn done(&self, slot: u32) -> Option<Duration> {
        let stamp = self.stamp();
        let mut locked = self.locked.lock();
        let time = stamp.and_then(|now| locked.state.started(slot).map(|started| now.since(started)));
        let forgotten = locked.state.done(slot);
        if forgotten.is_none() || !locked.state.is_quiet() {
            settle_done(locked, forgotten.is_none());
            self.wake_listeners();
        } else {
            drop(locked);
        }
        drop(forgotten);
        time
    }

    /// A get is dropped without a key. If it was called in the meantime, the call is passed on.
    pub(super) fn abandon(&self, id: u64) {
        let mut calls = Calls::default();
        let mut locked = self.locked.lock();
        let unused = locked.leave(id, &mut calls);
        if unused.is_none() && locked.state.queued() > 0 {
            calls.push(locked.gets.next());
        }
        drop(locked);
        calls.wake();
        drop(unused);
    }

    pub(super) fn shut_down(&self, count: impl FnMut(Added)) {
        let (mut calls, mut released) = (Calls::default(), Vec::new());
        let mut locked = self.locked.lock();
        if locked.state.next_due().is_some() {
            locked.promote(self.now(), &mut calls, &mut released, count);
        }
        let forgotten = locked.state.shut_down();
        locked.settle(&mut calls);
        drop(locked);
        calls.wake();
        self.tell(released);
        drop(forgotten);
    }

    /// Whether nothing is queued or processing; if not, `cx` is woken when it is.
    pub(super) fn poll_idle(&self, id: &mut Option<u64>, cx: &mut Context<'_>) -> bool {
        let mut locked = self.locked.lock();
        let idle = locked.state.is_idle();
        let replaced = if idle { None } else { locked.drains.wait(id, cx.waker()).1 };
        drop(locked);
        drop(replaced);
        idle
    }

    pub(super) fn abandon_drain(&self, id: u64) {
        let waker = self.locked.lock().drains.remove(id);
        drop(waker);
    }
}

/// After a key was perhaps queued again, or while the queue shuts down: calls those who wait for that.
#[cold]
fn settle_done<K>(mut locked: MutexGuard<'_, Locked<K>>, may_be_queued: bool) {
    let mut calls = Calls::default();
    if may_be_queued && locked.state.queued() > 0 {
        calls.push(locked.gets.next());
    }
    if locked.state.is_shutting_down() {
        locked.settle(&mut calls);
    }
    drop(locked);
    calls.wake();
}

impl<K: Eq + Hash> Shared<K> {
    #[inline]
    pub(super) fn add(&self, key: K, priority: i32, cause: Cause) -> Added {
        let stamp = self.stamp();
        let mut locked = self.locked.lock();
        let added = locked.state.add(key, priority, stamp, cause);
        self.after_add(locked, added)
    }

    pub(super) fn add_because(&self, key: K, priority: i32, reason: Reason) -> Added {
        let stamp = self.stamp();
        let mut locked = self.locked.lock();
        let added = locked.state.add_because(key, priority, stamp, reason);
        self.after_add(locked, added)
    }

    #[inline(always)]
    fn after_add(&self, mut locked: MutexGuard<'_, Locked<K>>, added: Added) -> Added {
        let waker = if added == Added::Queued { locked.gets.next() } else { None };
        let is_quiet = locked.state.is_quiet();
        drop(locked);
        if let Some(waker) = waker {
            waker.wake();
        }
        if !is_quiet {
            self.wake_listeners();
        }
        added
    }

    pub(super) fn add_at(&self, key: K, priority: i32, due: Instant, why: (Reason, Duration)) {
        let due = Moment::new(self.origin, due);
        let mut locked = self.locked.lock();
        let earliest = locked.state.add_at(key, priority, due, why);
        let waker = if earliest { locked.call_timekeeper() } else { None };
        drop(locked);
        if let Some(waker) = waker {
            waker.wake();
        }
        self.wake_listeners();
    }
}

impl<K: Clone> Shared<K> {
    /// Some of the keys, as they are now.
    pub(super) fn standing(&self, most: usize) -> Vec<Standing<K>> {
        let now = self.now();
        self.locked.lock().state.standing(most, now)
    }

    /// Lets a key that is being processed be held when it is done, at most until `deadline`.
    pub(super) fn hold(&self, slot: u32, until: Vec<Until>, deadline: Instant) {
        let (now, deadline) = (self.now(), Moment::new(self.origin, deadline));
        let mut locked = self.locked.lock();
        let before = locked.state.next_due();
        let released = match locked.state.hold(slot, until, (now, deadline)) {
            true => None,
            false => Some(locked.state.pass(slot)),
        };
        let is_earliest = locked.state.next_due() != before;
        let waker = if is_earliest { locked.call_timekeeper() } else { None };
        drop(locked);
        if let Some(waker) = waker {
            waker.wake();
        }
        self.tell(released.into_iter().collect());
    }

    /// What happens most: takes a key that is there while no time is to be kept.
    #[inline]
    pub(super) fn try_get(&self) -> Option<Taken<K>> {
        let stamp = self.stamp();
        let mut locked = self.locked.lock();
        if locked.state.is_plain() { locked.state.take(stamp) } else { None }
    }

    /// Takes a key, or notes that `cx` waits for one.
    #[inline]
    pub(super) fn poll_get(
        &self,
        id: &mut Option<u64>,
        cx: &mut Context<'_>,
        count: impl FnMut(Added),
    ) -> Found<K> {
        let stamp = self.stamp();
        let mut locked = self.locked.lock();
        let (mut calls, mut released) = (Calls::default(), Vec::new());
        if locked.state.next_due().is_some() {
            locked.promote(stamp.unwrap_or_else(|| self.now()), &mut calls, &mut released, count);
        }
        let taken = locked.state.take(stamp);
        let (found, unused) = if taken.is_some() || locked.state.is_exhausted() {
            let unused = id.take().and_then(|id| locked.leave(id, &mut calls));
            if locked.state.is_shutting_down() {
                locked.settle(&mut calls);
            }
            (taken.map_or(Found::ShutDown, Found::Taken), unused)
        } else {
            let (id, replaced) = locked.gets.wait(id, cx.waker());
            let due = locked.state.next_due();
            let due = due.filter(|_| *locked.timekeeper.get_or_insert(id) == id);
            (Found::Wait(due.map(|due| due.instant(self.origin))), replaced)
        };
        drop(locked);
        calls.wake();
        self.tell(released);
        drop(unused);
        found
    }
}
