//! Beside stage 6: of several replicas of a program, one does the work.
//!
//! The replicas share a Lease (`coordination.k8s.io/v1`), in the same way as those that client-go elects, so
//! that both kinds can stand for the same election.
//!
//! # What holds, and as long as what
//! A leader renews its lease every `retry`. It is sure of the lease until `renew_deadline` after it *sent* the
//! last renewal that the server confirmed; then its [`Fence`] closes and its work is stopped. Another replica
//! takes over no earlier than a whole `lease` after it *saw* that renewal. All of these times are measured on
//! the clock of the one who waits; no clock is compared with another, and wall-clock time decides nothing.
//!
//! So there are never two leaders **as long as no clock runs faster than another by more than
//! `lease : renew_deadline`**, which is 1.5 with the defaults. (Clocks that are synchronised differ by less
//! than 0.001.) What also has to hold:
//! - Writes go through [`Term::client`]. It refuses them after the deadline, and cuts those in flight. What
//!   the server has not committed by then can still be committed if the network keeps it for longer than
//!   `lease - renew_deadline`; only a server that checks a fencing token could exclude that. A replica that has lost
//!   its lease waits as long before it stands for election again.
//! - A clock does not stand still while the program runs on. A machine that slept is found out by its
//!   wall-clock time: until the next renewal the fence is closed.

mod clock;
mod config;
mod elector;
mod fence;
mod lock;
mod record;
mod term;

use std::fmt;
use std::time::Duration;

pub use config::{LeaseConfig, LeaseConfigError};
pub use fence::{Fence, NotLeader};
use kube::Client;
pub use setpoint_env::watch::Receiver;
use setpoint_env::{Env, watch};
pub use term::Term;
use tokio_util::sync::CancellationToken;

use self::clock::LocalClock;
use self::elector::Elector;
use crate::Metrics;
use crate::facts::{Facts, LeadershipState, LoopEvent, Name};
use crate::metrics::{Counter, Gauge, names};

/// Stands for election, and works while elected.
///
/// ```
/// # let rt = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
/// # rt.block_on(async {
/// use setpoint::k8s_openapi::api::core::v1::ConfigMap;
/// use setpoint::kube::Api;
/// use setpoint::leader_election::{LeaderElection, LeaseConfig};
/// use tokio_util::sync::CancellationToken;
///
/// # let client = setpoint_apiserver::ApiServer::builder().build().client();
/// let shutdown = CancellationToken::new();
/// let election = LeaderElection::new(client, LeaseConfig::new("default", "foo-controller")).unwrap();
/// let work = election.run(shutdown, |term| async move {
///     // Every write through this client is sure to be the leader's.
///     let maps: Api<ConfigMap> = Api::default_namespaced(term.client());
///     let map = serde_json::from_str(r#"{"metadata": {"name": "written-by-the-leader"}}"#).unwrap();
///     maps.create(&Default::default(), &map).await.unwrap();
///     // A controller would run here until `term.ending()`.
/// });
/// work.await;
/// # });
/// ```
#[doc(alias = "LeaderElector")]
pub struct LeaderElection {
    client: Client,
    config: LeaseConfig,
    clock: LocalClock,
    status: watch::Sender<Status>,
    metrics: Option<ElectionMetrics>,
    facts: Option<Facts>,
}

/// Who leads, as this replica knows it.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Status {
    /// Whether this replica leads.
    pub is_leader: bool,
    /// The holder of the lease that was last seen; none if the lease is free or was not seen yet.
    pub leader: Option<String>,
    /// When the last renewal was sent that was confirmed, by the local clock.
    renewed: Option<Duration>,
}

#[derive(Debug)]
struct ElectionMetrics {
    master: Gauge,
    slow_path: Counter,
}

/// A leader that does not renew its lease, and does not stop either.
#[derive(Debug, thiserror::Error)]
#[error("the lease {lease} expired {ago:?} ago and its holder has not noticed: is its task stuck?")]
pub struct Stuck {
    lease: String,
    ago: Duration,
}

impl LeaderElection {
    /// Checks the settings.
    pub fn new(client: Client, config: LeaseConfig) -> Result<LeaderElection, LeaseConfigError> {
        config.check()?;
        let clock = LocalClock::new(Env::system());
        let status = watch::Sender::default();
        Ok(LeaderElection { client, config, clock, status, metrics: None, facts: None })
    }

    /// Takes time and randomness from `env`.
    #[must_use]
    pub fn env(self, env: Env) -> LeaderElection {
        let clock = LocalClock::new(env).with_rate(self.clock.rate());
        LeaderElection { clock, ..self }
    }

    /// Lets this replica's clock run `rate` times as fast as it does, to see what happens then. For
    /// simulations.
    #[must_use]
    pub fn clock_rate(self, rate: f64) -> LeaderElection {
        LeaderElection { clock: self.clock.with_rate(rate), ..self }
    }

    /// Shows in `metrics` who leads: `leader_election_master_status` and `leader_election_slowpath_total`,
    /// with the lease's name.
    #[must_use]
    pub fn metrics(self, metrics: &Metrics) -> LeaderElection {
        let metrics = Some(ElectionMetrics::new(&self.config.name, metrics));
        LeaderElection { metrics, ..self }
    }

    /// Tells who leads, whenever that changes.
    #[must_use]
    pub fn facts(self, facts: &Facts) -> LeaderElection {
        LeaderElection { facts: Some(facts.clone()), ..self }
    }

    /// Stands for election until `shutdown`, and calls `work` whenever it is elected. Call it once.
    ///
    /// - When the lease is lost, [`Term::ending`] is cancelled and the work is dropped, before the lease can be
    ///   another's; then the replica stands for election again. The process need not end.
    /// - On `shutdown`, [`Term::ending`] is cancelled, the lease is renewed until the work has ended, and then
    ///   it is released, so that another replica takes over at once. Bound the wait from outside if the work
    ///   may not end.
    /// - When the work ends by itself, the lease is released too.
    ///
    /// Gives what the last work gave; none if there was none, or if its lease was lost.
    ///
    /// The work and the renewals are one task. Work that computes for seconds without an `.await` keeps the
    /// lease from being renewed: spawn it.
    pub async fn run<W, F>(&self, shutdown: CancellationToken, work: W) -> Option<F::Output>
    where
        W: Fn(Term) -> F,
        F: Future,
    {
        Elector::new(self).run(&shutdown, work).await
    }

    /// Who leads, now and whenever it changes: what client-go has callbacks for.
    #[doc(alias = "OnStartedLeading")]
    #[doc(alias = "OnStoppedLeading")]
    #[doc(alias = "OnNewLeader")]
    pub fn subscribe(&self) -> Receiver<Status> {
        self.status.subscribe()
    }

    /// This replica's identity.
    pub fn identity(&self) -> &str {
        &self.config.identity
    }

    /// For a liveness probe: fails if this replica thinks that it leads, but its lease expired more than
    /// `tolerance` ago. Only a task that is stuck gets there.
    #[doc(alias = "HealthzAdaptor")]
    pub fn check_health(&self, tolerance: Duration) -> Result<(), Stuck> {
        let LeaderElection { config, clock, status, .. } = self;
        let status = status.borrow();
        let expired =
            status.renewed.filter(|_| status.is_leader).map(|renewed| renewed.saturating_add(config.lease));
        match expired.and_then(|expired| clock.now().checked_sub(expired)) {
            Some(ago) if ago > tolerance => Err(Stuck { lease: config.to_string(), ago }),
            _ => Ok(()),
        }
    }
}

impl LeaderElection {
    /// Publishes who leads; those who subscribed are told only what they can see.
    fn publish(&self, change: impl FnOnce(&mut Status)) {
        let is_news = self.status.send_if_modified(|status| {
            let before = (status.is_leader, status.leader.clone());
            change(status);
            (status.is_leader, &status.leader) != (before.0, &before.1)
        });
        if let Some(metrics) = &self.metrics {
            metrics.master.set(u64::from(self.status.borrow().is_leader));
        }
        if let Some(facts) = self.facts.as_ref().filter(|_| is_news) {
            facts.tell(|| self.told());
        }
    }

    /// Who leads, as a fact.
    fn told(&self) -> LoopEvent {
        let status = self.status.borrow();
        let leader = status.leader.as_deref().map(Name::from);
        LoopEvent::Leadership {
            lease: self.config.to_string().as_str().into(),
            identity: self.identity().into(),
            state: if status.is_leader {
                LeadershipState::Leading
            } else {
                LeadershipState::Following { leader }
            },
        }
    }
}

impl fmt::Debug for LeaderElection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut election = f.debug_struct("LeaderElection");
        election.field("config", &self.config).field("status", &self.status).finish_non_exhaustive()
    }
}

impl ElectionMetrics {
    fn new(name: &str, metrics: &Metrics) -> ElectionMetrics {
        let master = metrics.gauge(names::MASTER_STATUS, &[name]);
        ElectionMetrics { master, slow_path: metrics.counter(names::SLOWPATH, &[name]) }
    }
}
