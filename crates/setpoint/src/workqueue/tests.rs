//! The queue against a naive model of it. In the crate, since nobody outside can hold a key.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt;
use proptest::prelude::*;
use tokio::task::coop::unconstrained;
use tokio::time::Instant;

use super::{FastSlow, Get, Item, Named, Phase, Until, WorkQueue};
use crate::facts::{Facts, LoopEvent, Subscription};
use crate::{Env, ObjectKey, Reasons};

const FAST: Duration = Duration::from_millis(20);
const SLOW: Duration = Duration::from_millis(200);

#[derive(Clone, Debug)]
enum Op {
    Add {
        key: u8,
        priority: i32,
    },
    AddAfter {
        key: u8,
        priority: i32,
        delay: Duration,
    },
    AddRateLimited {
        key: u8,
    },
    Forget {
        key: u8,
    },
    Get,
    /// A get that waits for a while, and is then dropped or looked at again.
    Wait {
        then_drop: bool,
    },
    Done {
        which: usize,
    },
    /// A key that is done, and held until some of two sources have got somewhere, or have lost something.
    Hold {
        which: usize,
        versions: [Option<u8>; 2],
        /// The first version that it made in the first source, if it waits for that.
        changed: Option<u8>,
        gone: Option<(u8, u8, u8)>,
        limit: Duration,
    },
    /// A source gets to a version, perhaps by a list.
    Reach {
        source: u8,
        version: u8,
        is_list: bool,
    },
    /// A source loses something.
    Lose {
        source: u8,
        what: u8,
    },
    Advance {
        time: Duration,
    },
    ShutDown,
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0..8u8;
    let priority = prop_oneof![4 => Just(0), 1 => Just(-100), 1 => Just(7)];
    let delay = (0..300u64).prop_map(Duration::from_millis);
    prop_oneof![
        8 => (key.clone(), priority.clone()).prop_map(|(key, priority)| Op::Add { key, priority }),
        4 => (key.clone(), priority, delay.clone())
            .prop_map(|(key, priority, delay)| Op::AddAfter { key, priority, delay }),
        2 => key.clone().prop_map(|key| Op::AddRateLimited { key }),
        1 => key.prop_map(|key| Op::Forget { key }),
        8 => Just(Op::Get),
        2 => any::<bool>().prop_map(|then_drop| Op::Wait { then_drop }),
        7 => (0..8usize).prop_map(|which| Op::Done { which }),
        4 => (0..4usize, any::<[Option<bool>; 2]>(), (0..9u8, any::<Option<u8>>()), prop_oneof![2 => Just(None),
                1 => (0..2u8, 0..2u8, 0..5u8).prop_map(Some)], delay.clone())
            .prop_map(|(which, which_sources, (version, changed), gone, limit)| Op::Hold {
                which,
                versions: which_sources.map(|wanted| wanted.map(|far| version + u8::from(far))),
                changed: which_sources[0].and(changed).map(|changed| changed % (version + 1)),
                gone,
                limit,
            }),
        4 => (0..2u8, 0..10u8, any::<bool>())
            .prop_map(|(source, version, is_list)| Op::Reach { source, version, is_list }),
        2 => (0..2u8, 0..2u8).prop_map(|(source, what)| Op::Lose { source, what }),
        3 => delay.prop_map(|time| Op::Advance { time }),
        1 => prop_oneof![30 => Just(Op::Get), 1 => Just(Op::ShutDown)],
    ]
}

/// The queue as simple as possible.
#[derive(Default)]
struct Model {
    /// In the order in which they were queued.
    queued: Vec<(u8, i32)>,
    /// The priority at which a processing key is to be queued again, if it is.
    processing: BTreeMap<u8, Option<i32>>,
    /// By time, then in the order in which they were set.
    waiting: Vec<(Instant, u8, i32)>,
    /// In the order in which they were held.
    held: Vec<Held>,
    sources: [u8; 2],
    /// The version of the newest list of the first source.
    listed: u8,
    failures: BTreeMap<u8, u32>,
    choices: u32,
    shut_down: bool,
}

/// A held key of the model, with what has not happened yet.
struct Held {
    key: u8,
    versions: [Option<u8>; 2],
    changed: Option<u8>,
    gone: Option<(u8, u8, u8)>,
    deadline: Instant,
    dirty: Option<i32>,
}

impl Held {
    fn is_over(&self) -> bool {
        self.versions == [None, None] && self.gone.is_none()
    }
}

impl Model {
    fn add(&mut self, key: u8, priority: i32) {
        if self.shut_down {
            return;
        }
        if let Some(held) = self.held.iter_mut().find(|held| held.key == key) {
            held.dirty = Some(held.dirty.map_or(priority, |before| before.max(priority)));
            return;
        }
        if let Some(dirty) = self.processing.get_mut(&key) {
            *dirty = Some(dirty.map_or(priority, |before| before.max(priority)));
            return;
        }
        match self.queued.iter().position(|(queued, _)| *queued == key) {
            Some(at) if self.queued[at].1 < priority => {
                self.queued.remove(at);
                self.queued.push((key, priority));
            }
            Some(_) => {}
            None => self.queued.push((key, priority)),
        }
    }

    fn add_after(&mut self, key: u8, priority: i32, delay: Duration, now: Instant) {
        if delay.is_zero() {
            return self.add(key, priority);
        }
        if self.shut_down {
            return;
        }
        let due = now + delay;
        match self.waiting.iter().position(|(_, waiting, _)| *waiting == key) {
            Some(at) if self.waiting[at].0 <= due => {
                self.waiting[at].2 = self.waiting[at].2.max(priority);
            }
            Some(at) => {
                let priority = self.waiting.remove(at).2.max(priority);
                self.waiting.push((due, key, priority));
            }
            None => self.waiting.push((due, key, priority)),
        }
    }

    fn promote(&mut self, now: Instant) {
        self.waiting.sort_by_key(|(due, ..)| *due);
        while self.waiting.first().is_some_and(|(due, ..)| *due <= now) {
            let (_, key, priority) = self.waiting.remove(0);
            self.add(key, priority);
        }
        let mut late: Vec<Held> = self.held.extract_if(.., |held| held.deadline <= now).collect();
        late.sort_by_key(|held| held.deadline);
        self.release(late);
    }

    fn hold(&mut self, mut held: Held) {
        held.dirty = self.processing.remove(&held.key).expect("it is being processed");
        if self.shut_down {
            return;
        }
        for (wanted, source) in held.versions.iter_mut().zip(self.sources) {
            *wanted = wanted.filter(|wanted| *wanted > source);
        }
        if held.is_over() { self.release(vec![held]) } else { self.held.push(held) }
    }

    fn release(&mut self, held: Vec<Held>) {
        let dirty = held.into_iter().filter_map(|held| {
            let is_listed = held.changed.is_some_and(|changed| changed <= self.listed);
            Some((held.key, if is_listed { held.dirty.max(Some(0)) } else { held.dirty }?))
        });
        self.queued.extend(dirty);
    }

    fn reach(&mut self, source: u8, version: u8, is_list: bool) {
        let source = usize::from(source);
        self.sources[source] = version;
        if is_list && source == 0 {
            self.listed = version;
        }
        let mut reached = Vec::new();
        for held in &mut self.held {
            if let Some(wanted) = held.versions[source].take_if(|wanted| *wanted <= version) {
                reached.push((wanted, held.key));
            }
        }
        reached.sort_by_key(|(wanted, _)| *wanted);
        for (_, key) in reached {
            let over = self.held.extract_if(.., |held| held.key == key && held.is_over()).collect();
            self.release(over);
        }
    }

    fn lose(&mut self, source: u8, what: u8) {
        let version = self.sources[usize::from(source)];
        for held in &mut self.held {
            held.gone.take_if(|(of, thing, after)| (*of, *thing) == (source, what) && *after <= version);
        }
        let over = self.held.extract_if(.., |held| held.is_over()).collect();
        self.release(over);
    }

    /// `None`: would wait. `Some(None)`: is shut down.
    fn get(&mut self) -> Option<Option<(u8, i32)>> {
        let Some(highest) = self.queued.iter().map(|(_, priority)| *priority).max() else {
            let exhausted = self.shut_down && self.processing.values().all(Option::is_none);
            return exhausted.then_some(None);
        };
        let mut at = self.queued.iter().position(|(_, priority)| *priority == highest).unwrap();
        if self.queued.iter().any(|(_, priority)| *priority != highest) {
            self.choices += 1;
            if self.choices.is_multiple_of(10) {
                at = 0;
            }
        }
        let (key, priority) = self.queued.remove(at);
        self.processing.insert(key, None);
        Some(Some((key, priority)))
    }

    fn done(&mut self, key: u8) {
        if let Some(Some(priority)) = self.processing.remove(&key) {
            self.queued.push((key, priority));
        }
    }

    fn fail(&mut self, key: u8) -> Duration {
        let failures = self.failures.entry(key).or_default();
        *failures += 1;
        if *failures <= 2 { FAST } else { SLOW }
    }
}

/// What a listener knows of the queue from the facts alone.
struct Account {
    facts: Subscription,
    keys: BTreeMap<u8, Told>,
    shut_down: bool,
}

#[derive(Default)]
struct Told {
    phase: Option<Phase>,
    priority: i32,
    due: Option<Instant>,
    wants: Reasons,
}

impl Account {
    fn new(facts: &Facts) -> Account {
        Account { facts: facts.subscribe(), keys: BTreeMap::new(), shut_down: false }
    }

    fn of(&mut self, key: &ObjectKey) -> &mut Told {
        self.keys.entry(key.name().parse().unwrap()).or_default()
    }

    /// Hears what is new. What a get takes, and what for, must be what was told.
    fn hear(&mut self, now: Instant) {
        while let Some(fact) = self.facts.try_next() {
            match &fact.event {
                LoopEvent::Added { key, reason, priority, is_coalesced, .. } => {
                    let told = self.of(key);
                    told.wants = told.wants.iter().chain([reason.clone()]).collect();
                    if *is_coalesced {
                        told.priority = told.priority.max(*priority);
                    }
                }
                LoopEvent::Phase { key, phase, priority, reasons, .. } => {
                    let is_shut_down = self.shut_down;
                    let told = self.of(key);
                    (told.phase, told.priority) = (Some(*phase), *priority);
                    match phase {
                        Phase::Absent | Phase::Held | Phase::Holding => assert!(reasons.is_empty()),
                        _ if is_shut_down && reasons.is_empty() => told.wants = Reasons::default(),
                        _ => assert_eq!(*reasons, told.wants),
                    }
                    // When a hold ends, or is given up, it may be in work again, and want nothing.
                    if *phase == Phase::Processing {
                        told.wants = Reasons::default();
                    }
                }
                LoopEvent::Delayed { key, delay, .. } => self.of(key).due = Some(now + *delay),
                LoopEvent::QueueShutDown { .. } => {
                    self.shut_down = true;
                    self.keys.values_mut().for_each(|told| told.due = None);
                }
                LoopEvent::Held { .. } | LoopEvent::Released { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn in_phase(&self, phases: [Phase; 2]) -> BTreeMap<u8, Option<i32>> {
        let found = self.keys.iter().filter_map(|(key, told)| {
            let wants = (told.phase == Some(phases[1])).then_some(told.priority);
            phases.contains(&told.phase?).then_some((*key, wants))
        });
        found.collect()
    }

    /// Its account of every key is what the queue did.
    fn compare(&self, model: &Model, now: Instant) {
        let queued = model.queued.iter().map(|(key, priority)| (*key, Some(*priority)));
        assert_eq!(self.in_phase([Phase::Queued, Phase::Queued]), queued.collect());
        assert_eq!(self.in_phase([Phase::Processing, Phase::Dirty]), model.processing);
        let held = model.held.iter().map(|held| (held.key, held.dirty));
        assert_eq!(self.in_phase([Phase::Held, Phase::HeldDirty]), held.collect());
        assert_eq!(self.in_phase([Phase::Holding, Phase::HoldingDirty]), BTreeMap::new());
        let due = self.keys.iter().filter_map(|(key, told)| Some((*key, told.due.filter(|due| *due > now)?)));
        let waiting = model.waiting.iter().map(|(due, key, _)| (*key, *due));
        assert_eq!(due.collect::<BTreeMap<_, _>>(), waiting.collect());
    }
}

fn named(what: u8) -> Named {
    Named { name: "thing".into(), uid: what.to_string().into() }
}

fn until(versions: [Option<u8>; 2], changed: Option<u8>, gone: Option<(u8, u8, u8)>) -> Vec<Until> {
    let versions = (0..).zip(versions).filter_map(|(source, version)| {
        let changed = changed.filter(|_| source == 0).map(u128::from);
        version.map(|version| Until::Version { source, version: version.into(), changed })
    });
    let gone = gone.map(|(source, what, after)| {
        let (source, what, after) = (source.into(), named(what), after.into());
        Until::Gone { source, what, after }
    });
    versions.chain(gone).collect()
}

fn look(get: &mut Get<'_, u8>) -> Option<Option<Item<u8>>> {
    unconstrained(get).now_or_never()
}

/// What a get of the queue and one of the model give must be the same.
fn compare(got: Option<Option<Item<u8>>>, model: &mut Model, items: &mut Vec<Item<u8>>) {
    let told = got.as_ref().map(|got| got.as_ref().map(|item| (*item.key(), item.priority())));
    assert_eq!(told, model.get());
    items.extend(got.flatten());
}

async fn run(ops: Vec<Op>) {
    let facts = Facts::new(Env::seeded(1));
    let queue = WorkQueue::builder().rate_limiter(FastSlow::new(FAST, SLOW, 2)).facts("q", &facts).build();
    let mut account = Account::new(&facts);
    let (mut model, mut items) = (Model::default(), Vec::new());
    for op in ops {
        let now = Instant::now();
        match op {
            Op::Add { key, priority } => {
                queue.at_priority(priority).add(key);
                model.add(key, priority);
            }
            Op::AddAfter { key, priority, delay } => {
                queue.at_priority(priority).add_after(key, delay);
                model.add_after(key, priority, delay, now);
            }
            Op::AddRateLimited { key } => {
                queue.add_rate_limited(key);
                let delay = model.fail(key);
                model.add_after(key, 0, delay, now);
                assert_eq!(queue.num_requeues(&key), model.failures[&key]);
            }
            Op::Forget { key } => {
                queue.forget(&key);
                model.failures.remove(&key);
                assert_eq!(queue.num_requeues(&key), 0);
            }
            Op::Get => compare(look(&mut queue.get()), &mut model, &mut items),
            Op::Wait { then_drop } => {
                let mut get = queue.get();
                if let Some(got) = look(&mut get) {
                    compare(Some(got), &mut model, &mut items);
                } else if !then_drop {
                    assert_eq!(model.get(), None);
                    queue.add(1);
                    model.add(1, 0);
                    compare(look(&mut get), &mut model, &mut items);
                }
            }
            Op::Done { which } if which < items.len() => {
                let item = items.remove(which);
                model.done(*item);
                item.done();
            }
            Op::Done { .. } => {}
            Op::Hold { which, versions, changed, gone, limit } if which < items.len() => {
                let item = items.remove(which);
                let deadline = now + limit;
                model.hold(Held { key: *item, versions, changed, gone, deadline, dirty: None });
                item.hold(until(versions, changed, gone), limit);
            }
            Op::Hold { .. } => {}
            Op::Reach { source, version, is_list } => {
                queue.advance(source.into(), Some(version.into()), is_list);
                model.reach(source, version, is_list);
            }
            Op::Lose { source, what } => {
                queue.gone(source.into(), &[named(what)]);
                model.lose(source, what);
            }
            Op::Advance { time } => tokio::time::advance(time).await,
            Op::ShutDown => {
                queue.shut_down();
                model.waiting.clear();
                model.held.clear();
                model.shut_down = true;
            }
        }
        account.hear(now);
        model.promote(Instant::now());
        assert_eq!(queue.len(), model.queued.len());
        account.hear(Instant::now());
        account.compare(&model, Instant::now());
    }
    finish(&queue, model, items).await;
}

/// In the end everything is got, the drain ends, and the queue is empty.
async fn finish(queue: &WorkQueue<u8>, mut model: Model, mut items: Vec<Item<u8>>) {
    queue.shut_down();
    (model.shut_down, model.waiting, model.held) = (true, Vec::new(), Vec::new());
    for item in items.drain(..) {
        model.done(*item);
    }
    let mut drained = Box::pin(queue.shut_down_with_drain());
    while let Some(Some((key, priority))) = model.get() {
        let item = queue.get().await.expect("the model has a key");
        assert_eq!((*item.key(), item.priority()), (key, priority));
        assert_eq!(drained.as_mut().now_or_never(), None, "a key is processing");
        model.done(key);
    }
    drained.await;
    assert!(queue.get().await.is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn the_queue_does_what_a_naive_model_does(ops in proptest::collection::vec(op(), 0..150)) {
        let builder = &mut tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap().block_on(run(ops));
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_held_says_for_how_long_and_whether_it_was_too_long() {
    use std::sync::Arc;

    use parking_lot::Mutex;

    let told: Arc<Mutex<Vec<(u8, Duration, bool)>>> = Arc::default();
    let log = told.clone();
    let on_release = move |released: super::Released<u8>| {
        log.lock().push((released.key, released.waited, released.is_late));
    };
    let queue = WorkQueue::builder().on_release(on_release).build();
    let second = Duration::from_secs(1);
    for key in [1, 2, 3] {
        queue.add(key);
    }
    queue.advance(0, Some(4), false);
    for version in [4, 5, 9] {
        let item = queue.get().await.unwrap();
        item.hold(vec![Until::Version { source: 0, version, changed: None }], 10 * second);
    }
    queue.add(3);
    tokio::time::advance(second).await;
    queue.advance(0, Some(7), false);
    // Nobody else is there to keep the time.
    assert_eq!(*queue.get().await.unwrap(), 3);
    assert_eq!(*told.lock(), [(1, Duration::ZERO, false), (2, second, false), (3, 10 * second, true)]);
}

#[tokio::test(start_paused = true)]
async fn queues_tell_from_the_moment_at_which_somebody_listens() {
    let facts = Facts::new(Env::seeded(1));
    let build = |name| WorkQueue::builder().facts(name, &facts).build();
    let before = build("before");
    before.add("unheard");
    let mut first = facts.subscribe();
    let after = build("after");
    let mut second = facts.subscribe();
    before.add("a");
    after.add("b");
    for stream in [&mut first, &mut second] {
        let told: Vec<_> = std::iter::from_fn(|| stream.try_next()).collect();
        let added = told.iter().filter_map(|fact| match &fact.event {
            LoopEvent::Added { queue, key, .. } => Some((queue.to_string(), key.to_string())),
            _ => None,
        });
        let wanted = [("before", "a"), ("after", "b")].map(|(queue, key)| (queue.to_owned(), key.to_owned()));
        assert_eq!(added.collect::<Vec<_>>(), wanted);
    }
    drop(first);
    before.add("c");
    assert!(second.try_next().is_some(), "one of two has ceased to listen");
    drop(second);
    before.add("d");
    assert!(!facts.is_heard());
    let mut late = facts.subscribe();
    assert!(late.try_next().is_none(), "what nobody heard is not kept");
    before.add("e");
    assert!(late.try_next().is_some());
}
