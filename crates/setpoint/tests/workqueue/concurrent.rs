//! The lock and the wake-ups under every schedule that the model checker thinks of. The files are the
//! product's own; only the lock is the checker's.

#[path = "../../src/workqueue/holds.rs"]
mod holds;
#[path = "../../src/workqueue/lanes.rs"]
mod lanes;
#[path = "../../src/workqueue/moment.rs"]
mod moment;
#[expect(dead_code, reason = "what has to do with metrics is not used here")]
#[path = "../../src/workqueue/shared.rs"]
mod shared;
#[expect(dead_code, reason = "what has to do with metrics is not used here")]
#[path = "../../src/workqueue/state.rs"]
mod state;
#[expect(dead_code, reason = "nobody listens here")]
#[path = "../../src/workqueue/steps.rs"]
mod steps;
#[path = "../../src/workqueue/timers.rs"]
mod timers;

mod phase {
    pub(super) use setpoint::workqueue::Phase;
}

mod sync {
    use std::sync::PoisonError;

    pub(super) use shuttle::sync::MutexGuard;

    #[derive(Debug)]
    pub(super) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(super) fn new(value: T) -> Mutex<T> {
            Mutex(shuttle::sync::Mutex::new(value))
        }

        pub(super) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use setpoint::reasons::{self, Cause, Reason};
use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use shuttle::{future, thread};
use tokio::time::Instant;

use self::holds::{Named, Until};
use self::shared::{Found, Shared};

type Queue = Arc<Shared<usize>>;

fn soon() -> (Reason, Duration) {
    (Reason::new(Cause::Requeue), Duration::ZERO)
}

/// What `WorkQueue::get` does, without a clock: a key that waits for its time is due already.
struct Get<'a> {
    queue: &'a Shared<usize>,
    waiter: Option<u64>,
}

fn get(queue: &Shared<usize>) -> Get<'_> {
    Get { queue, waiter: None }
}

impl Future for Get<'_> {
    type Output = Option<(usize, u32)>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.waiter.is_none()
            && let Some(taken) = this.queue.try_get()
        {
            return Poll::Ready(Some((taken.key, taken.slot)));
        }
        match this.queue.poll_get(&mut this.waiter, cx, |_| ()) {
            Found::Taken(taken) => Poll::Ready(Some((taken.key, taken.slot))),
            Found::ShutDown => Poll::Ready(None),
            Found::Wait(due) => {
                assert!(due.is_none_or(|due| due > Instant::now()), "every timer of these tests is due");
                Poll::Pending
            }
        }
    }
}

impl Drop for Get<'_> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            self.queue.abandon(waiter);
        }
    }
}

/// Looks once, waits for a moment, and gives up without a second look.
fn glance(queue: &Shared<usize>) -> Option<(usize, u32)> {
    let mut get = pin!(get(queue));
    let found = get.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    thread::yield_now();
    match found {
        Poll::Ready(item) => item,
        Poll::Pending => None,
    }
}

/// What is wanted of each key, what has been seen, and who is working on it.
#[derive(Default)]
struct Ledger {
    wanted: [AtomicUsize; 3],
    seen: [AtomicUsize; 3],
    busy: [AtomicBool; 3],
}

impl Ledger {
    fn add(&self, queue: &Shared<usize>, key: usize, priority: i32) {
        self.wanted[key].fetch_add(1, Ordering::SeqCst);
        queue.add(key, priority, Cause::Unnamed);
    }

    fn work(&self, queue: &Shared<usize>, (key, slot): (usize, u32)) {
        assert!(!self.busy[key].swap(true, Ordering::SeqCst), "two workers have key {key}");
        self.seen[key].store(self.wanted[key].load(Ordering::SeqCst), Ordering::SeqCst);
        thread::yield_now();
        self.busy[key].store(false, Ordering::SeqCst);
        queue.done(slot);
    }

    fn check(&self) {
        for key in 0..3 {
            let (wanted, seen) = (&self.wanted[key], &self.seen[key]);
            assert_eq!(wanted.load(Ordering::SeqCst), seen.load(Ordering::SeqCst), "key {key} was lost");
        }
    }
}

fn start() -> (Queue, Arc<Ledger>) {
    (Arc::new(Shared::new(false, None, None)), Arc::default())
}

fn worker(queue: &Queue, ledger: &Arc<Ledger>) -> thread::JoinHandle<()> {
    let (queue, ledger) = (queue.clone(), ledger.clone());
    thread::spawn(move || {
        while let Some(item) = future::block_on(get(&queue)) {
            ledger.work(&queue, item);
        }
    })
}

fn producer(queue: &Queue, ledger: &Arc<Ledger>, keys: &'static [usize]) -> thread::JoinHandle<()> {
    let (queue, ledger) = (queue.clone(), ledger.clone());
    thread::spawn(move || keys.iter().for_each(|key| ledger.add(&queue, *key, *key as i32)))
}

fn join(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Under schedules at random, and under those that differ most.
fn check(scenario: impl Fn() + Send + Sync + 'static) {
    let scenario = Arc::new(scenario);
    let again = scenario.clone();
    shuttle::check_random(move || scenario(), 500);
    shuttle::check_pct(move || again(), 500, 3);
}

#[test]
fn no_key_is_lost_and_none_is_worked_on_by_two() {
    check(|| {
        let (queue, ledger) = start();
        let workers = [worker(&queue, &ledger), worker(&queue, &ledger)];
        join([producer(&queue, &ledger, &[0, 1, 0]), producer(&queue, &ledger, &[1, 0, 2])]);
        queue.shut_down(|_| ());
        join(workers);
        ledger.check();
    });
}

#[test]
fn a_get_that_is_dropped_takes_no_call_with_it() {
    check(|| {
        let (queue, ledger) = start();
        let (fickle, seen) = (queue.clone(), ledger.clone());
        let fickle = thread::spawn(move || {
            for _ in 0..3 {
                if let Some(item) = glance(&fickle) {
                    seen.work(&fickle, item);
                }
            }
        });
        let worker = worker(&queue, &ledger);
        join([producer(&queue, &ledger, &[0, 1]), producer(&queue, &ledger, &[2])]);
        join([fickle]);
        queue.shut_down(|_| ());
        join([worker]);
        ledger.check();
    });
}

/// Two gets wait, one of them is dropped: the key that called it must reach the other without any other call.
#[test]
fn a_call_to_a_dropped_get_reaches_the_next_one() {
    check(|| {
        let (queue, ledger) = start();
        let (fickle, seen) = (queue.clone(), ledger.clone());
        let fickle = thread::spawn(move || {
            let item = glance(&fickle);
            item.is_some_and(|item| {
                seen.work(&fickle, item);
                true
            })
        });
        let (patient, seen) = (queue.clone(), ledger.clone());
        let patient = thread::spawn(move || {
            let item = future::block_on(get(&patient)).expect("not shut down");
            seen.work(&patient, item);
        });
        ledger.add(&queue, 0, 0);
        if fickle.join().unwrap() {
            ledger.add(&queue, 1, 0);
        }
        join([patient]);
        ledger.check();
    });
}

/// The same for keys whose time has come.
#[test]
fn a_timer_whose_get_is_dropped_reaches_the_next_one() {
    check(|| {
        let (queue, ledger) = start();
        let (fickle, seen) = (queue.clone(), ledger.clone());
        let fickle = thread::spawn(move || {
            let item = glance(&fickle);
            item.is_some_and(|item| {
                seen.work(&fickle, item);
                true
            })
        });
        let (patient, seen) = (queue.clone(), ledger.clone());
        let patient = thread::spawn(move || {
            let item = future::block_on(get(&patient)).expect("not shut down");
            seen.work(&patient, item);
        });
        ledger.wanted[0].fetch_add(1, Ordering::SeqCst);
        queue.add_at(0, 0, Instant::now(), soon());
        if fickle.join().unwrap() {
            ledger.add(&queue, 1, 0);
        }
        join([patient]);
        ledger.check();
    });
}

#[test]
fn keys_whose_time_has_come_reach_workers_that_wait() {
    check(|| {
        let (queue, ledger) = start();
        let workers = [worker(&queue, &ledger), worker(&queue, &ledger)];
        let (fickle, seen) = (queue.clone(), ledger.clone());
        let fickle = thread::spawn(move || {
            if let Some(item) = glance(&fickle) {
                seen.work(&fickle, item);
            }
        });
        let due = Instant::now();
        for key in 0..3 {
            ledger.wanted[key].fetch_add(1, Ordering::SeqCst);
            queue.add_at(key, 0, due, soon());
        }
        join([fickle]);
        queue.shut_down(|_| ());
        join(workers);
        ledger.check();
    });
}

#[test]
fn a_drain_ends_when_all_is_done_and_not_before() {
    check(|| {
        let (queue, ledger) = start();
        let workers = [worker(&queue, &ledger), worker(&queue, &ledger)];
        join([producer(&queue, &ledger, &[0, 1, 0])]);
        queue.shut_down(|_| ());
        let mut waiter = None;
        future::block_on(std::future::poll_fn(|cx| {
            if queue.poll_idle(&mut waiter, cx) { Poll::Ready(()) } else { Poll::Pending }
        }));
        ledger.check();
        join(workers);
    });
}

/// Far beyond the end of the test: only what a key waits for can release it.
fn never() -> Instant {
    Instant::now() + std::time::Duration::from_secs(3600)
}

/// A worker that lets the key 0 be held, the first time, until the source has got to version 1 and has lost a thing.
fn holding_worker(queue: &Queue, ledger: &Arc<Ledger>, held: &Arc<AtomicBool>) -> thread::JoinHandle<()> {
    let (queue, ledger, held) = (queue.clone(), ledger.clone(), held.clone());
    thread::spawn(move || {
        while let Some((key, slot)) = future::block_on(get(&queue)) {
            if key == 0 && !held.swap(true, Ordering::SeqCst) {
                let (version, gone) = (Until::Version { source: 0, version: 1, changed: None }, thing());
                let gone = Until::Gone { source: 1, what: gone, after: 0 };
                queue.hold(slot, vec![version, gone], never());
            }
            ledger.work(&queue, (key, slot));
        }
    })
}

fn thing() -> Named {
    Named { name: "a".into(), uid: "1".into() }
}

/// Says that the thing is gone, once somebody waits for it.
fn lose(queue: &Shared<usize>) {
    while queue.awaited(1) != [thing()] {
        thread::yield_now();
    }
    queue.gone(1, &[thing()]);
}

fn is_idle(queue: &Shared<usize>) -> bool {
    let mut waiter = None;
    let is_idle = queue.poll_idle(&mut waiter, &mut Context::from_waker(Waker::noop()));
    waiter.into_iter().for_each(|waiter| queue.abandon_drain(waiter));
    is_idle
}

#[test]
fn a_held_key_that_was_added_meanwhile_is_released_once_and_not_lost() {
    check(|| {
        let (queue, ledger) = start();
        let held = Arc::default();
        let workers = [holding_worker(&queue, &ledger, &held), holding_worker(&queue, &ledger, &held)];
        ledger.add(&queue, 0, 0);
        let source = queue.clone();
        let source = thread::spawn(move || {
            source.advance(0, Some(1), false);
            lose(&source);
        });
        join([producer(&queue, &ledger, &[0, 1, 0]), source]);
        // A shutdown would leave what is held; nothing is, once the workers have nothing to do.
        while !is_idle(&queue) {
            thread::yield_now();
        }
        queue.shut_down(|_| ());
        join(workers);
        ledger.check();
    });
}

#[test]
fn a_shutdown_beside_a_hold_ends_every_worker() {
    check(|| {
        let (queue, ledger) = start();
        let held = Arc::default();
        let workers = [holding_worker(&queue, &ledger, &held), holding_worker(&queue, &ledger, &held)];
        join([producer(&queue, &ledger, &[0, 1, 0])]);
        queue.shut_down(|_| ());
        join(workers);
        assert_eq!(queue.depth(), 0, "what is held is left");
    });
}
