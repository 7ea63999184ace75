//! The explicit style: a queue, and workers that call a function with each key.

use std::fmt::Display;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use futures::future::join_all;

use crate::WorkQueue;
use crate::facts::{ReconcileResult, Reconciling};

/// Runs `workers` workers until the queue is shut down and empty. Each takes a key, calls `sync` with it, and
/// forgets the key's failures if that worked, or adds it again, later and later, if not. A panic is a failure.
///
/// This is the loop that the workers of sample-controller run. [`Controller`](crate::Controller) does the
/// same and more.
///
/// ```
/// # let rt = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
/// # rt.block_on(async {
/// use setpoint::{WorkQueue, run_workers};
///
/// let queue = WorkQueue::new();
/// queue.add("default/web");
/// queue.shut_down();
/// run_workers(2, &queue, async |key: &str| {
///     assert_eq!(key, "default/web");
///     Ok::<(), String>(())
/// })
/// .await;
/// # });
/// ```
// Not `AsyncFn`: a future that contains one cannot be proved to be `Send`, so nobody could spawn it.
pub async fn run_workers<K, Fut, E>(workers: usize, queue: &WorkQueue<K>, sync: impl Fn(K) -> Fut)
where
    K: Eq + Hash + Clone + std::fmt::Debug,
    Fut: Future<Output = Result<(), E>>,
    E: Display,
{
    join_all((0..workers.max(1)).map(|_| run_worker(queue, &sync))).await;
}

async fn run_worker<K, Fut, E>(queue: &WorkQueue<K>, sync: &impl Fn(K) -> Fut)
where
    K: Eq + Hash + Clone + std::fmt::Debug,
    Fut: Future<Output = Result<(), E>>,
    E: Display,
{
    while let Some(item) = queue.get().await {
        let key: K = (*item).clone();
        let told = queue.told(&key).map(|told| {
            let id = told.0.next_id();
            Reconciling::begin(told, id, item.reasons(), queue.num_requeues(&key))
        });
        let ended = AssertUnwindSafe(sync(key.clone())).catch_unwind().await;
        if let Some(told) = told {
            told.end(|| match &ended {
                Ok(Ok(())) => ReconcileResult::Done,
                Ok(Err(error)) => ReconcileResult::Failed { error: error.to_string() },
                Err(_) => ReconcileResult::Failed { error: "it panicked".to_owned() },
            });
        }
        match ended {
            Ok(Ok(())) => queue.forget(&key),
            Ok(Err(error)) => {
                tracing::warn!(?key, %error, "sync failed; requeued with backoff");
                queue.add_rate_limited(key);
            }
            Err(_) => {
                tracing::error!(?key, "sync panicked; requeued with backoff");
                queue.add_rate_limited(key);
            }
        }
        item.done();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failures_and_panics_are_tried_again_until_they_work() {
        let queue = WorkQueue::new();
        queue.add("a");
        let calls = std::cell::Cell::new(0);
        let sync = async |_: &str| {
            calls.set(calls.get() + 1);
            match calls.get() {
                1 => Err("not yet"),
                2 => panic!("a bug"),
                _ => {
                    queue.shut_down();
                    Ok(())
                }
            }
        };
        run_workers(1, &queue, sync).await;
        assert_eq!((calls.get(), queue.num_requeues(&"a")), (3, 0));
    }
}
