//! The guarantees of watch.

use std::collections::BTreeMap;

use super::Found;
use super::selection;
use super::snapshots::Page;
use super::timeline::{Timeline, tell_event};
use crate::object::{Item, Key, Version};
use crate::select::Select;
use crate::violation::Promise;
use crate::watch::{Ended, Event, From, Watch};

pub(super) fn check(timeline: &Timeline<'_>, found: &mut Found) {
    for watch in &timeline.history.watches {
        let reader = match watch.from {
            From::Version(version) => Some(Reader::new(timeline, watch, version, 0)),
            From::Now => initial(timeline, watch, found),
        };
        if let Some(reader) = reader {
            reader.read(found);
        }
        match &watch.ended {
            Ended::Stuck(version) if watch.told_to().is_none_or(|told| told < *version) => {
                let why =
                    format!("version {version} was committed, and the watch did not tell of it in time");
                found.add(Promise::Reliable, why, [watch.to_string()]);
            }
            Ended::Unreadable(text) => {
                found.add(Promise::Readable, format!("no server sends {text}"), [watch.to_string()]);
            }
            _ => {}
        }
    }
}

/// Checks what a watch tells of the beginning: it adds up to the state at its first bookmark.
fn initial<'a>(timeline: &'a Timeline<'a>, watch: &'a Watch, found: &mut Found) -> Option<Reader<'a>> {
    let mut state: BTreeMap<Key, &Item> = BTreeMap::new();
    for (at, (moment, event)) in watch.told.iter().enumerate() {
        match event {
            Event::Added(item) | Event::Modified(item) => drop(state.insert(item.key, item)),
            Event::Deleted(item) => drop(state.remove(&item.key)),
            Event::Bookmark(_) => {}
            Event::InitialEnd(version) => {
                let (after, to) = match watch.select {
                    Select::Name(key) => (key.0.checked_sub(1).map(Key), Some(key)),
                    _ => (None, None),
                };
                let page = Page { select: watch.select, version: *version, after, to, by: *moment };
                page.check(timeline, &state, |why, point| {
                    let evidence = [tell_event(watch, at), timeline.tell_point(point)];
                    found.add(Promise::Atomic, format!("the initial events do not add up: {why}"), evidence);
                });
                return Some(Reader::new(timeline, watch, *version, at + 1));
            }
        }
    }
    None
}

/// Follows the events of a watch, and the versions that it owes.
struct Reader<'a> {
    timeline: &'a Timeline<'a>,
    watch: &'a Watch,
    /// Where it began.
    from: Version,
    /// What was told so far.
    last: Version,
    /// The next version that it owes: an index of the points.
    owed: usize,
    /// The first event to read.
    first: usize,
}

impl<'a> Reader<'a> {
    fn new(timeline: &'a Timeline<'a>, watch: &'a Watch, from: Version, first: usize) -> Self {
        Self { timeline, watch, from, last: from, owed: timeline.up_to(from), first }
    }

    fn read(mut self, found: &mut Found) {
        for at in self.first..self.watch.told.len() {
            let event = &self.watch.told[at].1;
            let version = event.version();
            if self.is_out_of_order(event) {
                let (promise, why) = self.disorder(at);
                let before =
                    if at > self.first { tell_event(self.watch, at - 1) } else { self.watch.to_string() };
                found.add(promise, why, [before, tell_event(self.watch, at)]);
                continue;
            }
            self.check_missing(at, found);
            match event.item() {
                Some(item) if self.watch.select.is_left() => {
                    selection::check(self.timeline, self.watch, at, item, found);
                }
                Some(item) => self.check_type(at, event, item, found),
                None => {}
            }
            self.last = version;
            self.owed = self.timeline.up_to(version);
        }
    }

    fn is_out_of_order(&self, event: &Event) -> bool {
        match event.item() {
            Some(item) => item.version <= self.last,
            None => event.version() < self.last,
        }
    }

    fn disorder(&self, at: usize) -> (Promise, &'static str) {
        let event = &self.watch.told[at].1;
        let told = &self.watch.told[self.first..at];
        if told.iter().any(|(_, earlier)| earlier.item().is_some() && earlier == event) {
            (Promise::Unique, "an event comes twice")
        } else if event.version() <= self.from {
            (Promise::Resumable, "an event comes that was before the version of the watch")
        } else if matches!(told.last(), Some((_, Event::Bookmark(_)))) {
            (Promise::Bookmarkable, "an event comes after a bookmark that covers it")
        } else {
            (Promise::Ordered, "an event is older than the one before it")
        }
    }

    /// Every version between the event before and this one is a version that was not told.
    fn check_missing(&self, at: usize, found: &mut Found) {
        let event = &self.watch.told[at].1;
        let owed = self.timeline.points[self.owed..].iter();
        let missing = owed
            .take_while(|point| point.version <= event.version())
            .filter(|point| selection::owes(self.timeline, self.watch, point, at))
            .find(|point| event.item().is_none_or(|item| item.version != point.version));
        let Some(missing) = missing else { return };
        let (promise, why) = match event {
            Event::Bookmark(_) | Event::InitialEnd(_) => {
                (Promise::Bookmarkable, "a bookmark covers a version that was not told")
            }
            _ if at == self.first => {
                (Promise::Resumable, "what came after the version of the watch was not told")
            }
            _ => (Promise::Reliable, "a version was not told"),
        };
        let why = format!("{why}: {} of {}", missing.version, missing.key);
        found.add(promise, why, [self.timeline.tell_point(missing), tell_event(self.watch, at)]);
    }

    fn check_type(&self, at: usize, event: &Event, item: &Item, found: &mut Found) {
        let Some(point) = self.timeline.index(item.version).map(|index| &self.timeline.points[index]) else {
            return;
        };
        let before = self.timeline.before(point);
        let there = before.filter(|before| before.change.is_put());
        let why = match (event, there) {
            (Event::Added(_), Some(there)) if there.change.state().uid == item.state.uid => {
                "an object is added that was there"
            }
            // It was deleted unseen; this watch should have told of it, unless it began later.
            (Event::Added(_), Some(there)) if there.version >= self.from => "a delete was not told",
            (Event::Modified(_), Some(there)) if there.change.state().uid != item.state.uid => {
                "another object of this name is told as a change of the first"
            }
            (Event::Modified(_), None) if before.is_some() => "an object is modified that was not there",
            _ => return,
        };
        let seen = before.map(|before| self.timeline.tell_point(before));
        found.add(Promise::Atomic, why, seen.into_iter().chain([tell_event(self.watch, at)]));
    }
}
