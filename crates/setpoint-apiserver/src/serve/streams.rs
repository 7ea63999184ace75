//! The tasks of one HTTP/2 connection.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use parking_lot::Mutex;
use setpoint_env::{Env, panic_text};

use crate::task_set::TaskSet;

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
    tasks: Arc<Mutex<TaskSet>>,
}

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let task = self.env.spawn(async move {
            // What the service does is guarded already; whatever else panics costs this stream, and shall be known.
            if let Err(panic) = AssertUnwindSafe(stream).catch_unwind().await {
                tracing::error!(panic = panic_text(&*panic), "a stream of an HTTP/2 connection panicked");
            }
        });
        self.tasks.lock().push(task);
    }
}
