//! What runs, in the order in which it was started: stopped in reverse, a stage after the other.

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use tokio_util::sync::CancellationToken;

use super::ManagerError;

type Ending = BoxFuture<'static, Result<(), ManagerError>>;

/// A stage ends before the one below it is told to.
#[derive(Default)]
pub(super) struct Stages(Vec<Stage>);

struct Stage {
    stopping: CancellationToken,
    running: FuturesUnordered<Ending>,
}

impl Stages {
    /// The next stage: what tells it to end.
    pub(super) fn begin(&mut self) -> CancellationToken {
        let stopping = CancellationToken::new();
        self.0.push(Stage { stopping: stopping.clone(), running: FuturesUnordered::new() });
        stopping
    }

    /// Something that runs in the stage that was begun last.
    pub(super) fn run(&mut self, ending: Ending) {
        if let Some(stage) = self.0.last() {
            stage.running.push(ending);
        }
    }

    /// Waits until something fails; for ever if nothing does.
    pub(super) async fn first_failure(&mut self) -> ManagerError {
        let mut all: FuturesUnordered<_> =
            self.0.iter_mut().map(|stage| failure_of(&mut stage.running)).collect();
        while let Some(ended) = all.next().await {
            if let Err(failed) = ended {
                return failed;
            }
        }
        std::future::pending().await
    }

    /// Waits until everything above the first stage has ended, or something fails.
    pub(super) async fn ended(&mut self) -> Result<(), ManagerError> {
        let mut left = self.0.len().saturating_sub(1);
        let mut all: FuturesUnordered<_> =
            self.0.iter_mut().enumerate().map(|(at, stage)| wait(at, stage)).collect();
        while left > 0
            && let Some((at, ended)) = all.next().await
        {
            ended?;
            left -= usize::from(at > 0);
        }
        Ok(())
    }

    /// Tells one stage after the other to end, and waits for it.
    pub(super) async fn stop(&mut self) -> Result<(), ManagerError> {
        let mut outcome = Ok(());
        while let Some(mut stage) = self.0.pop() {
            stage.stopping.cancel();
            let ended = failure_of(&mut stage.running).await;
            // The first failure is told; the others end all the same.
            while stage.running.next().await.is_some() {}
            outcome = outcome.and(ended);
        }
        outcome
    }
}

async fn wait(at: usize, stage: &mut Stage) -> (usize, Result<(), ManagerError>) {
    (at, failure_of(&mut stage.running).await)
}

async fn failure_of(running: &mut FuturesUnordered<Ending>) -> Result<(), ManagerError> {
    while let Some(ended) = running.next().await {
        ended?;
    }
    Ok(())
}
