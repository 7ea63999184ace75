//! Tasks that are paused, resumed and killed together: a process of a simulation.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use rand::RngExt;
use rand::rngs::StdRng;
use tokio::sync::Notify;

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
    changed: Notify,
    /// Decides which task waits for others, if the order of tasks follows the seed.
    order: Option<Mutex<StdRng>>,
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its tasks run.
    Running,
    /// Its tasks stand still.
    Paused,
    /// Its tasks never run again.
    Killed,
}

const RUNNING: u8 = 0;
const PAUSED: u8 = 1;
const KILLED: u8 = 2;

/// One poll in so many is put off when the order of tasks follows the seed.
const PUT_OFF: u32 = 4;

impl Process {
    pub(crate) fn new(order: Option<StdRng>) -> Process {
        Process { state: Arc::new(State { order: order.map(Mutex::new), ..State::default() }) }
    }

    /// Stops every task where it stands, until [`Process::resume`].
    pub fn pause(&self) {
        if self.change(RUNNING, PAUSED) {
            self.state.changed.notify_waiters();
        }
    }

    /// Lets the tasks of a paused process go on.
    pub fn resume(&self) {
        if self.change(PAUSED, RUNNING) {
            std::mem::take(&mut *self.state.waiting.lock()).into_iter().for_each(Waker::wake);
            self.state.changed.notify_waiters();
        }
    }

    /// Stops every task for good. What they own is dropped with their [`Task`](crate::Task)s.
    pub fn kill(&self) {
        self.state.is.store(KILLED, Ordering::Relaxed);
        self.state.waiting.lock().clear();
        self.state.changed.notify_waiters();
    }

    /// Whether both are the same process.
    pub fn is(&self, other: &Process) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }

    /// Waits until it is killed.
    pub async fn killed(&self) {
        while self.other_than(Phase::Running).await != Phase::Killed {
            self.other_than(Phase::Paused).await;
        }
    }

    /// What it does now.
    pub fn phase(&self) -> Phase {
        match self.state.is.load(Ordering::Relaxed) {
            RUNNING => Phase::Running,
            PAUSED => Phase::Paused,
            _ => Phase::Killed,
        }
    }

    /// Waits until it does something else than this.
    pub async fn other_than(&self, phase: Phase) -> Phase {
        loop {
            let mut changed = pin!(self.state.changed.notified());
            changed.as_mut().enable();
            let now = self.phase();
            if now != phase {
                return now;
            }
            changed.await;
        }
    }

    /// Whether it was killed.
    pub fn is_killed(&self) -> bool {
        self.state.is.load(Ordering::Relaxed) == KILLED
    }

    fn change(&self, from: u8, to: u8) -> bool {
        self.state.is.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn run<T>(&self, future: Pin<Box<dyn Future<Output = T> + Send>>) -> Member<T> {
        Member { future, process: self.clone() }
    }

    /// Whether a task may run now; if not, it is woken when it may.
    fn may_run(&self, cx: &Context<'_>) -> bool {
        match self.state.is.load(Ordering::Relaxed) {
            RUNNING => {
                let is_put_off =
                    self.state.order.as_ref().is_some_and(|order| order.lock().random_ratio(1, PUT_OFF));
                if is_put_off {
                    cx.waker().wake_by_ref();
                }
                !is_put_off
            }
            PAUSED => {
                self.state.waiting.lock().push(cx.waker().clone());
                false
            }
            _ => false,
        }
    }
}

/// A task of a process.
pub(crate) struct Member<T> {
    future: Pin<Box<dyn Future<Output = T> + Send>>,
    process: Process,
}

impl<T> Future for Member<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
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
        process.killed().await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_follows_a_process_sees_it_stand_still_and_go_on() {
        let (_env, process) = Env::seeded(1).process();
        let followed = {
            let process = process.clone();
            Env::seeded(1).spawn(async move {
                let paused = process.other_than(Phase::Running).await;
                (paused, process.other_than(paused).await)
            })
        };
        sleep(SECOND).await;
        process.pause();
        sleep(SECOND).await;
        assert!(!followed.is_finished());
        process.resume();
        assert_eq!(followed.await.unwrap(), (Phase::Paused, Phase::Running));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_the_end_of_a_process_hears_of_it() {
        let (env, process) = Env::seeded(1).process();
        let waiting = {
            let process = process.clone();
            Env::seeded(1).spawn(async move { process.killed().await })
        };
        let _task = env.spawn(sleep(10 * SECOND));
        sleep(SECOND).await;
        assert!(!waiting.is_finished());
        process.kill();
        waiting.await.unwrap();
    }
}
