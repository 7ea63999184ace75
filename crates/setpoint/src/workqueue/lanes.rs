//! The order of keys that are ready: a lane a priority, first in first out in each.

use std::collections::VecDeque;

/// Of as many gets that could choose between lanes, one takes the oldest key whatever its priority.
pub(super) const QUOTA: u32 = 10;
/// How many lanes may stand empty before they are cleared away.
const SPARE_LANES: usize = 8;
/// Deques larger than this are given back when they run empty.
const SPARE_PLACES: usize = 4096;

/// A place in the order. The ticket says how old it is, and no two places have the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) slot: u32,
    pub(super) ticket: u64,
}

#[derive(Debug)]
struct Lane {
    priority: i32,
    places: VecDeque<Place>,
}

/// Places by priority. A place whose key was raised to another lane stays behind as a dead one: who pops says
/// which places live.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// Highest priority first.
    lanes: Vec<Lane>,
    /// Gets that could choose.
    choices: u32,
    dead: usize,
}

impl Lanes {
    #[inline]
    pub(super) fn push(&mut self, priority: i32, place: Place) {
        match self.lanes.iter_mut().find(|lane| lane.priority == priority) {
            Some(lane) => lane.places.push_back(place),
            None => self.open(priority).places.push_back(place),
        }
    }

    #[cold]
    fn open(&mut self, priority: i32) -> &mut Lane {
        if self.lanes.len() >= SPARE_LANES {
            self.lanes.retain(|lane| !lane.places.is_empty());
        }
        let at = self.lanes.partition_point(|lane| lane.priority > priority);
        self.lanes.insert(at, Lane { priority, places: VecDeque::new() });
        &mut self.lanes[at]
    }

    /// Takes the next place: from the highest lane, or, each [`QUOTA`]th time that there is a choice, the
    /// oldest.
    #[inline]
    pub(super) fn pop(&mut self, lives: impl Fn(&Place) -> bool) -> Option<u32> {
        if self.dead > 0 {
            self.drop_dead_heads(&lives);
        }
        let first = self.lanes.iter().position(|lane| !lane.places.is_empty())?;
        let has_choice = self.lanes[first + 1..].iter().any(|lane| !lane.places.is_empty());
        let chosen = if has_choice { self.choose(first) } else { first };
        let places = &mut self.lanes[chosen].places;
        let place = places.pop_front()?;
        if places.is_empty() && places.capacity() > SPARE_PLACES {
            *places = VecDeque::new();
        }
        Some(place.slot)
    }

    fn choose(&mut self, first: usize) -> usize {
        self.choices = (self.choices + 1) % QUOTA;
        if self.choices != 0 {
            return first;
        }
        let heads = self.lanes.iter().enumerate();
        let heads = heads.filter_map(|(at, lane)| lane.places.front().map(|place| (place.ticket, at)));
        heads.min().map_or(first, |(_, at)| at)
    }

    #[cold]
    fn drop_dead_heads(&mut self, lives: impl Fn(&Place) -> bool) {
        for lane in &mut self.lanes {
            while lane.places.front().is_some_and(|place| !lives(place)) {
                lane.places.pop_front();
                self.dead -= 1;
            }
        }
    }

    /// Notes that one more place is dead; when the dead outnumber the `alive`, clears them away.
    pub(super) fn bury(&mut self, alive: usize, lives: impl Fn(&Place) -> bool) {
        self.dead += 1;
        if self.dead > alive + 64 {
            self.lanes.iter_mut().for_each(|lane| lane.places.retain(&lives));
            self.dead = 0;
        }
    }
}
