//! The queue against a naive model of it.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt;
use proptest::prelude::*;
use setpoint::WorkQueue;
use setpoint::workqueue::{FastSlow, Get, Item};
use tokio::task::coop::unconstrained;
use tokio::time::Instant;

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
    failures: BTreeMap<u8, u32>,
    choices: u32,
    shut_down: bool,
}

impl Model {
    fn add(&mut self, key: u8, priority: i32) {
        if self.shut_down {
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
    let queue = WorkQueue::builder().rate_limiter(FastSlow::new(FAST, SLOW, 2)).build();
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
            Op::Advance { time } => tokio::time::advance(time).await,
            Op::ShutDown => {
                queue.shut_down();
                model.waiting.clear();
                model.shut_down = true;
            }
        }
        model.promote(Instant::now());
        assert_eq!(queue.len(), model.queued.len());
    }
    finish(&queue, model, items).await;
}

/// In the end everything is got, the drain ends, and the queue is empty.
async fn finish(queue: &WorkQueue<u8>, mut model: Model, mut items: Vec<Item<u8>>) {
    queue.shut_down();
    (model.shut_down, model.waiting) = (true, Vec::new());
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
