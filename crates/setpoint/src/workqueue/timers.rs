//! Keys that wait for their time: a heap, and no task.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::moment::Moment;

/// What is due when, the earliest first; of one moment, the first that was set.
///
/// A timer that was replaced by an earlier one stays behind as a dead one: who pops says which tickets live.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<Timer>>,
    dead: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Timer {
    pub(super) due: Moment,
    pub(super) ticket: u64,
    pub(super) slot: u32,
}

impl Timers {
    /// Sets a timer; says whether it is now the earliest.
    pub(super) fn push(&mut self, timer: Timer) -> bool {
        let earliest = self.heap.peek().is_none_or(|first| timer < first.0);
        self.heap.push(Reverse(timer));
        earliest
    }

    /// How many timers live.
    pub(super) fn len(&self) -> usize {
        self.heap.len() - self.dead
    }

    /// When the earliest timer is due.
    #[inline]
    pub(super) fn next_due(&self) -> Option<Moment> {
        self.heap.peek().map(|first| first.0.due)
    }

    /// Takes the earliest timer that is due at `now`, dead ones left out.
    pub(super) fn pop_due(&mut self, now: Moment, lives: impl Fn(&Timer) -> bool) -> Option<Timer> {
        while self.next_due()? <= now {
            let Reverse(timer) = self.heap.pop()?;
            if lives(&timer) {
                return Some(timer);
            }
            self.dead -= 1;
        }
        None
    }

    /// Notes that one more timer is dead; when the dead outnumber the living, clears them away.
    pub(super) fn bury(&mut self, lives: impl Fn(&Timer) -> bool) {
        self.dead += 1;
        if self.dead * 2 > self.heap.len() + 64 {
            self.heap.retain(|timer| lives(&timer.0));
            self.dead = 0;
        }
    }

    /// Takes all timers, the dead ones too, in no order.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Timer> + use<> {
        self.dead = 0;
        std::mem::take(&mut self.heap).into_iter().map(|timer| timer.0)
    }
}
