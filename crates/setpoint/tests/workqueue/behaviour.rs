//! What a user of the queue sees, a sentence a test.

use std::cell::Cell;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::time::Duration;

use futures::FutureExt;
use setpoint::workqueue::{ItemExponential, LOW_PRIORITY};
use setpoint::{Env, Metrics, WorkQueue};
use setpoint_env::Task;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

/// Gets a key in a task of its own: nothing but a call of the queue makes it look again.
fn waiter<K: Copy + Eq + Hash + Send + 'static>(queue: &WorkQueue<K>) -> Task<(Option<K>, Instant)> {
    let queue = queue.clone();
    Env::system().spawn(async move { (queue.get().await.map(|item| *item), Instant::now()) })
}

/// Lets every task run until it waits.
async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

async fn take<K: Copy + Eq + Hash>(queue: &WorkQueue<K>) -> K {
    *queue.get().await.expect("not shut down")
}

#[tokio::test]
async fn keys_come_in_the_order_in_which_they_were_added_and_each_once() {
    let queue = WorkQueue::new();
    ["b", "a", "b", "c", "a"].into_iter().for_each(|key| queue.add(key));
    assert_eq!(queue.len(), 3);
    assert_eq!([take(&queue).await, take(&queue).await, take(&queue).await], ["b", "a", "c"]);
    assert!(queue.is_empty());
}

#[tokio::test]
async fn a_key_that_is_added_while_it_is_processed_comes_again_when_it_is_done() {
    let queue = WorkQueue::new();
    queue.add("a");
    let item = queue.get().await.unwrap();
    queue.add("a");
    queue.add("a");
    assert_eq!(queue.get().now_or_never().map(|item| item.is_some()), None, "nobody else gets it");
    assert_eq!(queue.len(), 0);
    item.done();
    assert_eq!(queue.len(), 1);
    assert_eq!(take(&queue).await, "a");
    assert_eq!(queue.len(), 0);
}

#[tokio::test]
async fn a_worker_that_panics_blocks_no_key() {
    let queue = WorkQueue::new();
    queue.add("a");
    let work = AssertUnwindSafe(async {
        let _item = queue.get().await;
        queue.add("a");
        panic!("the reconciler has a bug");
    });
    work.catch_unwind().await.unwrap_err();
    assert_eq!(take(&queue).await, "a");
}

#[tokio::test]
async fn every_tenth_choice_takes_the_oldest_key_so_that_no_priority_starves() {
    let queue = WorkQueue::new();
    queue.at_priority(LOW_PRIORITY).add(1000);
    let mut gets = 0;
    for key in 0.. {
        queue.add(key);
        gets += 1;
        if take(&queue).await == 1000 {
            break;
        }
    }
    assert_eq!(gets, 10);
}

#[tokio::test]
async fn a_queued_key_moves_up_but_never_down() {
    let queue = WorkQueue::new();
    queue.at_priority(LOW_PRIORITY).add("a");
    queue.at_priority(LOW_PRIORITY).add("b");
    queue.add("b");
    queue.at_priority(LOW_PRIORITY).add("b");
    let item = queue.get().await.unwrap();
    assert_eq!((*item, item.priority()), ("b", 0));
    assert_eq!(take(&queue).await, "a");
}

#[tokio::test]
async fn raising_the_same_key_for_ever_leaves_nothing_behind() {
    let queue = WorkQueue::new();
    queue.add(1);
    for priority in 1..100_000 {
        queue.at_priority(priority).add(1);
    }
    assert_eq!((queue.len(), queue.get().await.unwrap().priority()), (1, 99_999));
}

#[tokio::test(start_paused = true)]
async fn a_key_waits_for_its_time_and_the_earliest_time_wins() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    queue.add_after("a", 10 * SECOND);
    queue.add_after("a", 3 * SECOND);
    queue.add_after("a", 5 * SECOND);
    queue.add_after("b", 4 * SECOND);
    queue.add_after("now", Duration::ZERO);
    assert_eq!((queue.len(), take(&queue).await), (1, "now"));
    assert_eq!((take(&queue).await, start.elapsed()), ("a", 3 * SECOND));
    assert_eq!((take(&queue).await, start.elapsed()), ("b", 4 * SECOND));
    tokio::time::sleep(60 * SECOND).await;
    assert!(queue.is_empty(), "the later times are forgotten");
}

#[tokio::test(start_paused = true)]
async fn an_earlier_time_reaches_a_get_that_sleeps_already() {
    let queue = WorkQueue::new();
    queue.add_after("late", 3600 * SECOND);
    let start = Instant::now();
    let waiter = waiter(&queue);
    tokio::time::sleep(SECOND).await;
    queue.add_after("early", SECOND);
    let (got, at) = waiter.await.unwrap();
    assert_eq!((got, at - start), (Some("early"), 2 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn being_added_otherwise_does_not_end_the_wait() {
    let queue = WorkQueue::new();
    queue.add_after("a", 5 * SECOND);
    queue.add("a");
    let start = Instant::now();
    assert_eq!((take(&queue).await, start.elapsed()), ("a", Duration::ZERO));
    assert_eq!((take(&queue).await, start.elapsed()), ("a", 5 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn delays_beyond_the_clock_are_only_very_long() {
    let queue = WorkQueue::new();
    queue.add_after("never", Duration::MAX);
    queue.add_after("soon", SECOND);
    assert_eq!(take(&queue).await, "soon");
    assert!(queue.is_empty());
}

/// All wait, one keeps the time; whoever keeps it may leave.
#[tokio::test(start_paused = true)]
async fn the_time_is_kept_whichever_get_is_dropped() {
    for dropped in 0..3 {
        let queue = WorkQueue::new();
        let start = Instant::now();
        (0..2).for_each(|key| queue.add_after(key, 5 * SECOND));
        let mut waiters: Vec<_> = (0..3).map(|_| waiter(&queue)).collect();
        settle().await;
        waiters.remove(dropped).stop().await;
        for waiter in waiters {
            let (got, at) = tokio::time::timeout(60 * SECOND, waiter).await.expect("was called").unwrap();
            assert_eq!((got.is_some(), at - start), (true, 5 * SECOND));
        }
    }
}

/// The timekeeper gets a key; another one has to keep the time.
#[tokio::test(start_paused = true)]
async fn the_time_is_kept_when_its_keeper_goes_to_work() {
    let queue = WorkQueue::new();
    queue.add_after("later", 5 * SECOND);
    let waiters = [waiter(&queue), waiter(&queue)];
    settle().await;
    queue.add("now");
    for waiter in waiters {
        let (got, _) = tokio::time::timeout(60 * SECOND, waiter).await.expect("was called").unwrap();
        assert!(got.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn keys_that_are_due_at_once_wake_as_many_workers() {
    let queue = WorkQueue::new();
    let waiters: Vec<_> = (0..4).map(|_| waiter(&queue)).collect();
    settle().await;
    (0..4).for_each(|key| queue.add_after(key, SECOND));
    let start = Instant::now();
    for waiter in waiters {
        let (_, at) = tokio::time::timeout(60 * SECOND, waiter).await.expect("was called").unwrap();
        assert_eq!(at - start, SECOND);
    }
}

#[tokio::test]
async fn a_key_that_was_added_meanwhile_wakes_another_worker_when_it_is_done() {
    let queue = WorkQueue::new();
    queue.add("a");
    let item = queue.get().await.unwrap();
    let waiter = waiter(&queue);
    settle().await;
    queue.add("a");
    item.done();
    settle().await;
    assert!(waiter.is_finished());
}

#[tokio::test]
async fn a_worker_that_never_waits_lets_others_run() {
    let queue = WorkQueue::new();
    let ran = Rc::new(Cell::new(false));
    let other = ran.clone();
    let local = tokio::task::LocalSet::new();
    local.spawn_local(async move { other.set(true) });
    let busy = async {
        for n in 0..10_000 {
            queue.add(n);
            take(&queue).await;
        }
    };
    local.run_until(busy).await;
    assert!(ran.get());
}

#[tokio::test(start_paused = true)]
async fn failures_wait_longer_each_time_until_they_are_forgotten() {
    let limiter = ItemExponential::new(SECOND, 60 * SECOND);
    let queue = WorkQueue::builder().rate_limiter(limiter).build();
    for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
        let start = Instant::now();
        queue.add_rate_limited("a");
        assert_eq!((take(&queue).await, start.elapsed()), ("a", seconds * SECOND));
    }
    assert_eq!(queue.num_requeues(&"a"), 8);
    queue.forget(&"a");
    assert_eq!(queue.num_requeues(&"a"), 0);
}

#[tokio::test(start_paused = true)]
async fn after_shutdown_workers_drain_what_is_queued_and_what_waits_is_forgotten() {
    let queue = WorkQueue::new();
    queue.add("a");
    queue.add_after("later", SECOND);
    queue.add_after("due", SECOND / 2);
    tokio::time::sleep(SECOND / 2).await;
    queue.shut_down();
    queue.add("b");
    queue.add_after("c", SECOND);
    assert!(queue.is_shutting_down());
    assert_eq!([take(&queue).await, take(&queue).await], ["a", "due"]);
    assert!(queue.get().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn no_worker_leaves_while_another_may_give_a_key_back() {
    let queue = WorkQueue::new();
    queue.add("a");
    let item = queue.get().await.unwrap();
    queue.add("a");
    queue.shut_down();
    let workers = [waiter(&queue), waiter(&queue)];
    settle().await;
    item.done();
    settle().await;
    let mut got = Vec::new();
    for worker in workers {
        assert!(worker.is_finished(), "was called");
        got.push(worker.await.unwrap().0);
    }
    assert_eq!(got, [Some("a"), None]);
    assert!(queue.get().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_queued_and_processing_keys() {
    let queue = WorkQueue::new();
    (0..3).for_each(|key| queue.add(key));
    let start = Instant::now();
    let work = async {
        while let Some(item) = queue.get().await {
            if *item == 1 && start.elapsed() < 2 * SECOND {
                queue.add(1); // is no longer taken: the queue is shutting down
            }
            tokio::time::sleep(SECOND).await;
        }
    };
    let drain = async {
        queue.shut_down_with_drain().await;
        start.elapsed()
    };
    let (drained, ()) = tokio::join!(drain, work);
    assert_eq!(drained, 3 * SECOND);
}

#[tokio::test]
async fn a_drain_of_an_idle_queue_returns_at_once() {
    WorkQueue::<u8>::new().shut_down_with_drain().await;
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_drain_leaves_the_queue_shut_down() {
    let queue = WorkQueue::new();
    queue.add(1);
    assert!(tokio::time::timeout(SECOND, queue.shut_down_with_drain()).await.is_err());
    assert_eq!((queue.is_shutting_down(), take(&queue).await), (true, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_producers_and_consumers_lose_nothing() {
    let queue = WorkQueue::new();
    let env = setpoint::Env::system();
    let work = |queue: WorkQueue<u32>| async move {
        let mut seen = 0u64;
        while let Some(item) = queue.get().await {
            seen += u64::from(*item);
        }
        seen
    };
    let workers: Vec<_> = (0..4).map(|_| env.spawn(work(queue.clone()))).collect();
    let produce = |queue: WorkQueue<u32>, part: u32| async move {
        for n in 0..5000 {
            let key = n * 4 + part;
            if n % 10 == 0 { queue.add_after(key, Duration::from_millis(1)) } else { queue.add(key) }
        }
    };
    let producers: Vec<_> = (0..4).map(|part| env.spawn(produce(queue.clone(), part))).collect();
    for producer in producers {
        producer.await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    queue.shut_down_with_drain().await;
    let mut sum = 0;
    for worker in workers {
        sum += worker.await.unwrap();
    }
    assert_eq!(sum, (0..20_000).sum::<u64>());
}

#[tokio::test(start_paused = true)]
async fn seven_metrics_say_what_the_queue_does() {
    let metrics = Metrics::default();
    let queue = WorkQueue::builder().metrics("foo", &metrics).build();
    let shows = |line: &str| {
        let page = metrics.render();
        assert!(page.lines().any(|found| found == line), "no {line} in\n{page}");
    };
    queue.add("a");
    queue.add("a");
    queue.add("b");
    queue.add_rate_limited("c");
    shows("workqueue_adds_total{name=\"foo\"} 2");
    shows("workqueue_retries_total{name=\"foo\"} 1");
    shows("workqueue_depth{name=\"foo\"} 2.0");
    tokio::time::sleep(2 * SECOND).await;
    let items = [queue.get().await.unwrap(), queue.get().await.unwrap()];
    shows("workqueue_adds_total{name=\"foo\"} 3"); // its time has come
    shows("workqueue_depth{name=\"foo\"} 1.0");
    shows("workqueue_queue_duration_seconds_sum{name=\"foo\"} 4.0");
    shows("workqueue_queue_duration_seconds_count{name=\"foo\"} 2");
    tokio::time::sleep(3 * SECOND).await;
    queue.get().await.unwrap().done();
    shows("workqueue_unfinished_work_seconds{name=\"foo\"} 6.0");
    shows("workqueue_longest_running_processor_seconds{name=\"foo\"} 3.0");
    drop(items);
    shows("workqueue_work_duration_seconds_sum{name=\"foo\"} 6.0");
    shows("workqueue_unfinished_work_seconds{name=\"foo\"} 0.0");
    drop(queue);
    assert!(!metrics.render().contains("workqueue_depth{"), "the queue is gone");
}
