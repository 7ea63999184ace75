//! Processor time is shared, too: what goes through a lane has a part of the processors, however much of it there is.
//!
//! A future in a lane is polled only while no more than a few others of the same lane are. So a thousand requests of one
//! user keep half of the processors busy at most, and whoever comes from another lane waits behind one of their steps,
//! not behind all.

use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};

use tokio::sync::Semaphore;
use tokio_util::sync::PollSemaphore;

/// Half of the processors, and one at least.
static WIDTH: LazyLock<usize> = LazyLock::new(|| {
    std::thread::available_parallelism().map_or(1, |processors| (processors.get() / 2).max(1))
});

/// What goes through it shares half of the processors.
#[derive(Clone, Debug)]
pub(crate) struct Lane(Arc<Semaphore>);

impl Default for Lane {
    fn default() -> Lane {
        Lane(Arc::new(Semaphore::new(*WIDTH)))
    }
}

impl Lane {
    /// Lets a future go through this lane.
    pub(crate) fn run<F: Future>(&self, inner: F) -> InLane<F> {
        InLane { turn: PollSemaphore::new(Arc::clone(&self.0)), inner: Box::pin(inner) }
    }
}

/// A future that takes turns.
pub(crate) struct InLane<F> {
    turn: PollSemaphore,
    inner: Pin<Box<F>>,
}

impl<F: Future> Future for InLane<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        // Nobody closes it. The turn ends with this poll: while the future waits, others go.
        let _turn = ready!(this.turn.poll_acquire(cx));
        this.inner.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;

    use super::*;

    #[tokio::test]
    async fn whoever_waits_lets_others_go_and_all_come_to_their_end() {
        let lane = Lane(Arc::new(Semaphore::new(1)));
        let gate = Arc::new(Semaphore::new(0));
        let done = AtomicUsize::new(0);
        let one = |n: usize| {
            let (gate, done) = (Arc::clone(&gate), &done);
            lane.run(async move {
                if n == 0 {
                    // The first waits for the last, behind which the others are.
                    drop(gate.acquire().await.unwrap());
                } else if n == 99 {
                    gate.add_permits(1);
                }
                done.fetch_add(1, Ordering::Relaxed);
            })
        };
        join_all((0..100).map(one)).await;
        assert_eq!(done.load(Ordering::Relaxed), 100);
    }

    #[tokio::test]
    async fn no_more_steps_than_the_lane_is_wide_are_taken_at_the_same_time() {
        let lane = Lane(Arc::new(Semaphore::new(1)));
        let held = Arc::clone(&lane.0).acquire_owned().await.unwrap();
        let mut waiting = lane.run(async { 5 });
        assert!(futures::poll!(&mut waiting).is_pending());
        drop(held);
        assert_eq!(waiting.await, 5);
    }
}
