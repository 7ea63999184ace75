//! The work queue beside client-go's (`peers/go/queue`), case by case.

use std::sync::Arc;
use std::time::{Duration, Instant};

use setpoint::{ObjectKey, WorkQueue};
use tokio::runtime::Runtime;

const N: usize = 100_000;

type Queue = WorkQueue<ObjectKey>;

/// Runs every case; prints its name and nanoseconds an operation, the median of several runs.
pub(crate) fn run(runs: usize) -> anyhow::Result<()> {
    anyhow::ensure!(runs > 0, "no run has no median");
    for (name, time) in cases(runs)? {
        println!("{name} {time:.1}");
    }
    Ok(())
}

fn cases(runs: usize) -> anyhow::Result<Vec<(&'static str, f64)>> {
    let one = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let many = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
    Ok(vec![
        ("serial", measure(runs, |queue, keys| one.block_on(serial(queue, keys)))),
        ("1x1", measure(runs, |queue, keys| across(&many, 1, 1, queue, keys))),
        ("4x4", measure(runs, |queue, keys| across(&many, 4, 4, queue, keys))),
        ("duplicates", measure(runs, |queue, keys| one.block_on(duplicates(queue, keys)))),
        ("fill_drain", measure(runs, |queue, keys| one.block_on(fill(queue, keys)))),
        ("add_after", measure(runs, add_after)),
        ("rate_limited", measure(runs, rate_limited)),
    ])
}

/// The median time an operation of `body`, which does `N` operations. What is left of queue and keys is
/// dropped outside, as the peer's garbage is collected outside.
fn measure(runs: usize, body: impl Fn(&Queue, &[ObjectKey])) -> f64 {
    let keys: Vec<_> = (0..N).map(|n| ObjectKey::namespaced("default", &format!("object-{n:06}"))).collect();
    let mut times: Vec<_> = (0..runs)
        .map(|_| {
            let queue = Queue::new();
            let start = Instant::now();
            body(&queue, &keys);
            start.elapsed().as_nanos() as f64 / N as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[runs / 2]
}

/// One after the other, with a thousand keys that stay in the processor's cache.
async fn serial(queue: &Queue, keys: &[ObjectKey]) {
    for n in 0..N {
        queue.add(keys[n % 1000].clone());
        queue.get().await.expect("a key was added").done();
    }
}

/// Lets producers add and consumers get and finish every key once, each in a task.
fn across(runtime: &Runtime, producers: usize, consumers: usize, queue: &Queue, keys: &[ObjectKey]) {
    let keys: Arc<[ObjectKey]> = keys.into();
    runtime.block_on(async {
        let consume = |queue: Queue| async move { while queue.get().await.is_some() {} };
        let working: Vec<_> = (0..consumers).map(|_| tokio::spawn(consume(queue.clone()))).collect();
        let produce = |queue: Queue, keys: Arc<[ObjectKey]>, part: usize| async move {
            keys.iter().skip(part).step_by(producers).for_each(|key| queue.add(key.clone()));
        };
        let adding = (0..producers).map(|part| tokio::spawn(produce(queue.clone(), keys.clone(), part)));
        for task in adding.collect::<Vec<_>>() {
            task.await.expect("adding does not panic");
        }
        queue.shut_down();
        for task in working {
            task.await.expect("getting does not panic");
        }
    });
}

/// Adds each of a thousand keys a hundred times, then drains.
async fn duplicates(queue: &Queue, keys: &[ObjectKey]) {
    for n in 0..N {
        queue.add(keys[n % 1000].clone());
    }
    drain(queue).await;
}

async fn fill(queue: &Queue, keys: &[ObjectKey]) {
    for key in keys {
        queue.add(key.clone());
    }
    drain(queue).await;
}

async fn drain(queue: &Queue) {
    while !queue.is_empty() {
        queue.get().await.expect("a key is queued").done();
    }
}

fn add_after(queue: &Queue, keys: &[ObjectKey]) {
    for (n, key) in keys.iter().enumerate() {
        queue
            .add_after(key.clone(), Duration::from_secs(3600) + Duration::from_micros((n * 7919 % N) as u64));
    }
}

fn rate_limited(queue: &Queue, keys: &[ObjectKey]) {
    for key in keys {
        queue.add_rate_limited(key.clone());
        queue.forget(key);
    }
}
