//! Beside stage 6: several controllers in one process, started and stopped in order.

mod http;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, join_all, try_join_all};
use futures::stream::{FuturesUnordered, StreamExt};
use kube::Client;
use setpoint_env::{Env, Task};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::controller::{Controller, ControllerError, Key, Prepared, Runtime, Shift};
use crate::facts::Facts;
use crate::leader_election::{Fence, LeaderElection, LeaseConfig, LeaseConfigError, Term};
use crate::webhook::{CertificateError, WebhookServer};
use crate::{Metrics, Permissions, SharedInformerFactory};

/// Runs controllers, and what else a process needs, until it is told to stop.
///
/// Started in this order, and stopped in reverse: the HTTP server (`/healthz`, `/readyz`, `/metrics`), early runnables,
/// the caches, runnables, controllers. With [`Manager::leader_election`] the controllers work only while this
/// replica leads; the caches are kept warm in the meantime, and nothing is queued. A replica that loses its lease
/// goes on as a candidate.
///
/// When it is told to stop, the reconciles that run are finished, what is queued is left, and the lease is released.
/// Told so before the caches have synced, it starts nothing.
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
///     .controller(Controller::of::<ConfigMap>(.., "maps", reconcile))
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
    webhooks: Option<(SocketAddr, WebhookServer)>,
    controllers: Vec<Box<dyn AnyController>>,
    early: Vec<Runnable>,
    runnables: Vec<Runnable>,
    election: Option<LeaseConfig>,
    grace: Duration,
    signals: bool,
}

/// How much of the grace is kept for giving the lease back.
const RELEASE_TIME: Duration = Duration::from_secs(3);

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
    /// The election is not set up well.
    #[error(transparent)]
    Election(#[from] LeaseConfigError),
    /// The webhook server has no certificate that it can use.
    #[error(transparent)]
    Webhooks(#[from] CertificateError),
    /// A runnable ended early.
    #[error("the runnable {name:?} failed")]
    Runnable {
        /// Its name.
        name: String,
        /// Its error.
        source: RunnableError,
    },
    /// A task panicked.
    #[error("a task panicked")]
    Panicked(#[source] tokio::task::JoinError),
    /// What ran did not end in time after it was told to.
    #[error("not everything ended within {grace:?}; it was cut off")]
    Grace {
        /// The time that it had.
        grace: Duration,
    },
}

/// A controller of any kind.
trait AnyController: Send {
    fn permissions(&self) -> &Permissions;
    fn prepare(self: Box<Self>, runtime: Runtime) -> Preparing;
}

/// A controller that waits for its caches; none if it was told to stop before.
type Preparing = BoxFuture<'static, Result<Option<Prepared>, ControllerError>>;

impl<Q: Key> AnyController for Controller<Q> {
    fn permissions(&self) -> &Permissions {
        Controller::permissions(self)
    }

    fn prepare(self: Box<Self>, runtime: Runtime) -> Preparing {
        Box::pin(async move { (*self).prepare(&runtime).await })
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
            webhooks: None,
            controllers: Vec::new(),
            early: Vec::new(),
            runnables: Vec::new(),
            election: None,
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
    pub fn controller<Q: Key>(mut self, controller: Controller<Q>) -> Manager {
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
        self.runnables.push(Runnable::new(name.into(), run));
        self
    }

    /// The same from the beginning, before the caches have synced, whether this replica leads or not: for what shows why
    /// they do not sync.
    pub fn early_runnable<Fut>(
        mut self,
        name: impl Into<String>,
        run: impl FnOnce(CancellationToken) -> Fut + Send + 'static,
    ) -> Manager
    where
        Fut: Future<Output = Result<(), RunnableError>> + Send + 'static,
    {
        self.early.push(Runnable::new(name.into(), run));
        self
    }

    /// Answers an API server's webhook calls there, from before the caches have synced, whether this replica
    /// leads or not. Port 0 picks one.
    pub fn webhooks(mut self, address: SocketAddr, server: WebhookServer) -> Manager {
        self.webhooks = Some((address, server));
        self
    }

    /// Lets the controllers work only while this replica leads. What they write is fenced: it ends before the
    /// lease can be another's.
    pub fn leader_election(mut self, config: LeaseConfig) -> Manager {
        self.election = Some(config);
        self
    }

    /// How long everything together may take to end: 30 seconds unless set. Reconciles have nine tenths of it (or all
    /// but three seconds, if that is more); then they are cut off, so that the lease can be released.
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

    /// What an API server has to allow this manager: all that its controllers need, and its lease.
    pub fn permissions(&self) -> Permissions {
        let mut needs = Permissions::default();
        self.controllers.iter().for_each(|controller| needs.merge(controller.permissions()));
        needs.namespaces = self.runtime.informers().namespaces().to_vec();
        needs.lease = self.election.as_ref().map(|lease| (lease.namespace.clone(), lease.name.clone()));
        needs
    }

    /// What is measured.
    pub fn metrics(&self) -> &Metrics {
        self.runtime.metrics()
    }

    /// What happens, for those who [subscribe](Facts::subscribe).
    pub fn facts(&self) -> &Facts {
        self.runtime.facts()
    }

    /// The client of its caches and controllers.
    pub fn client(&self) -> Client {
        self.runtime.client.clone()
    }

    /// Where its time, randomness and tasks come from.
    pub fn env(&self) -> &Env {
        &self.runtime.env
    }

    /// Cancel it to stop the manager.
    pub fn shutdown(&self) -> &CancellationToken {
        self.runtime.shutdown()
    }

    /// Runs until it is told to stop, or something fails.
    pub async fn run(self) -> Result<(), ManagerError> {
        let Manager { runtime, http, webhooks, controllers, early, runnables, election, grace, signals } =
            self;
        let election = election.map(|config| elect(&runtime, config)).transpose()?.map(Arc::new);
        let is_ready = Arc::new(AtomicBool::new(false));
        let _http = match http {
            Some(address) => Some(serve(&runtime, address, is_ready.clone(), election.clone()).await?),
            None => None,
        };
        let _signals = signals.then(|| stop_on_signals(&runtime.env, runtime.shutdown.clone()));
        let mut running = Tasks::new();
        running.extend(early.into_iter().map(|runnable| runnable.start(&runtime)));
        if let Some((address, server)) = webhooks {
            let serving = serve_webhooks(&runtime, address, server).await?;
            running.push(serving);
        }
        let prepared = tokio::select! {
            biased;
            () = runtime.shutdown.cancelled() => Ok(None),
            Err(failed) = first_failure(&mut running) => Err(failed),
            prepared = prepare(&runtime, controllers) => prepared.map_err(ManagerError::from),
        };
        let outcome = match prepared {
            Err(failed) => Err(failed),
            // Told to stop before the caches were there: nothing begins that would read them.
            Ok(None) => Ok(()),
            Ok(Some(prepared)) => {
                is_ready.store(true, Ordering::Relaxed);
                running.extend(runnables.into_iter().map(|runnable| runnable.start(&runtime)));
                let work = runtime.env.spawn(work(runtime.clone(), prepared, election, grace));
                running.push(Box::pin(async { work.await.map_err(ManagerError::Panicked)? }));
                tokio::select! {
                    biased;
                    failed = first_failure(&mut running) => failed,
                    () = runtime.shutdown.cancelled() => Ok(()),
                }
            }
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

impl Runnable {
    fn new<Fut>(name: String, run: impl FnOnce(CancellationToken) -> Fut + Send + 'static) -> Runnable
    where
        Fut: Future<Output = Result<(), RunnableError>> + Send + 'static,
    {
        let run = move |token| -> BoxFuture<'static, _> { Box::pin(run(token)) };
        Runnable { name, run: Box::new(run) }
    }

    fn start(self, runtime: &Runtime) -> BoxFuture<'static, Result<(), ManagerError>> {
        let task = runtime.env.spawn((self.run)(runtime.shutdown.clone()));
        Box::pin(async move {
            let ended = task.await.map_err(ManagerError::Panicked)?;
            ended.map_err(|source| ManagerError::Runnable { name: self.name, source })
        })
    }
}

fn elect(runtime: &Runtime, config: LeaseConfig) -> Result<LeaderElection, LeaseConfigError> {
    let election = LeaderElection::new(runtime.client.clone(), config)?;
    Ok(election.env(runtime.env.clone()).metrics(&runtime.metrics).facts(&runtime.facts))
}

/// Starts all caches, and waits for all of them; none if a controller was told to stop before.
async fn prepare(
    runtime: &Runtime,
    controllers: Vec<Box<dyn AnyController>>,
) -> Result<Option<Vec<Prepared>>, ControllerError> {
    let all = try_join_all(controllers.into_iter().map(|controller| controller.prepare(runtime.clone())));
    Ok(all.await?.into_iter().collect())
}

/// Runs the controllers until the shutdown: all the time, or while this replica leads. What they have not finished
/// shortly before the end of the grace is cut off, so that the lease can still be released.
async fn work(
    runtime: Runtime,
    prepared: Vec<Prepared>,
    election: Option<Arc<LeaderElection>>,
    grace: Duration,
) -> Result<(), ManagerError> {
    let for_work = Some(grace.saturating_sub((grace / 10).min(RELEASE_TIME)));
    let run_all = async |client: Client, fence: Option<Fence>, ending: CancellationToken| {
        let shift = || {
            let (client, fence, ending) = (client.clone(), fence.clone(), ending.clone());
            Shift { is_term: fence.is_some(), client, fence, ending, grace: for_work }
        };
        let ended = join_all(prepared.iter().map(|controller| controller.work(shift()))).await;
        ended.into_iter().all(|is_finished| is_finished)
    };
    let is_finished = match election {
        None => run_all(runtime.client.clone(), None, runtime.shutdown.clone()).await,
        Some(election) => {
            let term = |term: Term| run_all(term.client(), Some(term.fence().clone()), term.ending().clone());
            election.run(runtime.shutdown.clone(), term).await.unwrap_or(true)
        }
    };
    if is_finished { Ok(()) } else { Err(ManagerError::Grace { grace }) }
}

async fn serve(
    runtime: &Runtime,
    address: SocketAddr,
    is_ready: Arc<AtomicBool>,
    election: Option<Arc<LeaderElection>>,
) -> Result<Task<()>, ManagerError> {
    let listen = |source| ManagerError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    tracing::info!(%address, "serving health and metrics");
    let (metrics, informers) = (runtime.metrics.clone(), runtime.factory.clone());
    let pages = http::Pages { metrics, is_ready, informers, election };
    Ok(runtime.env.spawn(http::serve(runtime.env.clone(), listener, pages)))
}

async fn serve_webhooks(
    runtime: &Runtime,
    address: SocketAddr,
    server: WebhookServer,
) -> Result<BoxFuture<'static, Result<(), ManagerError>>, ManagerError> {
    let listen = |source| ManagerError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    tracing::info!(%address, "serving webhooks");
    let serving =
        runtime.env.spawn(server.env(runtime.env.clone()).serve(listener, runtime.shutdown.clone()));
    Ok(Box::pin(async move { Ok(serving.await.map_err(ManagerError::Panicked)??) }))
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
