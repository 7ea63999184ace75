//! Which version is which state of which object, and which write made it.

use std::collections::{BTreeMap, BTreeSet};

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::Found;
use crate::history::History;
use crate::object::{Fields, Item, Key, Mark, Moment, State, Version};
use crate::operation::{Call, Operation, Outcome};
use crate::select::Select;
use crate::violation::Promise;
use crate::watch::{Ended, Event, From, Watch};

/// Where something was said: an operation, or an event of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Operation(usize),
    Event { watch: usize, at: usize },
}

/// What a version did to its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Put(State),
    /// The last state.
    Delete(State),
}

impl Change {
    pub(super) fn state(&self) -> &State {
        match self {
            Change::Put(state) | Change::Delete(state) => state,
        }
    }

    pub(super) fn is_put(&self) -> bool {
        matches!(self, Change::Put(_))
    }
}

/// One version of one object.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) version: Version,
    pub(super) key: Key,
    pub(super) change: Change,
    /// Who has seen it first, as far as we read.
    pub(super) source: Source,
    /// The operation that made it, if it is known.
    pub(super) writer: Option<usize>,
    /// Its place among the versions of its object.
    pub(super) place: usize,
}

/// An answered delete at a version that nobody has seen.
pub(super) struct Unseen {
    /// The operation.
    pub(super) deleter: usize,
    /// The last version of the object that somebody has seen.
    pub(super) last: Option<usize>,
}

/// A delete of the collection, or of an object that ends gracefully, and what it may have deleted.
struct Sweep<'a> {
    operation: &'a Operation,
    /// None if nobody knows.
    keys: Option<BTreeSet<Key>>,
}

impl Sweep<'_> {
    fn has(&self, key: Key) -> bool {
        self.keys.as_ref().is_none_or(|keys| keys.contains(&key))
    }
}

fn sweeps(history: &History) -> Vec<Sweep<'_>> {
    let is_graceful = history.resource.ends_gracefully();
    let sweeps = history.operations.iter().filter(|operation| match operation.call {
        Call::DeleteCollection { .. } => true,
        Call::Delete { .. } => is_graceful,
        _ => false,
    });
    sweeps
        .filter_map(|operation| match &operation.outcome {
            Outcome::Deleted(_) | Outcome::Conflict | Outcome::Unknown | Outcome::Failed(_)
                if operation.call.key().is_some() =>
            {
                Some(Sweep { operation, keys: Some(operation.call.key().into_iter().collect()) })
            }
            Outcome::Listed { items, .. } => {
                Some(Sweep { operation, keys: Some(items.iter().map(|item| item.key).collect()) })
            }
            outcome if outcome.is_unknown() => Some(Sweep { operation, keys: None }),
            _ => None,
        })
        .collect()
}

/// All versions that anybody has seen, in order.
pub(super) struct Timeline<'a> {
    pub(super) history: &'a History,
    pub(super) points: Vec<Point>,
    /// The versions of each object: indices of `points`.
    pub(super) of_key: BTreeMap<Key, Vec<usize>>,
    /// The earliest start among operations on an object that may have been done though no version shows it.
    loose: BTreeMap<Key, Moment>,
    /// Objects whose delete was answered, at a version that nobody has seen.
    pub(super) unseen: HashMap<u128, Unseen, FixedState>,
    /// Stretches of versions in which nothing can be unseen, because a watch told of all: after the first, up to the second.
    covered: Vec<(Version, Version)>,
    done_after_all: usize,
}

impl<'a> Timeline<'a> {
    pub(super) fn build(history: &'a History, found: &mut Found) -> Timeline<'a> {
        let points = points(history, found);
        let mut timeline = Timeline {
            history,
            points,
            of_key: BTreeMap::new(),
            loose: BTreeMap::new(),
            unseen: HashMap::default(),
            covered: covered(history),
            done_after_all: 0,
        };
        for (index, point) in timeline.points.iter_mut().enumerate() {
            let of_key = timeline.of_key.entry(point.key).or_default();
            point.place = of_key.len();
            of_key.push(index);
        }
        timeline.find_writers(found);
        timeline.find_deleters(found);
        timeline
    }

    /// Which write made which version: each mark is in one version, and its write was not refused.
    fn find_writers(&mut self, found: &mut Found) {
        let operations = &self.history.operations;
        let mut writes: HashMap<Mark, (usize, Option<usize>), FixedState> = HashMap::default();
        for (index, operation) in operations.iter().enumerate().filter(|(_, o)| o.call.writes()) {
            writes.insert(operation.mark, (index, None));
        }
        for index in 0..self.points.len() {
            let point = &self.points[index];
            let Change::Put(state) = point.change else { continue };
            if self.is_marking(point) {
                continue;
            }
            let Some((writer, at)) = writes.get_mut(&state.mark) else {
                found.add(Promise::Once, "nobody has written this", [self.tell(point.source)]);
                continue;
            };
            let operation = &operations[*writer];
            if let Some(first) = at {
                let why = format!(
                    "a write is done twice, at {} and {}",
                    self.points[*first].version, point.version
                );
                let evidence =
                    [operation.to_string(), self.tell(self.points[*first].source), self.tell(point.source)];
                found.add(Promise::Once, why, evidence);
                continue;
            }
            *at = Some(index);
            let why = match &operation.outcome {
                Outcome::Written(item) if item.version == point.version => None,
                outcome if outcome.is_unknown() => {
                    self.done_after_all += 1;
                    None
                }
                Outcome::Written(_) => Some("a write is done at another version than it was answered with"),
                _ => Some("a write that was refused is done"),
            };
            let why =
                why.or((operation.call.key() != Some(point.key)).then_some("a write changes another object"));
            if let Some(why) = why {
                found.add(Promise::Once, why, [operation.to_string(), self.tell(point.source)]);
            }
            self.points[index].writer = Some(*writer);
        }
        for (writer, at) in writes.into_values() {
            let operation = &operations[writer];
            if at.is_none() && operation.outcome.is_unknown() {
                self.loosen(operation);
            }
        }
    }

    /// Whether all that a version did is to mark its object as deleted. Which delete it was nobody knows.
    fn is_marking(&self, point: &Point) -> bool {
        let state = point.change.state();
        let alive = State { fields: Fields { is_leaving: false, ..state.fields }, ..*state };
        state.fields.is_leaving
            && self.before(point).is_some_and(|before| before.change == Change::Put(alive))
    }

    /// Which delete made which version: an object is deleted once, by somebody.
    fn find_deleters(&mut self, found: &mut Found) {
        let operations = &self.history.operations;
        let mut answered: HashMap<u128, usize, FixedState> = HashMap::default();
        let mut unknown: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
        let deletes = operations.iter().enumerate().filter(|(_, o)| matches!(o.call, Call::Delete { .. }));
        for (index, operation) in deletes {
            match operation.outcome {
                // They are among the sweeps.
                _ if self.history.resource.ends_gracefully() => {}
                Outcome::Deleted(uid) => {
                    if let Some(first) = answered.insert(uid, index) {
                        let evidence = [operations[first].to_string(), operation.to_string()];
                        found.add(Promise::Once, "one object is deleted twice", evidence);
                    }
                }
                ref outcome if outcome.is_unknown() => {
                    let key = operation.call.key().unwrap_or(Key(0));
                    unknown.entry(key).or_default().push(index);
                }
                _ => {}
            }
        }
        let sweeps = sweeps(self.history);
        // The earliest first: whichever deletes it, none can have done so before it began.
        for candidates in unknown.values_mut() {
            candidates.sort_by_key(|index| std::cmp::Reverse(operations[*index].start));
        }
        for index in 0..self.points.len() {
            let point = &self.points[index];
            let Change::Delete(state) = point.change else { continue };
            let before = self.before(point).map(|before| before.version);
            let candidates = unknown.entry(point.key).or_default();
            let fits = |candidate: &usize| match operations[*candidate].call {
                Call::Delete { expect: Some(expect), .. } => before == Some(expect),
                _ => true,
            };
            let mut writer = answered.remove(&state.uid);
            let is_swept = writer.is_none() && sweeps.iter().any(|sweep| self.may_sweep(sweep, point));
            if writer.is_none() && !is_swept {
                let at = candidates.iter().rposition(fits);
                self.done_after_all += usize::from(at.is_some());
                writer = at.map(|at| candidates.remove(at));
            }
            if writer.is_none() && !is_swept {
                found.add(Promise::Once, "nobody has deleted this", [self.tell(point.source)]);
            }
            self.points[index].writer = writer;
        }
        for index in unknown.into_values().flatten() {
            self.loosen(&operations[index]);
        }
        for sweep in sweeps {
            let keys: Vec<Key> = self.of_key.keys().copied().filter(|key| sweep.has(*key)).collect();
            keys.into_iter().for_each(|key| self.loosen_key(key, sweep.operation.start));
        }
        let mut last: HashMap<u128, usize, FixedState> = HashMap::default();
        for (index, point) in self.points.iter().enumerate() {
            last.insert(point.change.state().uid, index);
        }
        for (uid, deleter) in answered {
            let shown = last.get(&uid).map(|index| &self.points[*index]);
            let next = shown.and_then(|point| self.after(point));
            if let (Some(shown), Some(next)) = (shown, next)
                && self.is_covered(shown.version, next.version)
            {
                let why = "a delete that was answered is not among the events";
                let evidence =
                    [operations[deleter].to_string(), self.tell(shown.source), self.tell(next.source)];
                found.add(Promise::Reliable, why, evidence);
            }
            let last = last.get(&uid).copied();
            self.unseen.insert(uid, Unseen { deleter, last });
        }
    }

    fn loosen(&mut self, operation: &Operation) {
        let Some(key) = operation.call.key() else { return };
        self.loosen_key(key, operation.start);
    }

    fn loosen_key(&mut self, key: Key, start: Moment) {
        let earliest = self.loose.entry(key).or_insert(start);
        *earliest = start.min(*earliest);
    }

    /// Whether a delete of the collection can have deleted this: it was under way after the object was last written, and
    /// before the delete was told.
    fn may_sweep(&self, sweep: &Sweep<'_>, point: &Point) -> bool {
        let last = self.before(point).and_then(|before| before.writer);
        let written = last.map_or(0, |writer| self.history.operations[writer].start);
        let told = match point.source {
            Source::Event { watch, at } => self.history.watches[watch].told[at].0,
            Source::Operation(operation) => self.history.operations[operation].end,
        };
        let operation = sweep.operation;
        let may_linger = operation.outcome.is_unknown() || self.history.resource.ends_gracefully();
        let is_over = operation.end < written && !may_linger;
        sweep.has(point.key) && operation.start < told && !is_over
    }

    pub(super) fn done_after_all(&self) -> usize {
        self.done_after_all
    }

    /// The version of the same object before a point.
    pub(super) fn before(&self, point: &Point) -> Option<&Point> {
        let place = point.place.checked_sub(1)?;
        Some(&self.points[self.of_key[&point.key][place]])
    }

    /// The version of the same object after a point.
    pub(super) fn after(&self, point: &Point) -> Option<&Point> {
        self.of_key[&point.key].get(point.place + 1).map(|index| &self.points[*index])
    }

    /// How many points are at this version or before it.
    pub(super) fn up_to(&self, version: Version) -> usize {
        self.points.partition_point(|point| point.version <= version)
    }

    /// The last version of an object at this version or before it.
    pub(super) fn at(&self, key: Key, version: Version) -> Option<&Point> {
        let of_key = self.of_key.get(&key)?;
        let count = of_key.partition_point(|index| self.points[*index].version <= version);
        Some(&self.points[of_key[count.checked_sub(1)?]])
    }

    /// The point at just this version.
    pub(super) fn index(&self, version: Version) -> Option<usize> {
        self.points.binary_search_by_key(&version, |point| point.version).ok()
    }

    /// Whether something may have happened to an object between two versions, and by a moment, that nobody has seen.
    pub(super) fn may_hide(&self, key: Key, after: Version, to: Version, by: Moment) -> bool {
        let is_loose = self.loose.get(&key).is_some_and(|start| *start < by);
        let is_deleted =
            || self.at(key, after).is_some_and(|point| self.unseen.contains_key(&point.change.state().uid));
        (is_loose || is_deleted()) && !self.is_covered(after, to)
    }

    fn is_covered(&self, after: Version, to: Version) -> bool {
        let count = self.covered.partition_point(|(from, _)| *from <= after);
        count.checked_sub(1).is_some_and(|index| self.covered[index].1 >= to)
    }

    /// The words of a source.
    pub(super) fn tell(&self, source: Source) -> String {
        match source {
            Source::Operation(index) => self.history.operations[index].to_string(),
            Source::Event { watch, at } => tell_event(&self.history.watches[watch], at),
        }
    }

    /// The words of what made a point, or of who saw it.
    pub(super) fn tell_point(&self, point: &Point) -> String {
        self.tell(point.writer.map_or(point.source, Source::Operation))
    }
}

/// The words of an event.
pub(super) fn tell_event(watch: &Watch, at: usize) -> String {
    let (moment, event) = &watch.told[at];
    format!("{watch}; event {at}, at {:.6} ms: {event}", *moment as f64 / 1e6)
}

/// Every version that somebody has seen. All who have seen it must agree.
fn points(history: &History, found: &mut Found) -> Vec<Point> {
    let mut seen: HashMap<Version, Point, FixedState> = HashMap::default();
    let mut differences = Vec::new();
    let mut add = |item: &Item, deleted: bool, source: Source| {
        let change = if deleted { Change::Delete(item.state) } else { Change::Put(item.state) };
        let point = Point { version: item.version, key: item.key, change, source, writer: None, place: 0 };
        let known = seen.entry(item.version).or_insert_with(|| point.clone());
        if (known.key, known.change) != (point.key, point.change) {
            differences.push((known.source, source, item.version));
        }
    };
    // Those who wrote come first, so that explanations name the write.
    for (index, operation) in history.operations.iter().enumerate() {
        if let Outcome::Written(item) = &operation.outcome {
            add(item, false, Source::Operation(index));
        }
    }
    for (watch, told) in history.watches.iter().enumerate() {
        for (at, (_, event)) in told.told.iter().enumerate() {
            let is_delete = matches!(event, Event::Deleted(_));
            // Where objects enter and leave it may mean either: `selection.rs` judges it by what others have seen.
            if let Some(item) = event.item().filter(|_| !is_delete || !told.select.is_left()) {
                add(item, is_delete, Source::Event { watch, at });
            }
        }
    }
    for (index, operation) in history.operations.iter().enumerate() {
        let items = match &operation.outcome {
            Outcome::Found(item) => std::slice::from_ref(item),
            Outcome::Listed { items, .. } => items,
            _ => continue,
        };
        items.iter().for_each(|item| add(item, false, Source::Operation(index)));
    }
    let tell = |source: Source| match source {
        Source::Operation(index) => history.operations[index].to_string(),
        Source::Event { watch, at } => tell_event(&history.watches[watch], at),
    };
    for (one, other, version) in differences {
        found.add(Promise::OneState, format!("version {version} is two states"), [tell(one), tell(other)]);
    }
    let mut points: Vec<_> = seen.into_values().collect();
    points.sort_unstable_by_key(|point| point.version);
    points
}

/// Where nothing can be unseen, if watches are reliable, which is checked on its own.
fn covered(history: &History) -> Vec<(Version, Version)> {
    let whole = history.watches.iter().filter(|watch| watch.select == Select::All);
    let mut covered: Vec<(Version, Version)> = whole
        .filter(|watch| !matches!(watch.ended, Ended::Unreadable(_)))
        .filter_map(|watch| {
            let begins = match watch.from {
                From::Version(version) => version,
                From::Now => watch.told.iter().find_map(|(_, event)| match event {
                    Event::InitialEnd(version) => Some(*version),
                    _ => None,
                })?,
            };
            Some((begins, watch.told_to()?)).filter(|(begins, ends)| begins < ends)
        })
        .collect();
    covered.sort_unstable();
    let mut merged: Vec<(Version, Version)> = Vec::new();
    for (begins, ends) in covered {
        match merged.last_mut() {
            Some(last) if begins <= last.1 => last.1 = last.1.max(ends),
            _ => merged.push((begins, ends)),
        }
    }
    merged
}
