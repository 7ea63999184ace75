//! The server's own tasks. One that panics costs its restart: it is logged, counted and shown in `/readyz`, and it begins
//! again after a while.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use setpoint_env::{Env, Task};
use tokio::sync::Notify;

use crate::serve;
use crate::server::Core;
use crate::status::Result;
use crate::storage::Watch;

/// How long a task waits after its first panic. It doubles from panic to panic.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Whoever has run for so long begins with the first pause again.
const GOOD_RUN: Duration = Duration::from_secs(5 * 60);
/// How long a task waits before it tries again what failed, or was not finished.
const RETRY: Duration = Duration::from_secs(1);

/// The tasks of one server.
#[derive(Debug, Default)]
pub(crate) struct Background {
    tasks: Mutex<Vec<Arc<Health>>>,
}

/// What is known about one task.
#[derive(Debug)]
struct Health {
    name: &'static str,
    panics: AtomicU64,
    /// Between a panic and the restart.
    is_down: AtomicBool,
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
        let health = Arc::new(Health { name, panics: AtomicU64::new(0), is_down: AtomicBool::new(false) });
        self.tasks.lock().push(Arc::clone(&health));
        env.spawn(supervise(env.clone(), health, begin))
    }

    /// The tasks that do not run at the moment.
    pub(crate) fn down(&self) -> Vec<&'static str> {
        let tasks = self.tasks.lock();
        tasks.iter().filter(|health| health.is_down.load(Relaxed)).map(|health| health.name).collect()
    }

    /// How often each task has panicked.
    pub(crate) fn panics(&self) -> Vec<(&'static str, u64)> {
        self.tasks.lock().iter().map(|health| (health.name, health.panics.load(Relaxed))).collect()
    }
}

async fn supervise<F>(env: Env, health: Arc<Health>, mut begin: impl FnMut() -> F)
where
    F: Future<Output = ()>,
{
    let mut pause = FIRST_PAUSE;
    loop {
        let began = env.instant();
        // Safe to go on after a panic: the task begins anew, and what tasks share does not poison.
        let ended = AssertUnwindSafe(async { begin().await }).catch_unwind().await;
        let Err(panic) = ended else { return };
        health.panics.fetch_add(1, Relaxed);
        health.is_down.store(true, Relaxed);
        if env.instant().duration_since(began) >= GOOD_RUN {
            pause = FIRST_PAUSE;
        }
        tracing::error!(
            task = health.name,
            panic = serve::text_of(&*panic),
            ?pause,
            "a background task panicked and will be restarted"
        );
        tokio::time::sleep(pause).await;
        pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        health.is_down.store(false, Relaxed);
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
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// A task that panics so often, then runs for ever.
    fn panics(background: &Background, env: &Env, times: usize) -> (Task<()>, Arc<AtomicUsize>) {
        let begun = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&begun);
        let task = background.run(env, "test", move || {
            let n = counted.fetch_add(1, Relaxed);
            async move {
                assert!(n >= times, "as the test wants it");
                std::future::pending::<()>().await;
            }
        });
        (task, begun)
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_is_restarted_later_and_later_and_it_is_known() {
        let (background, env) = (Background::default(), Env::seeded(1));
        let (_task, begun) = panics(&background, &env, 3);
        let mut seen = Vec::new();
        for _ in 0..8 {
            tokio::time::sleep(Duration::from_millis(1001)).await;
            seen.push((begun.load(Relaxed), background.down().len()));
        }
        assert_eq!(seen, [(2, 1), (2, 1), (3, 1), (3, 1), (3, 1), (3, 1), (4, 0), (4, 0)]);
        assert_eq!(background.panics(), [("test", 3)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_is_down_ends_with_its_owner() {
        let (background, env) = (Background::default(), Env::seeded(1));
        let (task, begun) = panics(&background, &env, usize::MAX);
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(task);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(begun.load(Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_ends_by_itself_is_not_restarted() {
        let (background, env) = (Background::default(), Env::seeded(1));
        background.run(&env, "test", || std::future::ready(())).await.unwrap();
        assert_eq!((background.down(), background.panics()), (vec![], vec![("test", 0)]));
    }
}
