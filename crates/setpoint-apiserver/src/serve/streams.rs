//! The tasks of one HTTP/2 connection.

use std::sync::Arc;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use setpoint_env::{Env, Task};

/// Owns the tasks that HTTP/2 starts for its streams: they end with their connection at the latest.
pub(super) struct Streams {
    executor: Executor,
}

impl Streams {
    pub(super) fn new(env: &Env) -> Streams {
        Streams { executor: Executor { env: env.clone(), tasks: Arc::default() } }
    }

    pub(super) fn executor(&self) -> Executor {
        self.executor.clone()
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        // Outside of the lock: a task that is dropped may drop anything.
        let tasks = std::mem::take(&mut *self.executor.tasks.lock());
        drop(tasks);
    }
}

/// How hyper starts a task for a stream.
#[derive(Clone)]
pub(super) struct Executor {
    env: Env,
    tasks: Arc<Mutex<FuturesUnordered<Task<()>>>>,
}

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let task = self.env.spawn(async move {
            stream.await;
        });
        let mut tasks = self.tasks.lock();
        // Forget those that have ended since the last time, so that there are never more than are running
        // plus those that ended after it.
        while let Some(Some(_ended)) = tasks.next().now_or_never() {}
        tasks.push(task);
    }
}
