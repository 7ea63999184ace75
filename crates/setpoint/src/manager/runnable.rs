//! What else a manager runs.

use std::sync::Arc;

use futures::future::BoxFuture;
use kube::Client;
use setpoint_env::Env;
use tokio_util::sync::CancellationToken;

use super::ManagerError;
use crate::controller::Runtime;
use crate::{Metrics, SharedInformerFactory};

/// What a runnable may fail with.
pub type RunnableError = Box<dyn std::error::Error + Send + Sync>;

/// What a runnable is given. Clones are the same.
#[derive(Clone)]
pub struct RunnableContext {
    client: Client,
    stopping: CancellationToken,
    runtime: Runtime,
}

impl RunnableContext {
    pub(super) fn new(runtime: &Runtime, client: Client, stopping: CancellationToken) -> RunnableContext {
        RunnableContext { client, stopping, runtime: runtime.clone() }
    }

    /// The client to write with. That of a [leader](super::Manager::leader_runnable) refuses writes when the lease is no
    /// longer surely held.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Cancelled when it shall end.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    /// The shared caches.
    pub fn informers(&self) -> &SharedInformerFactory {
        self.runtime.informers()
    }

    /// Where time, randomness and tasks come from.
    pub fn env(&self) -> &Env {
        &self.runtime.env
    }

    /// What is measured.
    pub fn metrics(&self) -> &Metrics {
        self.runtime.metrics()
    }
}

type Started = BoxFuture<'static, Result<(), RunnableError>>;

/// Something that runs once, on every replica.
pub(super) struct Runnable {
    name: String,
    run: Box<dyn FnOnce(RunnableContext) -> Started + Send>,
}

impl Runnable {
    pub(super) fn new<Fut>(
        name: String,
        run: impl FnOnce(RunnableContext) -> Fut + Send + 'static,
    ) -> Runnable
    where
        Fut: Future<Output = Result<(), RunnableError>> + Send + 'static,
    {
        Runnable { name, run: Box::new(move |cx| -> Started { Box::pin(run(cx)) }) }
    }

    /// Starts it as a task; the future ends with it.
    pub(super) fn start(self, cx: RunnableContext) -> BoxFuture<'static, Result<(), ManagerError>> {
        supervise(self.name, &cx.runtime.env.clone(), (self.run)(cx))
    }
}

/// Something that runs in each term of a leader.
#[derive(Clone)]
pub(super) struct LeaderRunnable {
    name: String,
    run: Arc<dyn Fn(RunnableContext) -> Started + Send + Sync>,
}

impl LeaderRunnable {
    pub(super) fn new<Fut>(
        name: String,
        run: impl Fn(RunnableContext) -> Fut + Send + Sync + 'static,
    ) -> LeaderRunnable
    where
        Fut: Future<Output = Result<(), RunnableError>> + Send + 'static,
    {
        LeaderRunnable { name, run: Arc::new(move |cx| -> Started { Box::pin(run(cx)) }) }
    }

    pub(super) fn start(&self, cx: RunnableContext) -> BoxFuture<'static, Result<(), ManagerError>> {
        supervise(self.name.clone(), &cx.runtime.env.clone(), (self.run)(cx))
    }
}

fn supervise(name: String, env: &Env, work: Started) -> BoxFuture<'static, Result<(), ManagerError>> {
    let task = env.spawn(work);
    Box::pin(async move {
        match task.await {
            Ok(ended) => ended.map_err(|source| ManagerError::Runnable { name, source }),
            Err(panic) => Err(ManagerError::Runnable { name, source: Box::new(panic) }),
        }
    })
}
