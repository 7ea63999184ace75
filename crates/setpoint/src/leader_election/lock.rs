//! One try to get or keep the lease.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::core::Status;
use kube::{Api, Error};
use tokio::time::timeout;

use super::LeaderElection;
use super::record::{Observed, Step, created};

/// How often one try reads and writes again after a conflict.
const CONFLICTS: usize = 3;

/// How a try ended.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The lease is ours. This is when the write was sent that said so.
    Held { sent: Duration },
    /// Somebody else holds it.
    Other,
    /// Nobody knows.
    Failed(Failure),
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("the server did not answer in time")]
    Timeout,
    #[error("others changed the lease at the same time")]
    Conflict,
    #[error(transparent)]
    Request(Box<Error>),
}

/// The lease, as far as this replica knows it.
pub(super) struct Lock<'a> {
    election: &'a LeaderElection,
    api: Api<Lease>,
    observed: Option<Observed>,
    /// Whether `observed` is what we wrote ourselves, so that the next write can do without a read.
    is_fresh: bool,
}

impl<'a> Lock<'a> {
    pub(super) fn new(election: &'a LeaderElection) -> Lock<'a> {
        let api = Api::namespaced(election.client.clone(), &election.config.namespace);
        Lock { election, api, observed: None, is_fresh: false }
    }

    /// The holder, as last seen.
    pub(super) fn holder(&self) -> Option<&str> {
        self.observed.as_ref()?.holder()
    }

    /// How often the lease has changed hands, as last seen.
    pub(super) fn transitions(&self) -> i32 {
        self.observed.as_ref().map(Observed::transitions).unwrap_or_default()
    }

    /// Tries to get or keep the lease.
    pub(super) async fn attempt(&mut self) -> Outcome {
        let mut outcome = Outcome::Failed(Failure::Conflict);
        for _ in 0..CONFLICTS {
            outcome = match self.attempt_once().await {
                Ok(outcome) => return outcome,
                Err(Failure::Conflict) => Outcome::Failed(Failure::Conflict),
                Err(failure) => return Outcome::Failed(failure),
            };
        }
        outcome
    }

    async fn attempt_once(&mut self) -> Result<Outcome, Failure> {
        let LeaderElection { config, clock, metrics, .. } = self.election;
        // Whatever happens below, what we know is what we wrote only if the write succeeds.
        if !std::mem::take(&mut self.is_fresh) {
            if let Some(metrics) = metrics {
                metrics.slow_path.inc();
            }
            self.read().await?;
        }
        let sent = clock.now();
        let Some(observed) = &self.observed else {
            let lease = created(config, clock.wall());
            let lease = self.request(self.api.create(&PostParams::default(), &lease)).await?;
            return Ok(self.wrote(lease, sent));
        };
        let lease = match observed.step(config, sent, clock.wall()) {
            Step::Wait => return Ok(Outcome::Other),
            Step::Write(lease) => lease,
        };
        let lease = self.request(self.api.replace(&config.name, &PostParams::default(), &lease)).await?;
        Ok(self.wrote(lease, sent))
    }

    async fn read(&mut self) -> Result<(), Failure> {
        let found = self.request(self.api.get_opt(&self.election.config.name)).await?;
        let before = self.observed.take();
        self.observed = found.map(|lease| Observed::update(before, lease, self.election.clock.now()));
        Ok(())
    }

    fn wrote(&mut self, lease: Lease, sent: Duration) -> Outcome {
        self.observed = Some(Observed::update(None, lease, sent));
        self.is_fresh = true;
        Outcome::Held { sent }
    }

    /// Gives the lease back, if it is ours.
    pub(super) async fn release(&mut self) -> Result<(), Failure> {
        if !std::mem::take(&mut self.is_fresh) {
            self.read().await?;
        }
        let LeaderElection { config, clock, .. } = self.election;
        let Some(lease) = self.observed.as_ref().and_then(|seen| seen.released(config, clock.wall())) else {
            return Ok(());
        };
        self.request(self.api.replace(&config.name, &PostParams::default(), &lease)).await?;
        Ok(())
    }

    async fn request<T>(&self, request: impl Future<Output = Result<T, Error>>) -> Result<T, Failure> {
        let limit = self.election.clock.real(self.election.config.request_timeout());
        match timeout(limit, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(Error::Api(status))) if status.code == 409 || is_gone(&status) => Err(Failure::Conflict),
            Ok(Err(error)) => Err(Failure::Request(Box::new(error))),
            Err(_) => Err(Failure::Timeout),
        }
    }
}

/// Whether the lease was deleted before it could be updated. (A namespace that does not exist is no conflict.)
fn is_gone(status: &Status) -> bool {
    status.code == 404 && status.details.as_ref().is_some_and(|details| details.kind == "leases")
}
