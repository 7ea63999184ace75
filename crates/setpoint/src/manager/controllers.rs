//! The controllers of a manager: on every replica, or while this one leads.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join, join_all, try_join_all};
use futures::stream::{FuturesUnordered, StreamExt};
use kube::Client;
use setpoint_env::{Later, Task};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::ManagerError;
use super::runnable::{LeaderRunnable, RunnableContext};
use crate::Permissions;
use crate::controller::{Controller, ControllerError, Key, Prepared, Runtime, Shift};
use crate::leader_election::{Fence, LeaderElection, Term};

/// How much of the grace is kept for giving the lease back.
const RELEASE_TIME: Duration = Duration::from_secs(3);

/// A controller of any kind.
pub(super) trait AnyController: Send {
    fn permissions(&self) -> &Permissions;
    fn needs_lease(&self) -> bool;
    fn prepare(self: Box<Self>, runtime: Runtime) -> Preparing;
}

/// A controller that waits for its caches; none if it was told to stop before.
type Preparing = BoxFuture<'static, Result<Option<Prepared>, ControllerError>>;

impl<Q: Key> AnyController for Controller<Q> {
    fn permissions(&self) -> &Permissions {
        Controller::permissions(self)
    }

    fn needs_lease(&self) -> bool {
        Controller::needs_lease(self)
    }

    fn prepare(self: Box<Self>, runtime: Runtime) -> Preparing {
        Box::pin(async move { (*self).prepare(&runtime).await })
    }
}

/// Starts all caches, and waits for all of them; none if a controller was told to stop before.
pub(super) async fn prepare(
    runtime: &Runtime,
    controllers: Vec<Box<dyn AnyController>>,
) -> Result<Option<Vec<Prepared>>, ControllerError> {
    let all = try_join_all(controllers.into_iter().map(|controller| controller.prepare(runtime.clone())));
    Ok(all.await?.into_iter().collect())
}

/// The controllers that work while this replica leads.
pub(super) enum Led {
    Waiting(Vec<Box<dyn AnyController>>),
    /// A task, so that a term that is cut short does not begin anew.
    Preparing(Task<Result<Option<Vec<Prepared>>, ControllerError>>),
    Ready(Vec<Prepared>),
    Stopped,
}

impl Led {
    /// Starts their caches, if nobody has.
    pub(super) fn begin(&mut self, runtime: &Runtime) {
        if let Led::Waiting(controllers) = self {
            let (controllers, of_task) = (std::mem::take(controllers), runtime.clone());
            *self = Led::Preparing(runtime.env.spawn(async move { prepare(&of_task, controllers).await }));
        }
    }

    /// Waits for their caches; none if they were told to stop before.
    pub(super) async fn ready(&mut self, runtime: &Runtime) -> Result<Option<&[Prepared]>, ManagerError> {
        self.begin(runtime);
        if let Led::Preparing(task) = self {
            let prepared = task.await.map_err(ManagerError::Panicked)??;
            *self = prepared.map_or(Led::Stopped, Led::Ready);
        }
        match self {
            Led::Ready(prepared) => Ok(Some(prepared.as_slice())),
            _ => Ok(None),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Led::Waiting(controllers) => controllers.is_empty(),
            Led::Ready(prepared) => prepared.is_empty(),
            Led::Preparing(_) => false,
            Led::Stopped => true,
        }
    }
}

/// How the controllers work.
#[derive(Clone)]
pub(super) struct Work {
    pub(super) runtime: Runtime,
    pub(super) leaders: Vec<LeaderRunnable>,
    pub(super) stopping: CancellationToken,
    pub(super) grace: Duration,
}

impl Work {
    /// Starts the controllers of every replica, and those that work while this one leads.
    pub(super) fn start(
        self,
        everywhere: Vec<Prepared>,
        led: Led,
        election: Option<Arc<LeaderElection>>,
    ) -> Vec<Task<Result<(), ManagerError>>> {
        let env = self.runtime.env.clone();
        let mut tasks = Vec::new();
        if !everywhere.is_empty() {
            let work = self.clone();
            tasks.push(env.spawn(async move {
                let (client, stopping) = (work.runtime.client.clone(), work.stopping.clone());
                work.check(work.shift(&everywhere, &[], client, None, stopping).await)
            }));
        }
        if !led.is_empty() || !self.leaders.is_empty() {
            tasks.push(env.spawn(self.lead(led, election)));
        }
        tasks
    }

    /// Works in each term, or all the time if nobody is elected.
    async fn lead(self, led: Led, election: Option<Arc<LeaderElection>>) -> Result<(), ManagerError> {
        let led = Mutex::new(led);
        let term = async |client: Client,
                          fence: Option<Fence>,
                          ending: CancellationToken|
               -> Result<bool, ManagerError> {
            let mut led = led.lock().await;
            match led.ready(&self.runtime).await? {
                Some(prepared) => self.shift(prepared, &self.leaders, client, fence, ending).await,
                None => Ok(true),
            }
        };
        let ended = match election {
            None => term(self.runtime.client.clone(), None, self.stopping.clone()).await,
            Some(election) => {
                let term = |leader: Term| {
                    term(leader.client(), Some(leader.fence().clone()), leader.ending().clone())
                };
                election.run(self.stopping.clone(), term).await.unwrap_or(Ok(true))
            }
        };
        self.check(ended)
    }

    /// Runs controllers, and what else there is, until the end of the shift. What is not finished shortly before the end of
    /// the grace is cut off, so that the lease can still be released. Says whether all was finished. A failure stops the
    /// manager, and is told when the rest has ended.
    async fn shift(
        &self,
        controllers: &[Prepared],
        runnables: &[LeaderRunnable],
        client: Client,
        fence: Option<Fence>,
        ending: CancellationToken,
    ) -> Result<bool, ManagerError> {
        let for_work =
            self.grace.saturating_sub(self.grace.checked_div(10).unwrap_or_default().min(RELEASE_TIME));
        let shift = || {
            let (client, fence, ending) = (client.clone(), fence.clone(), ending.clone());
            Shift { is_term: fence.is_some(), client, fence, ending, grace: Some(for_work) }
        };
        let start = |runnable: &LeaderRunnable| {
            runnable.start(RunnableContext::new(&self.runtime, client.clone(), ending.clone()))
        };
        let mut running: FuturesUnordered<_> = runnables.iter().map(start).collect();
        let working = join_all(controllers.iter().map(|controller| controller.work(shift())));
        // Without any controller it lasts until the end, too.
        let end = async {
            ending.cancelled().await;
            self.runtime.env.instant().later(for_work)
        };
        let mut working = std::pin::pin!(join(working, end));
        let mut outcome = Ok(());
        let (finished, ends) = loop {
            tokio::select! {
                biased;
                Some(ended) = running.next() => outcome = outcome.and(self.stop_if_failed(ended)),
                ended = &mut working => break ended,
            }
        };
        let rest = async {
            while let Some(ended) = running.next().await {
                outcome = std::mem::replace(&mut outcome, Ok(())).and(ended);
            }
        };
        let has_ended = tokio::time::timeout_at(ends, rest).await.is_ok();
        outcome?;
        Ok(has_ended && finished.into_iter().all(|is_finished| is_finished))
    }

    /// What fails stops the manager, in the order in which it always stops: what is being reconciled is finished.
    fn stop_if_failed(&self, ended: Result<(), ManagerError>) -> Result<(), ManagerError> {
        if ended.is_err() {
            self.runtime.shutdown.cancel();
        }
        ended
    }

    fn check(&self, ended: Result<bool, ManagerError>) -> Result<(), ManagerError> {
        if ended? { Ok(()) } else { Err(ManagerError::Grace { grace: self.grace }) }
    }
}
