//! A server that is right by construction: what the checker must never blame, and what its speed is measured on.

use std::collections::{BTreeMap, BinaryHeap};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::history::History;
use crate::object::{Item, Key, Mark, Moment, State, Version};
use crate::operation::{Call, Fresh, Operation, Outcome};
use crate::watch::{Ended, Event, From, Watch};

const CLIENTS: u16 = 8;
const KEYS: u16 = 8;
const WATCHES: u16 = 3;

/// The history of so many operations: each takes effect at one moment between its start and its end. Some answers get
/// lost, and some of those after the write was done.
#[must_use]
pub fn history(seed: u64, operations: usize) -> History {
    let mut model = Model {
        random: StdRng::seed_from_u64(seed),
        version: 100,
        objects: BTreeMap::new(),
        uids: 0,
        events: Vec::new(),
    };
    let mut done = Vec::with_capacity(operations);
    // What takes effect next, by its moment.
    let mut under_way: BinaryHeap<std::cmp::Reverse<(Moment, u16, Moment)>> = BinaryHeap::new();
    for client in 0..CLIENTS {
        under_way.push(std::cmp::Reverse((model.later(0), client, 0)));
    }
    let mut numbers = [0; CLIENTS as usize];
    while done.len() < operations {
        let Some(std::cmp::Reverse((moment, client, start))) = under_way.pop() else { break };
        numbers[usize::from(client)] += 1;
        let mark = Mark { client, number: numbers[usize::from(client)] };
        let end = model.later(moment);
        done.push(model.operation(mark, start, moment, end));
        let start = model.later(end);
        under_way.push(std::cmp::Reverse((model.later(start), client, start)));
    }
    let watches = (0..WATCHES).flat_map(|watcher| model.watches(watcher)).collect();
    History { operations: done, watches }
}

struct Model {
    random: StdRng,
    version: Version,
    objects: BTreeMap<Key, Item>,
    uids: u128,
    events: Vec<(Moment, Event)>,
}

impl Model {
    fn later(&mut self, moment: Moment) -> Moment {
        moment + self.random.random_range(1..1_000_000)
    }

    fn operation(&mut self, mark: Mark, start: Moment, moment: Moment, end: Moment) -> Operation {
        let key = Key(self.random.random_range(0..KEYS));
        let known = self.objects.get(&key).map(|item| item.version);
        // Half of those who name a version name an old one.
        let expect = Some(known.unwrap_or(self.version).saturating_sub(self.random.random_range(0..2)));
        let call = match self.random.random_range(0..10) {
            0 => Call::Create { key },
            1 => Call::Update { key, expect },
            2 => Call::Update { key, expect: None },
            3 => Call::MergePatch { key },
            4 => Call::JsonPatch { key },
            5 => Call::Delete { key, expect: None },
            6 => Call::Delete { key, expect },
            7 | 8 => Call::Get { key, fresh: Fresh::Latest },
            _ => Call::List { fresh: Fresh::Latest, limit: None, from: None },
        };
        let (is_lost, is_done) = (self.random.random_range(0..50) == 0, self.random.random_range(0..2) == 0);
        let outcome = if is_lost && !is_done { Outcome::Unknown } else { self.apply(mark, &call, moment) };
        let outcome = if is_lost { Outcome::Unknown } else { outcome };
        Operation { mark, call, start, end, outcome }
    }

    fn apply(&mut self, mark: Mark, call: &Call, moment: Moment) -> Outcome {
        let Some(key) = call.key() else {
            let items = self.objects.values().copied().collect();
            return Outcome::Listed { version: self.version, items, more: false };
        };
        let there = self.objects.get(&key).copied();
        match (call, there) {
            (Call::Get { .. }, Some(item)) => Outcome::Found(item),
            (Call::Create { .. }, None) => {
                self.uids += 1;
                let state = State { mark, previous: None, uid: self.uids };
                self.put(key, state, moment, Event::Added)
            }
            (Call::Create { .. }, Some(_)) => Outcome::AlreadyExists,
            (_, None) => Outcome::NotFound,
            (
                Call::Update { expect: Some(expect), .. } | Call::Delete { expect: Some(expect), .. },
                Some(item),
            ) if item.version != *expect => Outcome::Conflict,
            (Call::Delete { .. }, Some(item)) => {
                self.version += self.random.random_range(1..3);
                self.objects.remove(&key);
                let last = Item { version: self.version, ..item };
                self.events.push((moment, Event::Deleted(last)));
                Outcome::Deleted(item.state.uid)
            }
            (_, Some(item)) => {
                let previous = match call {
                    Call::JsonPatch { .. } => Some(item.state.mark),
                    Call::MergePatch { .. } => item.state.previous,
                    _ => None,
                };
                self.put(key, State { mark, previous, ..item.state }, moment, Event::Modified)
            }
        }
    }

    fn put(&mut self, key: Key, state: State, moment: Moment, event: fn(Item) -> Event) -> Outcome {
        self.version += self.random.random_range(1..3);
        let item = Item { key, version: self.version, state };
        self.objects.insert(key, item);
        self.events.push((moment, event(item)));
        Outcome::Written(item)
    }

    /// The events again, cut into watches that begin where the one before stopped.
    fn watches(&mut self, watcher: u16) -> Vec<Watch> {
        let (mut watches, mut at, mut number, mut from) = (Vec::new(), 0, 0, 0);
        while at < self.events.len() {
            number += 1;
            let count = self.random.random_range(1..400).min(self.events.len() - at);
            let mut moment = 0;
            let told: Vec<_> = self.events[at..at + count]
                .iter()
                .map(|(committed, event)| {
                    moment = moment.max(*committed) + 1;
                    (moment, *event)
                })
                .collect();
            let start = told[0].0 - 1;
            let version = told.last().map_or(from, |(_, event)| event.version());
            watches.push(Watch {
                watcher,
                number,
                key: None,
                from: From::Version(from),
                start,
                told,
                ended: Ended::Closed,
            });
            (at, from) = (at + count, version);
        }
        watches
    }
}
