//! The server's own tasks. One that panics costs its restart: it is logged, counted and shown in `/readyz`, and it begins
//! again after a while.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use setpoint_env::{Env, Task, TaskHealth};
use tokio::sync::Notify;

use crate::server::Core;
use crate::status::Result;
use crate::storage::Watch;

/// How long a task waits before it tries again what failed, or was not finished.
const RETRY: Duration = Duration::from_secs(1);

/// The tasks of one server.
#[derive(Debug, Default)]
pub(crate) struct Background {
    tasks: Mutex<Vec<Arc<TaskHealth>>>,
}

impl Background {
    /// Runs a task until its future ends or its owner drops it. `begin` is called again after each panic.
    pub(crate) fn run<F>(
        &self,
        env: &Env,
        name: &'static str,
        begin: impl FnMut() -> F + Send + 'static,
    ) -> Task<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let health = TaskHealth::new(name);
        self.tasks.lock().push(Arc::clone(&health));
        env.supervise(&health, begin)
    }

    /// The tasks that do not run at the moment.
    pub(crate) fn down(&self) -> Vec<&'static str> {
        let tasks = self.tasks.lock();
        tasks.iter().filter(|health| health.is_down()).map(|health| health.name()).collect()
    }

    /// How often each task has panicked.
    pub(crate) fn panics(&self) -> Vec<(&'static str, u64)> {
        self.tasks.lock().iter().map(|health| (health.name(), health.panics())).collect()
    }
}

/// What a task keeps up to date with a collection.
#[derive(Clone)]
pub(crate) struct Upkeep {
    /// The collection whose changes matter.
    pub(crate) collection: Arc<str>,
    /// Told when there is something to do besides.
    pub(crate) wake: Arc<Notify>,
    /// Brings it up to date; whether something is left to do later.
    pub(crate) tend: fn(&Core) -> BoxFuture<'_, Result<bool>>,
}

impl Upkeep {
    /// Tends at once, then after each change and whenever it is told to, until the server has gone. It does not keep the
    /// server alive, so that whoever drops it can open its folder again at once.
    pub(crate) async fn run(self, name: &'static str, core: Weak<Core>) {
        let Some(mut watch) = self.changes(&core) else { return };
        loop {
            let Some(running) = core.upgrade() else { return };
            let unfinished = (self.tend)(&running).await.unwrap_or_else(|error| {
                tracing::warn!(task = name, %error, "a background task failed; retrying");
                true
            });
            drop(running);
            let pause = async {
                if unfinished {
                    tokio::time::sleep(RETRY).await;
                } else {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                biased;
                () = watch.changed() => {}
                () = self.wake.notified() => {}
                () = pause => {}
            }
            // What has changed is read anew; the place in the history only has to move on.
            if watch.ready().is_err() {
                let Some(newer) = self.changes(&core) else { return };
                watch = newer;
            }
        }
    }

    /// Changes from now on.
    fn changes(&self, core: &Weak<Core>) -> Option<Watch> {
        let core = core.upgrade()?;
        core.storage.watch(&self.collection, core.storage.revision()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_tasks_that_are_down_and_their_panics_are_known() {
        let (background, env) = (Background::default(), Env::seeded(1));
        let mut begun = 0;
        let _well = background.run(&env, "well", std::future::pending);
        let _unwell = background.run(&env, "unwell", move || {
            begun += 1;
            async move {
                assert!(begun > 1, "as the test wants it");
                std::future::pending::<()>().await;
            }
        });
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(background.down(), ["unwell"]);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((background.down(), background.panics()), (vec![], vec![("well", 0), ("unwell", 1)]));
    }
}
