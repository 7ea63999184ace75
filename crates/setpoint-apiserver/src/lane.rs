//! Processor time is shared, too: what goes through a lane has a part of the processors, however much of it there is.
//!
//! A future or a body in a lane is polled only while no more than a few others of the same lane are. So a thousand requests
//! of one user keep half of the runtime's threads busy at most, and whoever comes from another lane waits behind one of
//! their steps, not behind all.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};

/// Who waits for a turn looks again after this. It is told when there is one, but so may be somebody who then does not come:
/// a body that its client has stopped to read.
const RETRY: Duration = Duration::from_millis(10);

/// What goes through it shares half of the runtime's threads.
#[derive(Clone, Debug)]
pub(crate) struct Lane(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    free: Semaphore,
    released: Notify,
}

impl Default for Lane {
    fn default() -> Lane {
        Lane::new(width())
    }
}

/// Half of the threads that the runtime really works with, so that one lane never has them all; and one at least.
fn width() -> usize {
    let workers = Handle::try_current().map_or(1, |runtime| runtime.metrics().num_workers());
    (workers / 2).max(1)
}

impl Lane {
    fn new(width: usize) -> Lane {
        Lane(Arc::new(Shared { free: Semaphore::new(width), released: Notify::new() }))
    }

    /// Lets a future go through this lane.
    pub(crate) fn run<F: Future>(&self, inner: F) -> InLane<F> {
        InLane { turns: self.turns(), inner: Box::pin(inner) }
    }

    /// Takes a turn, as a step that does not end would.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> Turn<'_> {
        self.0.free.try_acquire().expect("there is a turn").forget();
        Turn(&self.0)
    }

    /// Lets anything that is polled go through this lane.
    pub(crate) fn turns(&self) -> Turns {
        Turns { lane: self.clone(), waiting: None }
    }
}

/// Takes turns in a lane.
pub(crate) struct Turns {
    lane: Lane,
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Turns {
    /// Polls `step` once there is a turn, which ends with this poll: while the step waits, others go.
    pub(crate) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        step: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        loop {
            if let Ok(permit) = self.lane.0.free.try_acquire() {
                permit.forget();
                let _turn = Turn(&self.lane.0);
                self.waiting = None;
                return step(cx);
            }
            let waiting = self.waiting.get_or_insert_with(|| {
                let shared = Arc::clone(&self.lane.0);
                Box::pin(async move {
                    // It is looked at again either way.
                    let _late = tokio::time::timeout(RETRY, shared.released.notified()).await;
                })
            });
            ready!(waiting.as_mut().poll(cx));
            self.waiting = None;
        }
    }
}

/// A turn; it ends when it is dropped, after a panic, too.
pub(crate) struct Turn<'a>(&'a Shared);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.free.add_permits(1);
        self.0.released.notify_one();
    }
}

/// A future that takes turns.
pub(crate) struct InLane<F> {
    turns: Turns,
    inner: Pin<Box<F>>,
}

impl<F: Future> Future for InLane<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        this.turns.poll(cx, |cx| this.inner.as_mut().poll(cx))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;

    use super::*;

    #[tokio::test]
    async fn whoever_waits_lets_others_go_and_all_come_to_their_end() {
        let lane = Lane::new(1);
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
        let lane = Lane::new(1);
        let held = lane.hold();
        let mut waiting = lane.run(async { 5 });
        assert!(futures::poll!(&mut waiting).is_pending());
        drop(held);
        assert_eq!(waiting.await, 5);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_does_not_come_when_it_is_their_turn_holds_up_nobody() {
        let lane = Lane::new(1);
        let held = lane.hold();
        let (mut idle, mut busy) = (lane.run(async {}), lane.run(async {}));
        assert!(futures::poll!(&mut idle).is_pending());
        assert!(futures::poll!(&mut busy).is_pending());
        // The idle one is told, and is polled no more.
        drop(held);
        tokio::time::timeout(Duration::from_secs(1), busy).await.expect("the turn is free");
        drop(idle);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 6)]
    async fn a_lane_is_half_as_wide_as_the_runtime() {
        assert_eq!(Lane::default().0.free.available_permits(), 3);
    }

    #[tokio::test]
    async fn a_lane_on_one_thread_goes_on() {
        assert_eq!(Lane::default().0.free.available_permits(), 1);
    }
}
