//! The tasks of one HTTP/2 connection.

use std::sync::Arc;

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
    tasks: Arc<Mutex<Tasks>>,
}

/// Tasks that run, and some that have ended.
#[derive(Default)]
struct Tasks {
    all: Vec<Task<()>>,
    /// How many there may be before those that have ended are forgotten.
    limit: usize,
}

impl Tasks {
    /// There are never more than two, or twice as many as were running when some were last forgotten.
    fn push(&mut self, task: Task<()>) {
        if self.all.len() >= self.limit {
            self.all.retain(|task| !task.is_finished());
            self.limit = (self.all.len() * 2).max(2);
        }
        self.all.push(task);
    }
}

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let task = self.env.spawn(async move {
            stream.await;
        });
        self.tasks.lock().push(task);
    }
}
