//! Connections to the members of a cluster.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Error, Identity, TlsOptions};

use super::options::{EtcdError, EtcdOptions};

/// As long as an answer may be: a page of objects, or all that happened since.
pub(super) const LONGEST: usize = i32::MAX as usize;
/// How often a connection is asked whether it is still there, and for how long.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(5));
/// The gRPC code of a server that is not there.
const UNAVAILABLE: i32 = 14;
const CONNECT: Duration = Duration::from_secs(5);

/// A client of all members: it uses those that it can reach.
pub(super) async fn connect(options: &EtcdOptions) -> Result<Client, EtcdError> {
    let is_encrypted = options.endpoints().iter().any(|endpoint| endpoint.starts_with("https://"));
    let mut settings = ConnectOptions::new()
        .with_keep_alive(KEEP_ALIVE.0, KEEP_ALIVE.1)
        .with_keep_alive_while_idle(true)
        .with_connect_timeout(CONNECT)
        .with_require_leader(true)
        .with_auto_token_refresh(true);
    if is_encrypted {
        let mut tls = TlsOptions::new();
        tls = match &options.ca {
            Some(ca) => tls.ca_certificate(Certificate::from_pem(ca)),
            None => tls.with_enabled_roots(),
        };
        if let Some((certificate, key)) = &options.identity {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        settings = settings.with_tls(tls);
    }
    if let Some((name, password)) = &options.user {
        settings = settings.with_user(name, password);
    }
    let endpoints = options.endpoints();
    Client::connect(endpoints, Some(settings)).await.map_err(|error| match error {
        Error::InvalidArgs(_) | Error::InvalidUri(_) | Error::TransportError(_) => {
            EtcdError::Options(explain(&error))
        }
        other => EtcdError::Unreachable { endpoints: endpoints.join(","), why: explain(&other) },
    })
}

/// An error in words, with what is behind it.
pub(super) fn explain(error: &Error) -> String {
    if let Error::GRpcStatus(status) = error {
        let mut text = status.message().to_owned();
        let mut source = std::error::Error::source(status);
        while let Some(error) = source {
            let cause = error.to_string();
            if !text.contains(&cause) {
                text = format!("{text}: {cause}");
            }
            source = error.source();
        }
        return text;
    }
    let mut text = error.to_string();
    if let Error::TransportError(error) = error {
        let mut source = std::error::Error::source(error);
        while let Some(error) = source {
            text = format!("{text}: {error}");
            source = error.source();
        }
    }
    text
}

/// Why a request has failed.
pub(super) struct Failed {
    pub(super) why: Arc<str>,
    /// Whether the revision that was asked for is gone.
    pub(super) is_compacted: bool,
}

impl From<&Error> for Failed {
    fn from(error: &Error) -> Failed {
        Failed { why: explain(error).into(), is_compacted: is_compacted(error) }
    }
}

/// Whether a request can be made again: it was not sent, or refused by a member that knows no leader; or it only reads, and
/// its member is gone.
pub(super) fn may_try_again(error: &Error, is_read: bool) -> bool {
    let Error::GRpcStatus(status) = error else { return matches!(error, Error::TransportError(_)) };
    let text = explain(error);
    let was_not_sent = text.contains("tcp connect error") || text.contains("etcdserver: no leader");
    // The code of a member that is not there, or not part of a majority.
    was_not_sent || is_read && i32::from(status.code()) == UNAVAILABLE
}

fn is_compacted(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status) if status.message().contains("required revision has been compacted"))
}
