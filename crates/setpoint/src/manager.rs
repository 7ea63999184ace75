//! Beside stage 6: several controllers in one process, started and stopped in order.

mod http;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use kube::Client;
use setpoint_env::{Env, Task};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::controller::{Controller, ControllerError, Runtime, Watchable};
use crate::{Metrics, SharedInformerFactory};

/// Runs controllers, and what else a process needs, until it is told to stop.
///
/// Started in this order, and stopped in reverse: the HTTP server (`/healthz`, `/readyz`, `/metrics`), the
/// caches, runnables, controllers.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use setpoint::{Action, ClientConfig, Context, Controller, ObjectKey, ReconcileError};
/// use setpoint::Manager;
///
/// # async fn reconcile(_: ObjectKey, _: Context) -> Result<Action, ReconcileError> { Ok(Action::done()) }
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let client = ClientConfig::new().connect().await?;
/// Manager::new(client)
///     .http("0.0.0.0:8080".parse()?)
///     .controller(Controller::<ConfigMap>::new("maps", reconcile))
///     .stop_on_signals()
///     .run()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a manager does nothing until it runs"]
pub struct Manager {
    runtime: Runtime,
    http: Option<SocketAddr>,
    controllers: Vec<Box<dyn AnyController>>,
    runnables: Vec<Runnable>,
    grace: Duration,
    signals: bool,
}

struct Runnable {
    name: String,
    run: Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, Result<(), RunnableError>> + Send>,
}

/// What a runnable may fail with.
pub type RunnableError = Box<dyn std::error::Error + Send + Sync>;

/// Why a manager ended before it was told to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// The HTTP server cannot listen there.
    #[error("cannot listen on {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// A controller ended early.
    #[error(transparent)]
    Controller(#[from] ControllerError),
    /// A runnable ended early.
    #[error("the runnable {name:?} failed")]
    Runnable {
        /// Its name.
        name: String,
        /// Its error.
        source: RunnableError,
    },
    /// What ran did not end in time after it was told to.
    #[error("not everything ended within {grace:?}; it was cut off")]
    Grace {
        /// The time that it had.
        grace: Duration,
    },
}

/// A controller of any kind.
trait AnyController: Send {
    fn run(self: Box<Self>, runtime: Runtime) -> BoxFuture<'static, Result<(), ControllerError>>;
}

impl<K: Watchable> AnyController for Controller<K> {
    fn run(self: Box<Self>, runtime: Runtime) -> BoxFuture<'static, Result<(), ControllerError>> {
        Box::pin(async move { (*self).run(&runtime).await })
    }
}

impl Manager {
    /// A manager with nothing to do yet, on the real clock.
    pub fn new(client: Client) -> Manager {
        Manager::with(Runtime::new(client))
    }

    /// A manager in a runtime of yours: another clock, metrics, namespaces.
    pub fn with(runtime: Runtime) -> Manager {
        Manager {
            runtime,
            http: None,
            controllers: Vec::new(),
            runnables: Vec::new(),
            grace: Duration::from_secs(30),
            signals: false,
        }
    }

    /// Serves `/healthz`, `/readyz` and `/metrics` there, over plain HTTP. Port 0 picks one.
    pub fn http(mut self, address: SocketAddr) -> Manager {
        self.http = Some(address);
        self
    }

    /// Runs a controller. All controllers share their caches.
    pub fn controller<K: Watchable>(mut self, controller: Controller<K>) -> Manager {
        self.controllers.push(Box::new(controller));
        self
    }

    /// Runs something else, once the caches have synced, until its token is cancelled. If it fails, the
    /// manager stops; if it ends well, the others go on.
    pub fn runnable<Fut>(
        mut self,
        name: impl Into<String>,
        run: impl FnOnce(CancellationToken) -> Fut + Send + 'static,
    ) -> Manager
    where
        Fut: Future<Output = Result<(), RunnableError>> + Send + 'static,
    {
        let run = move |token| -> BoxFuture<'static, _> { Box::pin(run(token)) };
        self.runnables.push(Runnable { name: name.into(), run: Box::new(run) });
        self
    }

    /// How long everything together may take to end: 30 seconds unless set.
    pub fn grace(mut self, grace: Duration) -> Manager {
        self.grace = grace;
        self
    }

    /// Stops on Ctrl-C and SIGTERM.
    pub fn stop_on_signals(mut self) -> Manager {
        self.signals = true;
        self
    }

    /// The shared caches, to ask for listers and indices before it runs.
    pub fn informers(&self) -> &SharedInformerFactory {
        self.runtime.informers()
    }

    /// What is measured.
    pub fn metrics(&self) -> &Metrics {
        self.runtime.metrics()
    }

    /// Cancel it to stop the manager.
    pub fn shutdown(&self) -> &CancellationToken {
        self.runtime.shutdown()
    }

    /// Runs until it is told to stop, or something fails.
    pub async fn run(self) -> Result<(), ManagerError> {
        let Manager { runtime, http, controllers, runnables, grace, signals } = self;
        let is_ready = Arc::new(AtomicBool::new(false));
        let _http = match http {
            Some(address) => Some(serve(&runtime, address, is_ready.clone()).await?),
            None => None,
        };
        let _signals = signals.then(|| stop_on_signals(&runtime.env, runtime.shutdown.clone()));
        let mut running = Tasks::new();
        for controller in controllers {
            let task = runtime.env.spawn(controller.run(runtime.clone()));
            running.push(Box::pin(async { task.await.map_or(Ok(()), |ended| ended.map_err(Into::into)) }));
        }
        let ready = tokio::select! {
            biased;
            failed = first_failure(&mut running) => failed,
            () = wait_for_caches(&runtime) => Ok(()),
        };
        is_ready.store(ready.is_ok(), Ordering::Relaxed);
        for Runnable { name, run } in runnables {
            let task = runtime.env.spawn(run(runtime.shutdown.clone()));
            running.push(Box::pin(async move {
                let ended = task.await.unwrap_or(Ok(()));
                ended.map_err(|source| ManagerError::Runnable { name, source })
            }));
        }
        let outcome = match ready {
            Err(failed) => Err(failed),
            Ok(()) => tokio::select! {
                biased;
                failed = first_failure(&mut running) => failed,
                () = runtime.shutdown.cancelled() => Ok(()),
            },
        };
        is_ready.store(false, Ordering::Relaxed);
        runtime.shutdown.cancel();
        let ended = tokio::time::timeout(grace, first_failure(&mut running)).await;
        drop(running);
        runtime.factory.shutdown().await;
        outcome.and(ended.unwrap_or(Err(ManagerError::Grace { grace })))
    }
}

type Tasks = FuturesUnordered<BoxFuture<'static, Result<(), ManagerError>>>;

/// Waits until something fails, or everything has ended without.
async fn first_failure(running: &mut Tasks) -> Result<(), ManagerError> {
    while let Some(ended) = running.next().await {
        ended?;
    }
    Ok(())
}

async fn wait_for_caches(runtime: &Runtime) {
    // Controllers ask for their informers in their first moments; each waits for its own caches anyway.
    tokio::task::yield_now().await;
    while runtime.factory.wait_for_cache_sync(Duration::from_secs(60)).await.is_err() {}
}

async fn serve(
    runtime: &Runtime,
    address: SocketAddr,
    is_ready: Arc<AtomicBool>,
) -> Result<Task<()>, ManagerError> {
    let listen = |source| ManagerError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    tracing::info!(%address, "serving health and metrics");
    let pages = http::Pages { metrics: runtime.metrics.clone(), is_ready };
    Ok(runtime.env.spawn(http::serve(runtime.env.clone(), listener, pages)))
}

fn stop_on_signals(env: &Env, shutdown: CancellationToken) -> Task<()> {
    env.spawn(async move {
        let interrupt = async { tokio::signal::ctrl_c().await.is_ok() };
        tokio::select! {
            biased;
            true = interrupt => {}
            () = terminated() => {}
        }
        tracing::info!("told to stop");
        shutdown.cancel();
    })
}

#[cfg(unix)]
async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => drop(terminate.recv().await),
        Err(_) => std::future::pending().await,
    }
}

#[cfg(not(unix))]
async fn terminated() {
    std::future::pending().await
}
