//! Keeps the tasks of one scope running: its reflector, and what applies what that brings.

use std::sync::Arc;

use setpoint_env::{Task, panic_text};
use tokio::task::JoinError;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::core::Core;
use crate::Object;
use crate::facts::ReflectorState;
use crate::reflector::{BackoffState, Reflector};

/// What the supervisor of a scope needs.
pub(super) struct Supervisor<T> {
    pub(super) core: Arc<Core<T>>,
    pub(super) reflector: Arc<Reflector<T>>,
    pub(super) stop: CancellationToken,
}

impl<T: Object> Supervisor<T> {
    /// Runs both tasks until it is told to stop; when it returns, neither runs. If one panics, both begin again,
    /// with a list: what was on its way from one to the other comes with that.
    pub(super) async fn run(self) {
        let Supervisor { core, reflector, stop } = self;
        let _told = TellsEnd(reflector.clone());
        let target = &reflector.target;
        let mut backoff = BackoffState::new(reflector.config.backoff, core.env.clone());
        loop {
            let span = tracing::info_span!("reflector", name = core.name, namespace = %target.scope);
            let mut reflecting = core.env.spawn(reflector.clone().run().instrument(span));
            let mut applying = core.env.spawn(core.clone().run(target.scope.clone(), reflector.fifo.clone()));
            let ended = tokio::select! {
                biased;
                () = stop.cancelled() => None,
                Err(ended) = &mut applying => Some(("the task that applies changes", ended)),
                Err(ended) = &mut reflecting => Some(("the reflector", ended)),
            };
            end(reflecting).await;
            end(applying).await;
            let Some((who, ended)) = ended.filter(|(_, ended)| ended.is_panic()) else { return };
            let words = format!("{}: {who} panicked: {}", target.resource, words(ended));
            core.restart(&target.scope);
            reflector.fifo.clear();
            reflector.metrics.restart();
            tracing::error!(error = words, "the informer restarts from a list after a pause");
            reflector.tell(|| ReflectorState::Panicked { error: words.clone() });
            *reflector.trouble.lock() = Some(words);
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = sleep(backoff.next()) => {}
            }
        }
    }
}

/// Tells that there is no list and watch any more, however that comes about: by a stop, or as its process is killed.
struct TellsEnd<T: Object>(Arc<Reflector<T>>);

impl<T: Object> Drop for TellsEnd<T> {
    fn drop(&mut self) {
        self.0.tell(|| ReflectorState::Stopped);
    }
}

/// Stops a task, unless it has ended already.
async fn end<R>(task: Task<R>) {
    if !task.is_finished() {
        task.stop().await;
    }
}

/// What a panic said.
fn words(panic: JoinError) -> String {
    match panic.try_into_panic() {
        Ok(panic) => panic_text(&*panic).to_owned(),
        Err(_) => "the runtime is shutting down".to_owned(),
    }
}
