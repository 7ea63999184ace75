//! Versions, reads and refusals fit real time.
//!
//! The server does version after version, each at some moment. Every operation bounds these moments: a write is done
//! between its start and its end; who has read a version read it after it was done, and if the read had to be the latest,
//! before the object's next version was done. So there is a bound from below and one from above for each version, and
//! the moments exist just if no version has a bound from above that is earlier than a bound from below of itself or of a
//! version before it. The two operations that gave these bounds are the explanation.
//!
//! A refusal (not found, already exists, conflict) names no version: it fits any stretch of versions in which the object
//! was so. It takes the latest stretch that can have begun by its end. That bounds fewest versions, so if any choice fits,
//! this one does. Which stretches can have begun depends on bounds that are later than its end, so on operations that
//! began later than it did. Whoever takes the refusals from the last start to the first chooses once for each.

use std::cmp::Reverse;

use super::Found;
use super::timeline::{Source, Timeline};
use crate::object::{Key, Moment, Version};
use crate::operation::{Call, Fresh, Operation, Outcome};
use crate::violation::Promise;
use crate::watch::{Event, From};

pub(super) fn check(timeline: &Timeline<'_>, found: &mut Found) {
    let mut bounds = Bounds::new(timeline);
    bounds.read_operations();
    bounds.read_unseen(found);
    bounds.read_watches();
    bounds.finish_latest();
    bounds.place_refusals(found);
    bounds.finish_earliest();
    bounds.check(found);
}

/// When something was done at the earliest or at the latest, and who says so.
type Bound = Option<(Moment, Source)>;

/// The first version that was done later than a moment, as far as bounds from below say.
#[derive(Default)]
struct Frontier {
    /// Falling moments, each with the first version that was not done before it. Later bounds on later versions say
    /// nothing new, so the versions fall, too.
    steps: Vec<(Moment, usize)>,
}

impl Frontier {
    fn new(not_before: &[Bound]) -> Self {
        let bounds = not_before.iter().enumerate();
        let mut bounds: Vec<(Moment, usize)> =
            bounds.filter_map(|(index, bound)| bound.map(|(moment, _)| (moment, index))).collect();
        bounds.sort_unstable_by_key(|(moment, index)| (Reverse(*moment), *index));
        let mut frontier = Self::default();
        bounds.into_iter().for_each(|(moment, index)| frontier.add(moment, index));
        frontier
    }

    /// One more bound, which is not later than those before it.
    fn add(&mut self, moment: Moment, index: usize) {
        if self.steps.last().is_none_or(|(_, first)| index < *first) {
            self.steps.push((moment, index));
        }
    }

    fn after(&self, moment: Moment) -> usize {
        let later = self.steps.partition_point(|(step, _)| *step > moment);
        later.checked_sub(1).map_or(usize::MAX, |last| self.steps[last].1)
    }
}

struct Bounds<'a> {
    timeline: &'a Timeline<'a>,
    /// For each version alone: it was done at this moment or later.
    not_before: Vec<Bound>,
    /// And at this one or earlier.
    not_after: Vec<Bound>,
    /// For each version, by what is known of it and of all before it.
    earliest: Vec<Bound>,
    /// By what is known of it and of all after it.
    latest: Vec<Moment>,
}

impl<'a> Bounds<'a> {
    fn new(timeline: &'a Timeline<'a>) -> Self {
        let none = || vec![None; timeline.points.len()];
        Self { timeline, not_before: none(), not_after: none(), earliest: none(), latest: Vec::new() }
    }

    /// The version (or whatever comes later) was not done before a moment.
    fn not_before(&mut self, index: usize, moment: Moment, source: Source) {
        let Some(bound) = self.not_before.get_mut(index) else { return };
        if bound.is_none_or(|(known, _)| moment > known) {
            *bound = Some((moment, source));
        }
    }

    fn not_after(&mut self, index: usize, moment: Moment, source: Source) {
        let bound = &mut self.not_after[index];
        if bound.is_none_or(|(known, _)| moment < known) {
            *bound = Some((moment, source));
        }
    }

    /// Everything up to a version was done by a moment.
    fn done(&mut self, version: Version, by: Moment, source: Source) {
        if let Some(last) = self.timeline.up_to(version).checked_sub(1) {
            self.not_after(last, by, source);
        }
    }

    fn read_operations(&mut self) {
        let timeline = self.timeline;
        for (index, point) in timeline.points.iter().enumerate() {
            let Some(writer) = point.writer else { continue };
            let operation = &timeline.history.operations[writer];
            self.not_before(index, operation.start, Source::Operation(writer));
            if !operation.outcome.is_unknown() {
                self.not_after(index, operation.end, Source::Operation(writer));
            }
        }
        for (number, operation) in timeline.history.operations.iter().enumerate() {
            let source = Source::Operation(number);
            match (&operation.call, &operation.outcome) {
                (Call::Get { fresh, .. }, Outcome::Found(item)) => {
                    self.done(item.version, operation.end, source);
                    let next =
                        timeline.index(item.version).and_then(|at| timeline.after(&timeline.points[at]));
                    if let (Fresh::Latest, Some(next)) = (fresh, next) {
                        let next = timeline.up_to(next.version) - 1;
                        self.not_before(next, operation.start, source);
                    }
                }
                (call, Outcome::Listed { version, .. }) => {
                    self.done(*version, operation.end, source);
                    if let Some((Fresh::Latest, _, None)) = call.listing() {
                        self.not_before(timeline.up_to(*version), operation.start, source);
                    }
                }
                _ => {}
            }
        }
    }

    /// Deletes whose version nobody saw lie between the last version of their object and the next one of its name.
    fn read_unseen(&mut self, found: &mut Found) {
        let timeline = self.timeline;
        for unseen in timeline.unseen.values() {
            let operation = &timeline.history.operations[unseen.deleter];
            let (Some(last), source) = (unseen.last, Source::Operation(unseen.deleter)) else { continue };
            self.not_after(last, operation.end, source);
            if let Some(next) = timeline.after(&timeline.points[last]) {
                self.not_before(timeline.up_to(next.version) - 1, operation.start, source);
            }
        }
        if timeline.unseen.is_empty() {
            return;
        }
        for operation in &timeline.history.operations {
            let Call::Get { fresh: Fresh::Latest, .. } = operation.call else { continue };
            let Outcome::Found(item) = &operation.outcome else { continue };
            let Some(unseen) = timeline.unseen.get(&item.state.uid) else { continue };
            let delete = &timeline.history.operations[unseen.deleter];
            if delete.end < operation.start {
                let evidence = [delete.to_string(), operation.to_string()];
                found.add(Promise::Linearizable, "an object is read that was deleted before", evidence);
            }
        }
    }

    fn read_watches(&mut self) {
        let timeline = self.timeline;
        for (number, watch) in timeline.history.watches.iter().enumerate() {
            for (at, (moment, event)) in watch.told.iter().enumerate() {
                let source = Source::Event { watch: number, at };
                self.done(event.version(), *moment, source);
                if let (From::Now, Event::InitialEnd(version)) = (watch.from, event) {
                    self.not_before(timeline.up_to(*version), watch.start, source);
                }
            }
        }
    }

    fn finish_latest(&mut self) {
        self.latest = vec![Moment::MAX; self.not_after.len()];
        let mut latest = Moment::MAX;
        for (slot, bound) in self.latest.iter_mut().zip(&self.not_after).rev() {
            latest = bound.map_or(latest, |(moment, _)| moment.min(latest));
            *slot = latest;
        }
    }

    fn finish_earliest(&mut self) {
        let mut earliest: Bound = None;
        for (slot, bound) in self.earliest.iter_mut().zip(&self.not_before) {
            if let Some((moment, _)) = bound
                && earliest.is_none_or(|(known, _)| *moment > known)
            {
                earliest = *bound;
            }
            *slot = earliest;
        }
    }

    fn place_refusals(&mut self, found: &mut Found) {
        let known = Frontier::new(&self.not_before);
        let mut chosen = Frontier::default();
        let mut refusals = refusals(self.timeline);
        refusals.sort_by_key(|refusal| Reverse(refusal.operation.start));
        for refusal in &refusals {
            let (start, end) = (refusal.operation.start, refusal.operation.end);
            let of_key = self.timeline.of_key.get(&refusal.key).map_or(&[][..], Vec::as_slice);
            let not_begun = known.after(end).min(chosen.after(end));
            let begun = of_key.partition_point(|index| *index < not_begun);
            match self.place(refusal, of_key, begun) {
                Some(next) => {
                    self.not_before(next, start, refusal.source);
                    chosen.add(start, next);
                }
                None => self.blame(refusal, of_key, begun, found),
            }
        }
    }

    /// The first version that was done after a refusal; none if the refusal fits nowhere. So many of the versions of its
    /// object can have begun by its end.
    fn place(&self, refusal: &Refusal<'_>, of_key: &[usize], begun: usize) -> Option<usize> {
        let mut count = begun;
        loop {
            let next = of_key.get(count).copied();
            if next.is_some_and(|next| self.latest[next] < refusal.operation.start) {
                return None;
            }
            let now = count.checked_sub(1).map(|last| of_key[last]);
            if refusal.fits(self.timeline, now, next) {
                return Some(next.unwrap_or(usize::MAX));
            }
            count = count.checked_sub(1)?;
        }
    }

    /// Tells of a refusal that fits nowhere.
    fn blame(&self, refusal: &Refusal<'_>, of_key: &[usize], begun: usize, found: &mut Found) {
        let tell = |at: Option<usize>| {
            let index = of_key.get(at?)?;
            Some(self.timeline.tell_point(&self.timeline.points[*index]))
        };
        let why = "the object was not so at any moment between the start and the end";
        let (before, after) = (tell(begun.checked_sub(1)), tell(Some(begun)));
        let evidence = before.into_iter().chain([refusal.operation.to_string()]).chain(after);
        found.add(Promise::Linearizable, why, evidence);
    }

    fn check(&self, found: &mut Found) {
        let mut told = None;
        for (index, point) in self.timeline.points.iter().enumerate() {
            let (Some((begun, late)), Some((ended, early))) = (self.earliest[index], self.not_after[index])
            else {
                continue;
            };
            // One late operation contradicts many: once is enough.
            if begun <= ended || told == Some(late) {
                continue;
            }
            told = Some(late);
            let why = format!(
                "version {} was done by {:.6} ms, but somebody who began at {:.6} ms was before it",
                point.version,
                ended as f64 / 1e6,
                begun as f64 / 1e6,
            );
            found.add(Promise::Linearizable, why, [self.timeline.tell(early), self.timeline.tell(late)]);
        }
    }
}

/// An answer that says how an object was, without a version.
struct Refusal<'a> {
    operation: &'a Operation,
    source: Source,
    key: Key,
    says: Says,
}

enum Says {
    Absent,
    Present,
    /// There, and not at this version.
    PresentNotAt(Version),
}

impl Refusal<'_> {
    /// Whether the object was so between two of its versions.
    fn fits(&self, timeline: &Timeline<'_>, now: Option<usize>, next: Option<usize>) -> bool {
        let now = now.map(|index| &timeline.points[index]);
        let is_there = now.is_some_and(|point| point.change.is_put());
        let version = now.map_or(0, |point| point.version);
        let fits = match self.says {
            Says::Absent => !is_there,
            Says::Present => is_there,
            Says::PresentNotAt(named) => is_there && version != named,
        };
        let until = next.map_or(Version::MAX, |next| timeline.points[next].version);
        fits || timeline.may_hide(self.key, version, until, self.operation.end)
    }
}

fn refusals<'a>(timeline: &Timeline<'a>) -> Vec<Refusal<'a>> {
    let mut refusals = Vec::new();
    for (number, operation) in timeline.history.operations.iter().enumerate() {
        let mut add = |key, says| {
            refusals.push(Refusal { operation, source: Source::Operation(number), key, says });
        };
        match (&operation.call, &operation.outcome) {
            // What ends gracefully may be there still.
            (Call::DeleteCollection { .. }, _) if timeline.history.resource.ends_gracefully() => {}
            // Whatever a delete of the collection has listed it has deleted, or somebody else was faster.
            (Call::DeleteCollection { .. }, Outcome::Listed { items, .. }) => {
                items.iter().for_each(|item| add(item.key, Says::Absent));
            }
            (call, outcome) => {
                if let (Some(key), Some(says)) = (call.key(), says(call, outcome)) {
                    add(key, says);
                }
            }
        }
    }
    refusals
}

fn says(call: &Call, outcome: &Outcome) -> Option<Says> {
    match (call, outcome) {
        // Any state may be an old one.
        (Call::Get { fresh, .. }, _) if *fresh != Fresh::Latest => None,
        (_, Outcome::NotFound) => Some(Says::Absent),
        (Call::Create { .. }, Outcome::AlreadyExists) => Some(Says::Present),
        (
            Call::Update { expect: Some(version), .. } | Call::Delete { expect: Some(version), .. },
            Outcome::Conflict,
        ) => Some(Says::PresentNotAt(*version)),
        _ => None,
    }
}
