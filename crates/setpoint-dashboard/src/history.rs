//! The last facts, for pages that open later, come back, or are slow.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use setpoint::Fact;
use setpoint::facts::LoopEvent;

use crate::subject::{self, Filter};

/// The last facts, up to a bound in number and in bytes. They are shared with whoever else keeps them. When they are too many, the
/// busiest keys give up their oldest ones: a key in a hot loop does not push out the lives of all others.
#[derive(Debug)]
pub(crate) struct History {
    facts: VecDeque<Kept>,
    bytes: usize,
    /// The number of the next one here: unlike those of the facts themselves, these have no holes.
    end: u64,
    most: usize,
    most_bytes: usize,
}

#[derive(Debug)]
struct Kept {
    number: u64,
    fact: Arc<Fact>,
    size: usize,
}

/// Some of the facts after a number, and up to where they were looked at.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    pub(crate) facts: Vec<Arc<Fact>>,
    /// The number to go on from.
    pub(crate) next: u64,
    /// How many were wanted and are not among them: too old, or too many.
    pub(crate) left_out: u64,
}

impl History {
    pub(crate) const MOST: usize = 20_000;
    pub(crate) const MOST_BYTES: usize = 8 << 20;

    pub(crate) fn new(most: usize, most_bytes: usize) -> History {
        History { facts: VecDeque::new(), bytes: 0, end: 0, most, most_bytes }
    }

    pub(crate) fn push(&mut self, fact: Arc<Fact>) {
        let size = fact.size();
        self.facts.push_back(Kept { number: self.end, fact, size });
        self.end = self.end.saturating_add(1);
        self.bytes = self.bytes.saturating_add(size);
        if self.facts.len() > self.most || self.bytes > self.most_bytes {
            self.thin();
        }
    }

    /// Makes room for an eighth of what is kept, so that it is not looked through for each fact.
    fn thin(&mut self) {
        let (most, most_bytes) = (part(self.most), part(self.most_bytes));
        let by_bytes = self.facts.len().saturating_mul(most_bytes) / self.bytes.max(1);
        let groups: Vec<Option<u64>> = self.facts.iter().map(|kept| group_of(&kept.fact)).collect();
        let mut counts: HashMap<u64, usize> = HashMap::new();
        for group in groups.iter().flatten() {
            *counts.entry(*group).or_default() += 1;
        }
        let weighty = groups.iter().filter(|group| group.is_none()).count();
        let each = fair_share(&counts, most.min(by_bytes).saturating_sub(weighty));
        let mut groups = groups.into_iter();
        self.facts.retain(|_| match groups.next().flatten() {
            None => true,
            Some(group) => counts.get_mut(&group).is_none_or(|left| {
                *left -= 1;
                *left < each
            }),
        });
        self.bytes = self.facts.iter().map(|kept| kept.size).sum();
        // So many keys, so much that went wrong, or so large a fact: the oldest go.
        while self.facts.len() > 1 && (self.facts.len() > most.max(1) || self.bytes > most_bytes) {
            let size = self.facts.pop_front().map_or(0, |kept| kept.size);
            self.bytes = self.bytes.saturating_sub(size);
        }
    }

    /// The number that the next fact gets.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// The first number that is kept. Of those after it, not all are.
    pub(crate) fn start(&self) -> u64 {
        self.facts.front().map_or(self.end, |kept| kept.number)
    }

    /// The facts from number `from` on that are wanted, at most `most`. If there are more, the busiest keys give up their
    /// oldest ones, and then whole keys are left out, so that what is told of a key has no holes; facts that are about no
    /// key, and what went wrong, go first.
    pub(crate) fn sample(&self, from: u64, filter: &Filter, most: usize) -> Sample {
        let skip = self.facts.partition_point(|kept| kept.number < from);
        let kept = self.facts.len() - skip;
        let wanted: Vec<&Arc<Fact>> =
            self.facts.range(skip..).map(|kept| &kept.fact).filter(|fact| filter.takes(fact)).collect();
        let lost =
            if filter.is_open() { self.end.saturating_sub(from).saturating_sub(kept as u64) } else { 0 };
        let facts = choose(&wanted, most);
        let left_out = lost.saturating_add((wanted.len() - facts.len()) as u64);
        Sample { facts, next: self.end, left_out }
    }
}

/// One part in so many of a sample is about no key, and not weighty, at most.
const OF_NONE: usize = 8;
/// So many facts of a key are some rounds of its life: with fewer it is not shown at all.
const LEAST: usize = 32;

fn choose(wanted: &[&Arc<Fact>], most: usize) -> Vec<Arc<Fact>> {
    if wanted.len() <= most {
        return wanted.iter().map(|fact| Arc::clone(fact)).collect();
    }
    let mut hashed: Vec<(&Arc<Fact>, u64)> = wanted.iter().map(|fact| (*fact, hash_of(fact))).collect();
    keep_newest_of_none(&mut hashed, most / OF_NONE);
    keep_newest_of_each(&mut hashed, most);
    let weighty = hashed.iter().filter(|(fact, _)| is_weighty(fact)).count();
    // Chances halve until what is left fits; the same key is in or out in every sample of the same chance.
    for shift in 0..64 {
        let is_in = |hash: u64| hash.trailing_zeros() >= shift;
        let plain = hashed.iter().filter(|(fact, hash)| !is_weighty(fact) && is_in(*hash)).count();
        if plain > 0 && weighty + plain <= most {
            let kept = hashed.iter().filter(|(fact, hash)| is_weighty(fact) || is_in(*hash));
            return kept.map(|(fact, _)| Arc::clone(fact)).collect();
        }
    }
    // No key fits as a whole, or so much went wrong that not even that fits: the newest, what went wrong first.
    let mut newest: Vec<&Arc<Fact>> = hashed.iter().rev().map(|(fact, _)| *fact).collect();
    newest.sort_by_key(|fact| !is_weighty(fact));
    newest.truncate(most);
    newest.sort_by_key(|fact| fact.number);
    newest.into_iter().map(Arc::clone).collect()
}

/// Seven eighths.
fn part(most: usize) -> usize {
    most - most / 8
}

/// Whose facts it is one of: a key's, or of those about none. None if it is kept as long as there is room.
fn group_of(fact: &Fact) -> Option<u64> {
    const OF_NO_KEY: u64 = 0;
    match subject::of(&fact.event) {
        _ if is_weighty(fact) => None,
        Some(_) => Some(hash_of(fact)),
        None => Some(OF_NO_KEY),
    }
}

/// How many each may have, so that all have no more than this together; no fewer than what shows a life at all.
fn fair_share(counts: &HashMap<u64, usize>, all: usize) -> usize {
    let fits = |each: usize| counts.values().map(|count| *count.min(&each)).sum::<usize>() <= all;
    let (mut fitting, mut too_many) = (LEAST, all.saturating_add(1).max(LEAST));
    while too_many - fitting > 1 {
        let middle = fitting.midpoint(too_many);
        if fits(middle) { fitting = middle } else { too_many = middle }
    }
    fitting
}

/// Leaves out the oldest facts that are about no key and say only what keys tell as well: what came on a watch, and went into a
/// cache. A loop has as many of these as of its own, and each would take the place of a key.
fn keep_newest_of_none(facts: &mut Vec<(&Arc<Fact>, u64)>, most: usize) {
    let is_meant = |fact: &Fact| subject::of(&fact.event).is_none() && !is_weighty(fact);
    let mut left = facts.iter().filter(|(fact, _)| is_meant(fact)).count();
    facts.retain(|(fact, _)| {
        if !is_meant(fact) {
            return true;
        }
        let is_kept = left <= most;
        left -= 1;
        is_kept
    });
}

/// Leaves out the oldest facts of the busiest keys, so that there is room for others.
fn keep_newest_of_each(facts: &mut Vec<(&Arc<Fact>, u64)>, most: usize) {
    let mut counts: HashMap<u64, usize> = HashMap::new();
    for (fact, hash) in &*facts {
        if subject::of(&fact.event).is_some() && !is_weighty(fact) {
            *counts.entry(*hash).or_default() += 1;
        }
    }
    let room = most.saturating_sub(facts.len() - counts.values().sum::<usize>());
    let mut each = room.max(LEAST);
    while each > LEAST && counts.values().map(|count| *count.min(&each)).sum::<usize>() > room {
        each = (each / 2).max(LEAST);
    }
    facts.retain(|(fact, hash)| {
        if is_weighty(fact) {
            return true;
        }
        let Some(left) = counts.get_mut(hash) else { return true };
        let is_kept = *left <= each;
        *left -= 1;
        is_kept
    });
}

/// Whether a fact is shown before others.
fn is_weighty(fact: &Fact) -> bool {
    matches!(
        fact.event,
        LoopEvent::Reflector { .. }
            | LoopEvent::Finding { .. }
            | LoopEvent::Work { .. }
            | LoopEvent::Leadership { .. }
            | LoopEvent::QueueShutDown { .. }
            | LoopEvent::Missed { .. }
    )
}

/// Of the key that a fact is about; of facts about none, of its number.
fn hash_of(fact: &Fact) -> u64 {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    match subject::of(&fact.event) {
        Some((queue, key)) => hasher.hash_one((&**queue, key)),
        None => hasher.hash_one(fact.number),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use setpoint::Reasons;

    use super::*;

    fn started(number: u64, key: &str) -> Arc<Fact> {
        let event = LoopEvent::ReconcileStarted {
            controller: "web".into(),
            key: key.into(),
            id: number,
            reasons: Reasons::default(),
            retries: 0,
        };
        Arc::new(Fact { number, at: Timestamp::UNIX_EPOCH, event })
    }

    fn failed(number: u64) -> Arc<Fact> {
        let event = LoopEvent::QueueShutDown { queue: "web".into() };
        Arc::new(Fact { number, at: Timestamp::UNIX_EPOCH, event })
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_is_lost_is_counted() {
        let mut history = History::new(10, usize::MAX);
        (0..25).for_each(|n| history.push(started(n, "a")));
        let (start, end) = (history.start(), history.end());
        assert!((15..=16).contains(&start) && end == 25, "{start} {end}");
        let sample = history.sample(3, &Filter::default(), 100);
        assert_eq!((sample.facts.len() as u64, sample.next, sample.left_out), (25 - start, 25, start - 3));
        assert_eq!(history.sample(25, &Filter::default(), 100).facts.len(), 0);
        assert_eq!(
            history.sample(u64::MAX, &Filter::default(), 100).facts.len(),
            0,
            "a number of another run"
        );
        let mut bytes = History::new(usize::MAX, 3 * started(0, "a").size());
        (0..25).for_each(|n| bytes.push(started(n, "a")));
        assert!((22..=23).contains(&bytes.start()), "{}", bytes.start());
    }

    #[test]
    fn a_hot_loop_does_not_push_out_what_others_did() {
        let mut history = History::new(2000, usize::MAX);
        (0..500).for_each(|n| history.push(started(n, &format!("default/quiet-{}", n % 50))));
        history.push(failed(500));
        (501..50_000).for_each(|n| history.push(started(n, "default/loop")));
        let sample = history.sample(0, &Filter::default(), 5000);
        let of = |key: &str| {
            let is_of =
                |fact: &&Arc<Fact>| subject::of(&fact.event).is_some_and(|(_, k)| k.name().starts_with(key));
            sample.facts.iter().filter(is_of).map(|fact| fact.number).collect::<Vec<_>>()
        };
        assert_eq!(of("quiet"), (0..500).collect::<Vec<_>>());
        let (looped, first) = (of("loop"), of("loop")[0]);
        assert_eq!(looped, (first..50_000).collect::<Vec<_>>(), "its newest, without a hole");
        assert!(looped.len() >= 1249 && history.facts.len() <= 2000, "{}", looped.len());
        assert_eq!(sample.facts.len() as u64 + sample.left_out, 50_000);
        let filter = Filter { key: "loop".into(), ..Filter::default() };
        assert_eq!(history.sample(49_990, &filter, 100).facts.len(), 10, "a page goes on where it was");
    }

    #[test]
    fn more_keys_than_there_is_room_for_push_out_the_oldest() {
        let mut history = History::new(2000, usize::MAX);
        (0..20_000).for_each(|n| history.push(started(n, &format!("default/key-{n}"))));
        assert!(history.facts.len() <= 2000 && history.facts.len() >= 1750, "{}", history.facts.len());
        assert_eq!(history.start(), 20_000 - history.facts.len() as u64);
    }

    #[test]
    fn a_sample_has_all_or_nothing_of_a_key_and_all_that_is_weighty() {
        let mut history = History::new(usize::MAX, usize::MAX);
        for n in 0..3000_u64 {
            history.push(started(n, &format!("default/key-{}", n % 100)));
        }
        (3000..3010).for_each(|n| history.push(failed(n)));
        let sample = history.sample(0, &Filter::default(), 200);
        assert!(sample.facts.len() <= 200, "{}", sample.facts.len());
        assert_eq!(sample.facts.len() as u64 + sample.left_out, 3010);
        let mut by_key = std::collections::BTreeMap::new();
        for fact in &sample.facts {
            if let Some((_, key)) = subject::of(&fact.event) {
                *by_key.entry(key.to_string()).or_insert(0) += 1;
            }
        }
        assert!(!by_key.is_empty() && by_key.values().all(|count| *count == 30), "{by_key:?}");
        assert_eq!(sample.facts.iter().filter(|fact| is_weighty(fact)).count(), 10);
        assert!(sample.facts.is_sorted_by_key(|fact| fact.number));
    }

    #[test]
    fn a_key_that_is_busier_than_all_others_does_not_hide_them() {
        let mut history = History::new(usize::MAX, usize::MAX);
        (0..20).for_each(|n| history.push(started(n, &format!("default/quiet-{n}"))));
        (20..5000).for_each(|n| history.push(started(n, "default/loop")));
        let sample = history.sample(0, &Filter::default(), 800);
        let of = |key: &str| {
            let is_of =
                |fact: &&Arc<Fact>| subject::of(&fact.event).is_some_and(|(_, k)| k.name().starts_with(key));
            sample.facts.iter().filter(is_of).map(|fact| fact.number).collect::<Vec<_>>()
        };
        assert_eq!(of("quiet").len(), 20);
        assert_eq!(of("loop"), (4600..5000).collect::<Vec<_>>(), "its newest, without a hole");
        assert_eq!(sample.facts.len() as u64 + sample.left_out, 5000);
    }

    #[test]
    fn what_comes_on_watches_hides_no_key() {
        use setpoint::facts::{CacheChanges, CacheName};
        let mut history = History::new(usize::MAX, usize::MAX);
        (0..300).for_each(|n| history.push(started(n, &format!("default/quiet-{}", n % 30))));
        for number in 300..12_000 {
            history.push(match number % 3 {
                0 => started(number, "default/loop"),
                _ => {
                    let cache = CacheName { resource: "pods".into(), namespace: None, id: 1 };
                    let (version, is_list, changes) = (None, false, CacheChanges::default());
                    let event = LoopEvent::Applied { cache, version, is_list, changes };
                    Arc::new(Fact { number, at: Timestamp::UNIX_EPOCH, event })
                }
            });
        }
        let sample = history.sample(0, &Filter::default(), 3000);
        let keys: std::collections::BTreeSet<_> =
            sample.facts.iter().filter_map(|fact| Some(subject::of(&fact.event)?.1.to_string())).collect();
        assert_eq!(keys.len(), 31, "{keys:?}");
        assert!(sample.facts.len() <= 3000, "{}", sample.facts.len());
        assert_eq!(sample.facts.len() as u64 + sample.left_out, 12_000);
    }

    #[test]
    fn of_one_key_alone_the_newest_are_shown() {
        let mut history = History::new(usize::MAX, usize::MAX);
        (0..5000).for_each(|n| history.push(started(n, "default/loop")));
        let filter = Filter { key: "loop".into(), ..Filter::default() };
        let sample = history.sample(0, &filter, 3000);
        assert_eq!((sample.facts.len(), sample.facts[0].number, sample.left_out), (3000, 2000, 2000));
    }

    #[test]
    fn even_weighty_facts_are_bounded() {
        let mut history = History::new(usize::MAX, usize::MAX);
        (0..500).for_each(|n| history.push(failed(n)));
        let sample = history.sample(0, &Filter::default(), 50);
        assert_eq!((sample.facts.len(), sample.left_out), (50, 450));
        assert_eq!(sample.facts[0].number, 450, "the newest");
    }

    #[test]
    fn a_filter_takes_a_key_by_controller_namespace_and_part_of_its_name() {
        let fact = started(1, "default/web-1");
        let check = |controller: &str, namespace: &str, key: &str| {
            let (controller, namespace, key) = (controller.into(), namespace.into(), key.into());
            Filter { controller, key, namespace }.takes(&fact)
        };
        assert!(check("", "", "") && check("web", "default", "web") && check("", "", "default/web-1"));
        assert!(!check("other", "", "") && !check("", "kube-system", "") && !check("", "", "db"));
    }
}
