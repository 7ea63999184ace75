//! Tasks that are paused, resumed and killed together: a process of a simulation.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// The tasks that were spawned through one [`Env::process`](crate::Env::process), as the process that they would be in
/// production. Clones are the same process.
///
/// A paused task is not polled: its timers go on, and what has become due happens all at once when it is resumed, as
/// after SIGSTOP and SIGCONT. A killed one is never polled again. Neither takes a turn of the runtime: not one more line
/// of the process runs after the call.
#[derive(Clone, Debug, Default)]
pub struct Process {
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    is: AtomicU8,
    /// Of the tasks that wanted to run while it was paused.
    waiting: Mutex<Vec<Waker>>,
}

const RUNNING: u8 = 0;
const PAUSED: u8 = 1;
const KILLED: u8 = 2;

impl Process {
    /// Stops every task where it stands, until [`Process::resume`].
    pub fn pause(&self) {
        let _killed = self.change(RUNNING, PAUSED);
    }

    /// Lets the tasks of a paused process go on.
    pub fn resume(&self) {
        if self.change(PAUSED, RUNNING) {
            std::mem::take(&mut *self.state.waiting.lock()).into_iter().for_each(Waker::wake);
        }
    }

    /// Stops every task for good. What they own is dropped with their [`Task`](crate::Task)s.
    pub fn kill(&self) {
        self.state.is.store(KILLED, Ordering::Relaxed);
        self.state.waiting.lock().clear();
    }

    /// Whether it was killed.
    pub fn is_killed(&self) -> bool {
        self.state.is.load(Ordering::Relaxed) == KILLED
    }

    fn change(&self, from: u8, to: u8) -> bool {
        self.state.is.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn run<F: Future>(&self, future: F) -> Member<F> {
        Member { future: Box::pin(future), process: self.clone() }
    }

    /// Whether a task may run now; if not, it is woken when it may.
    fn may_run(&self, cx: &Context<'_>) -> bool {
        match self.state.is.load(Ordering::Relaxed) {
            RUNNING => true,
            PAUSED => {
                self.state.waiting.lock().push(cx.waker().clone());
                false
            }
            _ => false,
        }
    }
}

/// A task of a process.
pub(crate) struct Member<F> {
    future: Pin<Box<F>>,
    process: Process,
}

impl<F: Future> Future for Member<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if self.process.may_run(cx) { self.future.as_mut().poll(cx) } else { Poll::Pending }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;
    use crate::{Env, Task};

    const SECOND: Duration = Duration::from_secs(1);

    /// Counts seconds, and lets a task of its own count them twice.
    fn counting(env: &Env) -> (Arc<AtomicU64>, Task<()>) {
        let (count, inner, env) = (Arc::new(AtomicU64::new(0)), env.clone(), env.clone());
        let (one, two) = (count.clone(), count.clone());
        let task = env.spawn(async move {
            let _other = inner.spawn(async move {
                loop {
                    sleep(SECOND).await;
                    two.fetch_add(1, Ordering::Relaxed);
                }
            });
            loop {
                sleep(SECOND).await;
                one.fetch_add(1, Ordering::Relaxed);
            }
        });
        (count, task)
    }

    #[tokio::test(start_paused = true)]
    async fn a_paused_process_stands_still_and_others_go_on() {
        let env = Env::seeded(1);
        let (inside, process) = env.process();
        let ((count, _task), (others, _other)) = (counting(&inside), counting(&env));
        sleep(SECOND * 5 / 2).await;
        assert_eq!(count.load(Ordering::Relaxed), 4);
        process.pause();
        sleep(10 * SECOND).await;
        assert_eq!(count.load(Ordering::Relaxed), 4);
        assert_eq!(others.load(Ordering::Relaxed), 24);
        process.resume();
        sleep(SECOND / 10).await;
        assert_eq!(count.load(Ordering::Relaxed), 6, "what has become due happens at once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_killed_process_does_nothing_more_whatever_it_is_told() {
        let env = Env::seeded(1);
        let (inside, process) = env.process();
        let (count, _task) = counting(&inside);
        sleep(SECOND * 5 / 2).await;
        process.kill();
        process.resume();
        process.pause();
        process.resume();
        sleep(10 * SECOND).await;
        assert_eq!(count.load(Ordering::Relaxed), 4);
        assert!(process.is_killed());
    }
}
