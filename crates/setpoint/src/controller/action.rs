//! What a reconcile says when it is done.

use std::fmt;
use std::time::Duration;

use setpoint_env::Env;

/// What shall happen with the key next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[doc(alias = "Result")]
pub struct Action {
    requeue_after: Option<Duration>,
    jitter: Duration,
}

impl Action {
    /// Nothing, until something changes.
    #[doc(alias = "await_change")]
    pub fn done() -> Action {
        Action { requeue_after: None, jitter: Duration::ZERO }
    }

    /// Reconcile again after this time, or earlier if something changes.
    #[doc(alias = "requeue")]
    pub fn requeue_after(delay: Duration) -> Action {
        Action { requeue_after: Some(delay), jitter: Duration::ZERO }
    }

    /// The same, up to `jitter` later: so that keys that were reconciled together do not come together for ever.
    ///
    /// ```
    /// use std::time::Duration;
    /// use setpoint::Action;
    ///
    /// let hourly = Action::requeue_after(Duration::from_secs(3600)).with_jitter(Duration::from_secs(300));
    /// assert_eq!(hourly.delay(), Some(Duration::from_secs(3600)));
    /// ```
    pub fn with_jitter(mut self, jitter: Duration) -> Action {
        self.jitter = jitter;
        self
    }

    /// After which time the key comes again at the earliest, if it shall.
    pub fn delay(&self) -> Option<Duration> {
        self.requeue_after
    }

    /// A time at random within the jitter.
    pub(crate) fn pick_delay(&self, env: &Env) -> Option<Duration> {
        let most = u64::try_from(self.jitter.as_nanos()).unwrap_or(u64::MAX);
        let more = if most == 0 { 0 } else { env.random_range(0..=most) };
        self.requeue_after.map(|delay| delay.saturating_add(Duration::from_nanos(more)))
    }
}

/// Why a reconcile failed. Any error becomes one with `?`.
///
/// A failed key is tried again, after a time that grows with each failure. If trying again cannot help, say
/// so with [`ReconcileError::terminal`]: the failure is logged and counted, and the key waits for a change.
pub struct ReconcileError {
    source: Box<dyn std::error::Error + Send + Sync>,
    terminal: bool,
}

impl ReconcileError {
    /// An error that trying again cannot mend.
    pub fn terminal(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ReconcileError {
        ReconcileError { source: error.into(), terminal: true }
    }

    /// Whether trying again cannot help.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Whether the server refused a write because the object has changed meanwhile: a matter of course.
    pub(crate) fn is_conflict(&self) -> bool {
        let error = self.source.downcast_ref::<kube::Error>();
        matches!(error, Some(kube::Error::Api(status)) if status.code == 409 && status.reason == "Conflict")
    }

    /// The error itself.
    pub fn source(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
        &*self.source
    }
}

// Like `anyhow::Error`, it is no `std::error::Error` itself: only so can every error become one.
impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for ReconcileError {
    fn from(error: E) -> ReconcileError {
        ReconcileError { source: error.into(), terminal: false }
    }
}

impl fmt::Display for ReconcileError {
    /// The error and what is behind it, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::in_words(&*self.source))
    }
}

impl fmt::Debug for ReconcileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
