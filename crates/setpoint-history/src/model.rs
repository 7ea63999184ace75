//! A server that is right by construction: what the checker must never blame, and what its speed is measured on.

use std::collections::{BTreeMap, BinaryHeap};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::history::History;
use crate::object::{Fields, Item, Key, Mark, Moment, State, Version};
use crate::operation::{Call, Fresh, Operation, Outcome};
use crate::resource::Resource;
use crate::select::Select;
use crate::watch::{Ended, Event, From, Watch};

const CLIENTS: u16 = 8;
const KEYS: u16 = 8;
const WATCHES: [Select; 6] = [
    Select::All,
    Select::All,
    Select::All,
    Select::Team(1),
    Select::Running(true),
    Select::NodeAndTeam(None, 0),
];

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
    let watches = (0..).zip(WATCHES).flat_map(|(watcher, select)| model.watches(watcher, select)).collect();
    History { resource: Resource::ConfigMaps, operations: done, watches }
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
        let call = match self.random.random_range(0..14) {
            0 => Call::Create { key },
            1 => Call::Update { key, expect },
            2 => Call::Update { key, expect: None },
            3 => Call::MergePatch { key },
            4 => Call::JsonPatch { key },
            5 => Call::Delete { key, expect: None },
            6 => Call::Delete { key, expect },
            7 => Call::StrategicPatch { key },
            8 => Call::Apply { key },
            9 => Call::StatusPatch { key },
            10 => Call::DeleteCollection { limit: Some(self.random.random_range(1..3)) },
            11 | 12 => Call::Get { key, fresh: Fresh::Latest },
            _ => Call::List { fresh: Fresh::Latest, limit: None, from: None },
        };
        let (is_lost, is_done) = (self.random.random_range(0..50) == 0, self.random.random_range(0..2) == 0);
        let outcome = if is_lost && !is_done { Outcome::Unknown } else { self.apply(mark, &call, moment) };
        let outcome = if is_lost { Outcome::Unknown } else { outcome };
        Operation { mark, call, start, end, outcome }
    }

    fn apply(&mut self, mark: Mark, call: &Call, moment: Moment) -> Outcome {
        let Some(key) = call.key() else { return self.list(call, moment) };
        let there = self.objects.get(&key).copied();
        match (call, there) {
            (Call::Get { .. }, Some(item)) => Outcome::Found(item),
            (Call::Create { .. } | Call::Apply { .. }, None) => {
                self.uids += 1;
                let node = matches!(call, Call::Create { .. }).then(|| mark.node()).flatten();
                let fields = Fields { node, ..Fields::default() };
                let state = State { mark, previous: None, uid: self.uids, fields };
                self.put(key, state, moment, Event::Added)
            }
            (Call::Create { .. }, Some(_)) => Outcome::AlreadyExists,
            (_, None) => Outcome::NotFound,
            (
                Call::Update { expect: Some(expect), .. } | Call::Delete { expect: Some(expect), .. },
                Some(item),
            ) if item.version != *expect => Outcome::Conflict,
            (Call::Delete { .. }, Some(item)) => self.delete(item, moment),
            (_, Some(item)) => {
                let previous = match call {
                    Call::JsonPatch { .. } => Some(item.state.mark),
                    Call::Update { .. } => None,
                    _ => item.state.previous,
                };
                let mut fields = item.state.fields;
                if matches!(call, Call::StatusPatch { .. }) {
                    fields.is_running = mark.is_running();
                }
                self.put(key, State { mark, previous, fields, ..item.state }, moment, Event::Modified)
            }
        }
    }

    fn delete(&mut self, item: Item, moment: Moment) -> Outcome {
        self.version += self.random.random_range(1..3);
        self.objects.remove(&item.key);
        let last = Item { version: self.version, ..item };
        self.events.push((moment, Event::Deleted(last)));
        Outcome::Deleted(item.state.uid)
    }

    /// The objects as they are, which a delete of the collection then deletes.
    fn list(&mut self, call: &Call, moment: Moment) -> Outcome {
        let (version, all) = (self.version, self.objects.len());
        let most = match call {
            Call::DeleteCollection { limit: Some(limit) } => *limit as usize,
            _ => all,
        };
        let items: Vec<Item> = self.objects.values().copied().take(most).collect();
        if matches!(call, Call::DeleteCollection { .. }) {
            for item in &items {
                self.delete(*item, moment);
            }
        }
        Outcome::Listed { version, more: items.len() < all, items }
    }

    fn put(&mut self, key: Key, state: State, moment: Moment, event: fn(Item) -> Event) -> Outcome {
        self.version += self.random.random_range(1..3);
        let item = Item { key, version: self.version, state };
        self.objects.insert(key, item);
        self.events.push((moment, event(item)));
        Outcome::Written(item)
    }

    /// The events as a watch with this selector has them.
    fn selected(&self, select: Select) -> Vec<(Moment, Event)> {
        let mut there: BTreeMap<Key, Item> = BTreeMap::new();
        let mut selected = Vec::new();
        for (moment, event) in &self.events {
            let Some(item) = event.item() else { continue };
            let takes = |item: &Item| select.takes(item.key, &item.state);
            let is_deleted = matches!(event, Event::Deleted(_));
            let before = match is_deleted {
                true => there.remove(&item.key),
                false => there.insert(item.key, *item),
            };
            let told = match (before.filter(takes), !is_deleted && takes(item)) {
                (None, true) => Event::Added(*item),
                (Some(_), true) => Event::Modified(*item),
                // The state that was taken last, at the version at which it left.
                (Some(before), false) => Event::Deleted(Item { version: item.version, ..before }),
                (None, false) => continue,
            };
            selected.push((*moment, told));
        }
        selected
    }

    /// The events again, cut into watches that begin where the one before stopped.
    fn watches(&mut self, watcher: u16, select: Select) -> Vec<Watch> {
        let events = self.selected(select);
        let (mut watches, mut at, mut number, mut from) = (Vec::new(), 0, 0, 0);
        while at < events.len() {
            number += 1;
            let count = self.random.random_range(1..400).min(events.len() - at);
            let mut moment = 0;
            let told: Vec<_> = events[at..at + count]
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
                select,
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
