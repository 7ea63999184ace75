//! What a client's transport reports when a connection breaks.

use std::io::{Error, ErrorKind};

/// A broken connection. It reaches the user as [`kube::Error::Service`] from a request and inside
/// [`kube::Error::ReadEvents`] from a watch, and its source is the [`std::io::Error`] that the operating system
/// would have given.
#[derive(Debug, thiserror::Error)]
#[error("connection broken by an injected fault")]
pub struct ConnectionError {
    #[source]
    cause: Error,
}

impl ConnectionError {
    /// Nobody listens: the request certainly did not reach the server.
    pub(crate) fn refused() -> ConnectionError {
        ConnectionError { cause: Error::new(ErrorKind::ConnectionRefused, "connection refused") }
    }

    /// The connection went away: the request may or may not have been served.
    pub(crate) fn reset() -> ConnectionError {
        ConnectionError { cause: Error::new(ErrorKind::ConnectionReset, "connection reset by peer") }
    }

    /// No answer came in time: the request may or may not have been served.
    pub(crate) fn timed_out() -> ConnectionError {
        ConnectionError { cause: Error::new(ErrorKind::TimedOut, "operation timed out") }
    }

    /// Which error it was.
    pub fn kind(&self) -> ErrorKind {
        self.cause.kind()
    }
}
