//! A server that listens, the controllers beside it, and how both end.

use std::sync::Arc;

use anyhow::{Context, bail};
use setpoint_apiserver::ApiServer;
use setpoint_apiserver::serve::CancellationToken;
use setpoint_cluster::{Cluster, ClusterError};
use setpoint_env::{Env, Task};
use tokio::net::TcpListener;
use tokio_rustls::rustls::ServerConfig;

use crate::signals::Signals;

/// The disk of the store has failed.
#[derive(Debug)]
pub(crate) struct StoreFailed(String);

impl StoreFailed {
    /// What the process ends with, so that whoever starts it again can tell: EX_IOERR of sysexits.h.
    pub(crate) const CODE: u8 = 74;
}

impl std::fmt::Display for StoreFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StoreFailed {}

/// How many threads the server works with. Two do on a developer's machine, and each one costs memory even at rest. A larger
/// machine gets up to four: one user's requests keep half of them busy at most, so slow ones of two users stop nobody else.
pub(crate) fn workers() -> usize {
    std::thread::available_parallelism().map_or(2, |processors| (processors.get() / 2).clamp(2, 4))
}

/// A server that listens.
pub(crate) struct Serving {
    server: ApiServer,
    shutdown: CancellationToken,
    task: Task<()>,
}

impl Serving {
    /// From now on whoever connects is answered.
    pub(crate) fn start(
        env: &Env,
        server: &ApiServer,
        listener: TcpListener,
        tls: Arc<ServerConfig>,
    ) -> Serving {
        let shutdown = CancellationToken::new();
        let task = env.spawn({
            let (server, shutdown) = (server.clone(), shutdown.clone());
            async move { server.serve(listener, tls, shutdown).await }
        });
        Serving { server: server.clone(), shutdown, task }
    }

    /// Goes on until a signal comes, then ends in order: first the controllers, which finish what they have begun, then the
    /// server. A second signal ends the process at once. `ending` is called as soon as the end begins.
    pub(crate) async fn until(
        mut self,
        signals: &mut Signals,
        cluster: Option<Cluster>,
        ending: impl FnOnce(),
    ) -> anyhow::Result<()> {
        let stop_cluster = cluster.as_ref().map(|cluster| cluster.shutdown().clone());
        let mut cluster = std::pin::pin!(ended(cluster));
        let outcome = tokio::select! {
            _ = signals.next() => Ok(()),
            ended = &mut self.task => match ended.context("the server failed") {
                Ok(()) => bail!("the server stopped unexpectedly"),
                Err(error) => return Err(error),
            },
            ended = &mut cluster => return ended.context("the controllers stopped unexpectedly"),
            // Nothing that is under way can end well, so nothing is waited for.
            why = self.server.failed() => Err(StoreFailed(why)),
        };
        if let Some(stop) = stop_cluster.filter(|_| outcome.is_ok()) {
            stop.cancel();
            tokio::select! {
                ended = cluster => ended.context("the controllers failed")?,
                code = signals.next() => std::process::exit(code),
            }
        }
        self.shutdown.cancel();
        ending();
        outcome?;
        tokio::select! {
            ended = self.task => ended.context("the server failed")?,
            code = signals.next() => std::process::exit(code),
        }
        // A store that was closed need not be repaired at the next start.
        self.server.close().await;
        Ok(())
    }
}

/// Waits for the end of a cluster, or for ever if there is none.
async fn ended(cluster: Option<Cluster>) -> Result<(), ClusterError> {
    match cluster {
        Some(cluster) => cluster.ended().await,
        None => std::future::pending().await,
    }
}
