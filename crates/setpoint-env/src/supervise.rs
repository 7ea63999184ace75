//! Tasks that outlive their panics.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures::FutureExt;

use crate::{Env, Task};

/// How long a task waits after its first panic. It doubles from panic to panic.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Whoever has run for so long begins with the first pause again.
const GOOD_RUN: Duration = Duration::from_secs(5 * 60);

/// What is known about a task that is restarted after a panic.
#[derive(Debug)]
pub struct TaskHealth {
    name: &'static str,
    panics: AtomicU64,
    is_down: AtomicBool,
}

impl TaskHealth {
    /// The health of a task that has not panicked yet.
    pub fn new(name: &'static str) -> Arc<TaskHealth> {
        Arc::new(TaskHealth { name, panics: AtomicU64::new(0), is_down: AtomicBool::new(false) })
    }

    /// What the task is called in logs.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// How often it has panicked.
    pub fn panics(&self) -> u64 {
        self.panics.load(Relaxed)
    }

    /// Whether it has panicked and is not restarted yet.
    pub fn is_down(&self) -> bool {
        self.is_down.load(Relaxed)
    }
}

impl Env {
    /// Runs a task until its future ends or its owner drops it. A panic is logged, and `begin` is called again after a pause,
    /// so that no background task dies without being noticed. What the future shares with others has to be valid
    /// wherever it may panic.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    /// # rt.block_on(async {
    /// use setpoint_env::{Env, TaskHealth};
    ///
    /// let (env, health) = (Env::seeded(7), TaskHealth::new("example"));
    /// let mut begun = 0;
    /// let task = env.supervise(&health, move || {
    ///     begun += 1;
    ///     async move { assert_eq!(begun, 2, "the first one panics") }
    /// });
    /// task.await.unwrap();
    /// assert_eq!(health.panics(), 1);
    /// # });
    /// ```
    pub fn supervise<F>(
        &self,
        health: &Arc<TaskHealth>,
        begin: impl FnMut() -> F + Send + 'static,
    ) -> Task<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.spawn(restart(self.clone(), Arc::clone(health), begin))
    }
}

async fn restart<F: Future<Output = ()>>(env: Env, health: Arc<TaskHealth>, mut begin: impl FnMut() -> F) {
    let mut pause = FIRST_PAUSE;
    loop {
        let began = env.instant();
        let Err(panic) = AssertUnwindSafe(async { begin().await }).catch_unwind().await else { return };
        health.panics.fetch_add(1, Relaxed);
        health.is_down.store(true, Relaxed);
        if env.instant().saturating_duration_since(began) >= GOOD_RUN {
            pause = FIRST_PAUSE;
        }
        tracing::error!(
            task = health.name,
            panic = panic_text(&*panic),
            ?pause,
            "a background task panicked and will be restarted"
        );
        tokio::time::sleep(pause).await;
        pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        health.is_down.store(false, Relaxed);
    }
}

/// What a panic says.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no text)")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use super::*;

    /// A task that panics so often, then runs for ever.
    fn panics(env: &Env, health: &Arc<TaskHealth>, times: usize) -> (Task<()>, Arc<AtomicUsize>) {
        let begun = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&begun);
        let task = env.supervise(health, move || {
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
        let (env, health) = (Env::seeded(1), TaskHealth::new("test"));
        let (_task, begun) = panics(&env, &health, 3);
        let mut seen = Vec::new();
        for _ in 0..8 {
            tokio::time::sleep(Duration::from_millis(1001)).await;
            seen.push((begun.load(Relaxed), health.is_down()));
        }
        let (down, up) = (true, false);
        assert_eq!(
            seen,
            [(2, down), (2, down), (3, down), (3, down), (3, down), (3, down), (4, up), (4, up)]
        );
        assert_eq!(health.panics(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_is_down_ends_with_its_owner() {
        let (env, health) = (Env::seeded(1), TaskHealth::new("test"));
        let (task, begun) = panics(&env, &health, usize::MAX);
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(task);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(begun.load(Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_ends_by_itself_is_not_restarted() {
        let (env, health) = (Env::seeded(1), TaskHealth::new("test"));
        env.supervise(&health, || std::future::ready(())).await.unwrap();
        assert_eq!((health.is_down(), health.panics()), (false, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_has_the_text_that_it_was_given() {
        for (text, panic) in [
            ("constant", std::panic::catch_unwind(|| panic!("constant")).unwrap_err()),
            ("number 7", std::panic::catch_unwind(|| panic!("number {}", 7)).unwrap_err()),
            ("(no text)", std::panic::catch_unwind(|| std::panic::panic_any(7)).unwrap_err()),
        ] {
            assert_eq!(panic_text(&*panic), text);
        }
    }
}
