//! The settings of an election.

use std::fmt;
use std::time::Duration;

use setpoint_env::Env;

/// A retry takes up to this much longer, at random, so that replicas do not come all at once.
pub(super) const JITTER: f64 = 1.2;

/// Which lease, who stands for it, and the times.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaseConfig {
    /// The namespace of the lease.
    pub namespace: String,
    /// The name of the lease: one for all replicas of a program, and for nobody else.
    pub name: String,
    /// Who this replica is. No two may be the same, also not one before and after a restart.
    pub identity: String,
    /// How long the others wait for a renewal before they take the lease. 15 s.
    #[doc(alias = "LeaseDuration")]
    pub lease: Duration,
    /// How long the leader goes on after a renewal that was confirmed. 10 s.
    pub renew_deadline: Duration,
    /// How often the leader renews, and how often the others look. The others wait up to 2.2 times as long,
    /// at random. 2 s.
    #[doc(alias = "RetryPeriod")]
    pub retry: Duration,
    /// Whether to give the lease back on shutdown, so that another takes over at once. `true`.
    pub release_on_cancel: bool,
}

/// Settings with which an election would not work.
#[derive(Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseConfigError {
    /// A name is missing.
    #[error("the {0} of the lease must not be empty")]
    Empty(&'static str),
    /// The lease would expire while its leader still works.
    #[error("the lease duration ({lease:?}) must be longer than the renew deadline ({renew_deadline:?})")]
    LeaseTooShort {
        /// The duration of the lease.
        lease: Duration,
        /// The renew deadline.
        renew_deadline: Duration,
    },
    /// The leader would give up before it tried again.
    #[error(
        "the renew deadline ({renew_deadline:?}) must be longer than {JITTER} times the retry period ({retry:?})"
    )]
    DeadlineTooShort {
        /// The renew deadline.
        renew_deadline: Duration,
        /// The retry period.
        retry: Duration,
    },
    /// Nobody would ever wait.
    #[error("the retry period must be longer than zero")]
    NoRetry,
    /// The server counts in seconds.
    #[error("the lease duration ({0:?}) must be between a second and a day")]
    OutOfRange(Duration),
}

impl LeaseConfig {
    /// A lease with the usual times, and an identity that nobody else has: the name of the machine or Pod, and
    /// something random.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> LeaseConfig {
        let host = std::env::var("HOSTNAME").ok().filter(|host| !host.is_empty());
        let identity = format!("{}_{}", host.as_deref().unwrap_or("setpoint"), Env::system().uuid());
        LeaseConfig {
            namespace: namespace.into(),
            name: name.into(),
            identity,
            lease: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
            release_on_cancel: true,
        }
    }

    pub(super) fn check(&self) -> Result<(), LeaseConfigError> {
        let LeaseConfig { namespace, name, identity, lease, renew_deadline, retry, .. } = self;
        for (what, value) in [("namespace", namespace), ("name", name), ("identity", identity)] {
            if value.is_empty() {
                return Err(LeaseConfigError::Empty(what));
            }
        }
        let (lease, renew_deadline, retry) = (*lease, *renew_deadline, *retry);
        if retry.is_zero() {
            return Err(LeaseConfigError::NoRetry);
        }
        if !(Duration::from_secs(1)..=Duration::from_secs(24 * 3600)).contains(&lease) {
            return Err(LeaseConfigError::OutOfRange(lease));
        }
        if lease <= renew_deadline {
            return Err(LeaseConfigError::LeaseTooShort { lease, renew_deadline });
        }
        if renew_deadline.as_secs_f64() <= JITTER * retry.as_secs_f64() {
            return Err(LeaseConfigError::DeadlineTooShort { renew_deadline, retry });
        }
        Ok(())
    }

    /// How long one request may take: a leader has three of them before its deadline.
    pub(super) fn request_timeout(&self) -> Duration {
        self.renew_deadline.checked_div(3).unwrap_or_default()
    }
}

/// `namespace/name`.
impl fmt::Display for LeaseConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut LeaseConfig)) -> String {
        let mut config = LeaseConfig::new("default", "foo");
        change(&mut config);
        config.check().map_or_else(|error| error.to_string(), |()| "fine".to_owned())
    }

    #[test]
    fn times_that_cannot_work_are_refused_with_the_rule_that_they_break() {
        assert_eq!(check(|_| ()), "fine");
        assert_eq!(
            check(|config| config.lease = Duration::from_secs(10)),
            "the lease duration (10s) must be longer than the renew deadline (10s)"
        );
        assert_eq!(
            check(|config| config.retry = Duration::from_secs(9)),
            "the renew deadline (10s) must be longer than 1.2 times the retry period (9s)"
        );
        assert_eq!(
            check(|config| config.retry = Duration::ZERO),
            "the retry period must be longer than zero"
        );
        assert_eq!(
            check(|config| config.lease = Duration::from_millis(999)),
            "the lease duration (999ms) must be between a second and a day"
        );
    }

    #[test]
    fn a_missing_name_is_named() {
        assert_eq!(check(|config| config.name.clear()), "the name of the lease must not be empty");
        assert_eq!(check(|config| config.identity.clear()), "the identity of the lease must not be empty");
    }

    #[test]
    fn no_two_identities_are_the_same() {
        assert_ne!(LeaseConfig::new("a", "b").identity, LeaseConfig::new("a", "b").identity);
    }
}
