//! Candidate, leader, candidate again.

use std::pin::pin;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::config::JITTER;
use super::lock::{Lock, Outcome};
use super::{Fence, LeaderElection, Term};
use crate::mutants::{Promise, is_kept};

/// One replica that stands for election.
pub(super) struct Elector<'a> {
    election: &'a LeaderElection,
    lock: Lock<'a>,
}

/// How a term ended.
enum End<T> {
    /// The work has ended, by itself or on shutdown.
    Finished(T),
    Lost,
}

/// However a term ends: first nobody can write any more, then everybody is told.
struct Reign<'a> {
    election: &'a LeaderElection,
    fence: &'a Fence,
    ending: &'a CancellationToken,
}

impl Drop for Reign<'_> {
    fn drop(&mut self) {
        self.fence.close();
        self.ending.cancel();
        self.election.publish(|status| status.is_leader = false);
    }
}

impl<'a> Elector<'a> {
    pub(super) fn new(election: &'a LeaderElection) -> Elector<'a> {
        Elector { election, lock: Lock::new(election) }
    }

    pub(super) async fn run<W, F>(mut self, shutdown: &CancellationToken, work: W) -> Option<F::Output>
    where
        W: Fn(Term) -> F,
        F: Future,
    {
        loop {
            let sent = tokio::select! {
                biased;
                () = shutdown.cancelled() => None,
                sent = self.acquire() => Some(sent),
            };
            let Some(sent) = sent else {
                // A try that was cut may have got the lease.
                self.release().await;
                return None;
            };
            match self.lead(sent, shutdown, &work).await {
                End::Finished(output) => {
                    self.release().await;
                    return Some(output);
                }
                // The lease is left to expire: what was cut may still be on its way to the server.
                End::Lost if shutdown.is_cancelled() => return None,
                End::Lost => tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return None,
                    () = self.land() => {}
                },
            }
        }
    }

    /// Tries until the lease is ours; gives when the write was sent that said so.
    async fn acquire(&mut self) -> Duration {
        let LeaderElection { config, clock, .. } = self.election;
        loop {
            let outcome = self.lock.attempt().await;
            self.tell_leader();
            match outcome {
                Outcome::Held { sent } => return sent,
                Outcome::Other => {}
                Outcome::Failed(error) => {
                    tracing::warn!(lease = %config, %error, "cannot acquire the lease; retrying");
                }
            }
            clock.sleep_until(clock.now().saturating_add(clock.jitter(config.retry, JITTER))).await;
        }
    }

    /// Waits as long as any other replica would at least: then what was cut when the lease was lost has arrived at the
    /// server, and the next term finds it there.
    async fn land(&self) {
        let LeaderElection { config, clock, .. } = self.election;
        let wait = config.lease.saturating_sub(config.renew_deadline);
        if is_kept(Promise::Landing) {
            clock.sleep_until(clock.now().saturating_add(wait)).await;
        }
    }

    fn tell_leader(&self) {
        let leader = self.lock.holder();
        self.election.publish(|status| status.leader = leader.map(str::to_owned));
    }

    async fn lead<W, F>(&mut self, sent: Duration, shutdown: &CancellationToken, work: W) -> End<F::Output>
    where
        W: Fn(Term) -> F,
        F: Future,
    {
        let LeaderElection { client, config, clock, .. } = self.election;
        let fence = Fence::new(config.to_string(), clock.clone());
        fence.extend(sent, config.renew_deadline);
        if !fence.is_open() {
            return End::Lost;
        }
        let ending = CancellationToken::new();
        let term = Term::new(client, fence.clone(), ending.clone(), self.lock.transitions());
        self.election.publish(|status| (status.is_leader, status.renewed) = (true, Some(sent)));
        tracing::info!(lease = %config, identity = config.identity, "leading");

        let mut work = pin!(work(term));
        // Dropped before the work, also if this future is dropped in the middle.
        let _reign = Reign { election: self.election, fence: &fence, ending: &ending };
        let mut renewing = pin!(self.renew(sent, &fence));
        let mut stop = pin!(shutdown.cancelled());
        let end = loop {
            tokio::select! {
                biased;
                () = fence.closed() => break End::Lost,
                () = &mut renewing => break End::Lost,
                () = &mut stop, if !ending.is_cancelled() => ending.cancel(),
                output = &mut work => break End::Finished(output),
            }
        };
        if matches!(end, End::Lost) {
            tracing::warn!(lease = %config, identity = config.identity, "lost the lease; stopping");
        }
        end
    }

    /// Renews until another has the lease.
    async fn renew(&mut self, mut sent: Duration, fence: &Fence) {
        let LeaderElection { config, clock, .. } = self.election;
        loop {
            clock.sleep_until(sent.saturating_add(config.retry)).await;
            let start = clock.now();
            match self.lock.attempt().await {
                Outcome::Held { sent } => {
                    fence.extend(sent, config.renew_deadline);
                    self.election.publish(|status| status.renewed = Some(sent));
                }
                Outcome::Other => {
                    self.tell_leader();
                    return;
                }
                Outcome::Failed(error) => {
                    tracing::warn!(lease = %config, %error, "cannot renew the lease; retrying");
                }
            }
            sent = start;
        }
    }

    /// Gives the lease back, so that another takes over at once.
    async fn release(&mut self) {
        let config = &self.election.config;
        if !config.release_on_cancel {
            return;
        }
        if let Err(error) = self.lock.release().await {
            tracing::warn!(lease = %config, %error, "cannot release the lease; other replicas wait until it expires");
        }
    }
}
