//! Beside stage 6: several controllers in one process, started and stopped in order.

mod controllers;
mod endpoints;
mod health;
mod metrics_server;
mod runnable;
mod signals;
mod stages;

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::Client;
use setpoint_env::Env;
use tokio_util::sync::CancellationToken;

use self::controllers::{AnyController, Led, Work, prepare};
use self::endpoints::{serve, serve_webhooks};
use self::health::Health;
pub use self::metrics_server::MetricsServer;
use self::runnable::{LeaderRunnable, Runnable};
pub use self::runnable::{RunnableContext, RunnableError};
use self::signals::stop_on_signals;
use self::stages::Stages;
use crate::controller::{Controller, ControllerError, Key, Prepared, Runtime};
use crate::facts::Facts;
use crate::leader_election::{LeaderElection, LeaseConfig, LeaseConfigError};
use crate::webhook::{CertificateError, WebhookServer};
use crate::{Metrics, Permissions, SharedInformerFactory};

/// Runs controllers, and what else a process needs, until it is told to stop.
///
/// Started in this order: health and metrics, early runnables, webhooks, the caches, runnables, controllers. Stopped in
/// reverse, each when the one after it has ended. With [`Manager::leader_election`] the controllers work only while this
/// replica leads, unless they are [to work on every replica](Controller::without_leader_election); the caches are kept
/// warm in the meantime, and nothing is queued. A replica that loses its lease goes on as a candidate.
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
///     .serve_health("0.0.0.0:8081".parse()?)
///     .serve_metrics("127.0.0.1:8080".parse::<std::net::SocketAddr>()?)
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
    health: Option<SocketAddr>,
    checks: Health,
    metrics: Option<MetricsServer>,
    webhooks: Option<(SocketAddr, WebhookServer)>,
    controllers: Vec<Box<dyn AnyController>>,
    early: Vec<Runnable>,
    runnables: Vec<Runnable>,
    leaders: Vec<LeaderRunnable>,
    election: Option<LeaseConfig>,
    is_warm: bool,
    grace: Duration,
    signals: bool,
}

/// Why a manager ended before it was told to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// A server cannot listen there.
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
    /// A server has no certificate that it can use.
    #[error(transparent)]
    Certificates(#[from] CertificateError),
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
    #[error("shutdown took longer than {grace:?}; the rest was cancelled")]
    Grace {
        /// The time that it had.
        grace: Duration,
    },
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
            health: None,
            checks: Health::default(),
            metrics: None,
            webhooks: None,
            controllers: Vec::new(),
            early: Vec::new(),
            runnables: Vec::new(),
            leaders: Vec::new(),
            election: None,
            is_warm: true,
            grace: Duration::from_secs(30),
            signals: false,
        }
    }

    /// Serves `/healthz` (also as `/livez`) and `/readyz` there, over plain HTTP and to everybody: for a kubelet's probes.
    /// Port 0 picks one. `?verbose` lists the checks, `?exclude=NAME` leaves one out, `/readyz/NAME` asks one alone.
    pub fn serve_health(mut self, address: SocketAddr) -> Manager {
        self.health = Some(address);
        self
    }

    /// Adds a check to `/healthz`: while it fails, the process is of no use and should be restarted.
    #[doc(alias = "AddHealthzCheck")]
    pub fn healthz<Fut, E>(
        mut self,
        name: impl Into<String>,
        check: impl Fn() -> Fut + Send + Sync + 'static,
    ) -> Manager
    where
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Display,
    {
        self.checks.live.add(name, check);
        self
    }

    /// Adds a check to `/readyz`: while it fails, nobody should send requests here.
    #[doc(alias = "AddReadyzCheck")]
    pub fn readyz<Fut, E>(
        mut self,
        name: impl Into<String>,
        check: impl Fn() -> Fut + Send + Sync + 'static,
    ) -> Manager
    where
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Display,
    {
        self.checks.ready.add(name, check);
        self
    }

    /// Serves `/metrics` there: to everybody on an address of this machine alone, over HTTPS and to those with a token on
    /// any other, unless it [says otherwise](MetricsServer::open).
    pub fn serve_metrics(mut self, server: impl Into<MetricsServer>) -> Manager {
        self.metrics = Some(server.into());
        self
    }

    /// Runs a controller. All controllers share their caches.
    pub fn controller<Q: Key>(mut self, controller: Controller<Q>) -> Manager {
        self.controllers.push(Box::new(controller));
        self
    }

    /// Runs something else on every replica, once the caches have synced, until it is told to stop. If it fails or panics,
    /// the manager stops; if it ends well, the others go on.
    ///
    /// ```no_run
    /// # async fn run(manager: setpoint::Manager) {
    /// let manager = manager.runnable("ticker", async |cx| {
    ///     while !cx.stopping().is_cancelled() {
    ///         tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    ///     }
    ///     Ok(())
    /// });
    /// # }
    /// ```
    pub fn runnable<Fut>(
        mut self,
        name: impl Into<String>,
        run: impl FnOnce(RunnableContext) -> Fut + Send + 'static,
    ) -> Manager
    where
        Fut: Future<Output = Result<(), RunnableError>> + Send + 'static,
    {
        self.runnables.push(Runnable::new(name.into(), run));
        self
    }

    /// The same from the beginning, before the caches have synced: for what shows why they do not sync.
    pub fn early_runnable<Fut>(
        mut self,
        name: impl Into<String>,
        run: impl FnOnce(RunnableContext) -> Fut + Send + 'static,
    ) -> Manager
    where
        Fut: Future<Output = Result<(), RunnableError>> + Send + 'static,
    {
        self.early.push(Runnable::new(name.into(), run));
        self
    }

    /// The same while this replica leads: begun in each term, and dropped if the lease is lost. Without
    /// [`Manager::leader_election`] it begins with the controllers.
    #[doc(alias = "NeedLeaderElection")]
    pub fn leader_runnable<Fut>(
        mut self,
        name: impl Into<String>,
        run: impl Fn(RunnableContext) -> Fut + Send + Sync + 'static,
    ) -> Manager
    where
        Fut: Future<Output = Result<(), RunnableError>> + Send + 'static,
    {
        self.leaders.push(LeaderRunnable::new(name.into(), run));
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

    /// Whether a standby keeps the caches of its controllers synced, so that it takes over at once: yes unless set. If not,
    /// a standby costs the API server nothing, and the first term begins with lists.
    #[doc(alias = "EnableWarmup")]
    pub fn warm_up(mut self, is_warm: bool) -> Manager {
        self.is_warm = is_warm;
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
        let Manager { runtime, mut checks, controllers, election, is_warm, grace, .. } = self;
        let election = election.map(|config| elect(&runtime, config)).transpose()?.map(Arc::new);
        let is_ready = Arc::new(AtomicBool::new(false));
        checks.of_manager(is_ready.clone(), runtime.factory.clone(), election.clone());
        let mut stages = Stages::default();
        let _signals = self.signals.then(|| stop_on_signals(&runtime.env, runtime.shutdown.clone()));
        let served = async {
            serve(&runtime, &mut stages, self.health, checks, self.metrics).await?;
            start(&runtime, &mut stages, self.early);
            let stopping = stages.begin();
            if let Some((address, server)) = self.webhooks {
                stages.run(serve_webhooks(&runtime, address, server, stopping).await?);
            }
            Ok(())
        };
        let served: Result<(), ManagerError> = served.await;
        let (led, everywhere): (Vec<_>, Vec<_>) =
            controllers.into_iter().partition(|controller| election.is_some() && controller.needs_lease());
        let mut led = Led::Waiting(led);
        let prepared = match served {
            Err(failed) => Err(failed),
            Ok(()) => tokio::select! {
                biased;
                () = runtime.shutdown.cancelled() => Ok(None),
                failed = stages.first_failure() => Err(failed),
                prepared = prepare_all(&runtime, everywhere, &mut led, is_warm) => prepared,
            },
        };
        let outcome = match prepared {
            Err(failed) => Err(failed),
            // Told to stop before the caches were there: nothing begins that would read them.
            Ok(None) => Ok(()),
            Ok(Some(everywhere)) => {
                is_ready.store(true, Ordering::Relaxed);
                start(&runtime, &mut stages, self.runnables);
                let stopping = stages.begin();
                let work = Work { runtime: runtime.clone(), leaders: self.leaders, stopping, grace };
                for task in work.start(everywhere, led, election) {
                    stages.run(Box::pin(async { task.await.map_err(ManagerError::Panicked)? }));
                }
                tokio::select! {
                    biased;
                    ended = stages.ended() => ended,
                    () = runtime.shutdown.cancelled() => Ok(()),
                }
            }
        };
        is_ready.store(false, Ordering::Relaxed);
        runtime.shutdown.cancel();
        let ended = tokio::time::timeout(grace, stages.stop()).await;
        drop(stages);
        runtime.factory.shutdown().await;
        outcome.and(ended.unwrap_or(Err(ManagerError::Grace { grace })))
    }
}

/// Waits for the caches of the controllers of every replica, and of the led ones if those are kept warm; none if they are
/// told to stop before.
async fn prepare_all(
    runtime: &Runtime,
    everywhere: Vec<Box<dyn AnyController>>,
    led: &mut Led,
    is_warm: bool,
) -> Result<Option<Vec<Prepared>>, ManagerError> {
    if is_warm {
        // The caches of all are filled at the same time.
        led.begin(runtime);
    }
    let prepared = prepare(runtime, everywhere).await?;
    let is_there = !is_warm || led.ready(runtime).await?.is_some();
    Ok(prepared.filter(|_| is_there))
}

/// Starts runnables as a stage of their own.
fn start(runtime: &Runtime, stages: &mut Stages, runnables: Vec<Runnable>) {
    let stopping = stages.begin();
    for runnable in runnables {
        let cx = RunnableContext::new(runtime, runtime.client.clone(), stopping.clone());
        stages.run(runnable.start(cx));
    }
}

fn elect(runtime: &Runtime, config: LeaseConfig) -> Result<LeaderElection, LeaseConfigError> {
    let election = LeaderElection::new(runtime.client.clone(), config)?;
    Ok(election.env(runtime.env.clone()).metrics(&runtime.metrics).facts(&runtime.facts))
}
