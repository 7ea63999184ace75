//! A write that was started ends, whether or not its client still waits for it.
//!
//! A write runs where its client polls it, and that costs nothing more than a box. If the client goes away, the future is
//! dropped, and what is left of the write becomes a task of the server: it still has its place, its lane and its deadline,
//! and it still writes its audit line.

use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures::FutureExt;
use parking_lot::Mutex;
use setpoint_env::{Env, panic_text};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::task_set::TaskSet;

/// The writes that have started.
#[derive(Debug)]
pub(crate) struct Writes {
    env: Env,
    /// A client may go away on a thread that belongs to no runtime.
    runtime: Handle,
    running: AtomicUsize,
    /// Told when the last one that runs has ended.
    idle: Notify,
    /// Those whose clients have gone.
    orphans: Mutex<TaskSet>,
}

impl Writes {
    /// Call it inside a tokio runtime.
    pub(crate) fn new(env: &Env) -> Arc<Writes> {
        Arc::new(Writes {
            env: env.clone(),
            runtime: Handle::current(),
            running: AtomicUsize::new(0),
            idle: Notify::new(),
            orphans: Mutex::default(),
        })
    }

    /// Starts a write: from now on, dropping it does not stop it.
    pub(crate) fn start<T: Send + 'static>(
        self: &Arc<Writes>,
        write: impl Future<Output = T> + Send + 'static,
    ) -> Write<T> {
        Write { rest: Some((Box::pin(write), Running::new(self))) }
    }

    /// Waits until no write runs.
    pub(crate) async fn ended(&self) {
        loop {
            let mut idle = pin!(self.idle.notified());
            idle.as_mut().enable();
            if self.running.load(Ordering::Acquire) == 0 {
                return;
            }
            idle.await;
        }
    }

    fn adopt<T: Send + 'static>(&self, rest: Rest<T>) {
        let _entered = match Handle::try_current() {
            Ok(_) => None,
            // A thread at its very end can start nothing.
            Err(error) if error.is_thread_local_destroyed() => return,
            Err(_) => Some(self.runtime.enter()),
        };
        let task = self.env.spawn(async move {
            let (rest, _running) = rest;
            if let Err(panic) = AssertUnwindSafe(rest).catch_unwind().await {
                tracing::error!(panic = panic_text(&*panic), "a write panicked after its client had gone");
            }
        });
        // A runtime that is shutting down has dropped it at once, and nothing is left to own.
        self.orphans.lock().push(task);
    }
}

/// What is left of a write.
type Rest<T> = (Pin<Box<dyn Future<Output = T> + Send>>, Running);

/// A write that has started.
pub(crate) struct Write<T: Send + 'static> {
    /// None once it has ended.
    rest: Option<Rest<T>>,
}

impl<T: Send + 'static> Future for Write<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // Taken out while it is polled: one that panics has ended, too.
        let mut rest = self.rest.take().expect("a future is not polled after its end");
        let polled = rest.0.as_mut().poll(cx);
        if polled.is_pending() {
            self.rest = Some(rest);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Write<T> {
    fn drop(&mut self) {
        if let Some(rest) = self.rest.take() {
            let writes = Arc::clone(&rest.1.0);
            writes.adopt(rest);
        }
    }
}

/// Counts a write while it runs.
struct Running(Arc<Writes>);

impl Running {
    fn new(writes: &Arc<Writes>) -> Running {
        writes.running.fetch_add(1, Ordering::Relaxed);
        Running(Arc::clone(writes))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_write_that_is_dropped_ends_in_the_background() {
        let writes = Writes::new(&Env::system());
        let (release, released) = oneshot::channel::<()>();
        let (tell, told) = oneshot::channel();
        let mut write = writes.start(async move {
            released.await.unwrap();
            tell.send(7).unwrap();
        });
        assert!(futures::poll!(&mut write).is_pending());
        drop(write);
        assert_eq!(writes.running.load(Ordering::Relaxed), 1);
        release.send(()).unwrap();
        assert_eq!(told.await, Ok(7));
        writes.ended().await;
        assert_eq!(writes.running.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_write_that_was_waited_for_leaves_nothing_behind() {
        let writes = Writes::new(&Env::system());
        assert_eq!(writes.start(async { 7 }).await, 7);
        writes.ended().await;
        let mut waiting = pin!(writes.ended());
        let write = writes.start(async { 7 });
        assert!(futures::poll!(&mut waiting).is_pending(), "one that its client still has runs, too");
        assert_eq!(write.await, 7);
        waiting.await;
        let write = writes.start(async { panic!("as the test wants it") });
        assert!(AssertUnwindSafe(write).catch_unwind().await.is_err());
        assert_eq!(writes.running.load(Ordering::Relaxed), 0, "what has panicked is not polled again");
    }

    #[tokio::test]
    async fn a_write_may_be_dropped_where_no_runtime_is() {
        let writes = Writes::new(&Env::system());
        let (tell, told) = oneshot::channel();
        let write = writes.start(async move {
            // Needs the runtime's clock, too.
            tokio::time::sleep(Duration::from_millis(1)).await;
            tell.send(()).unwrap();
        });
        std::thread::scope(|scope| {
            scope.spawn(move || drop(write));
        });
        told.await.unwrap();
    }

    #[test]
    fn a_runtime_that_ends_takes_its_writes_with_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (writes, write) = runtime.block_on(async {
            let writes = Writes::new(&Env::system());
            let mut write = writes.start(std::future::pending::<()>());
            assert!(futures::poll!(&mut write).is_pending());
            (writes, write)
        });
        drop(runtime);
        drop(write);
        assert_eq!(writes.running.load(Ordering::Relaxed), 0);
    }
}
