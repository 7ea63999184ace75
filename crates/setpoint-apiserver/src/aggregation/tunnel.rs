//! Connections that speak something else than HTTP from now on: both ends are joined, and nobody looks at what passes.

use std::sync::Arc;
use std::time::Duration;

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncWriteExt, copy, split};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::Backend;
use crate::limits::Place;
use crate::server::Core;

/// The time until both ends have switched.
const SWITCH: Duration = Duration::from_secs(30);

/// The time for an end to take what is left, and to hear that this was all.
const CLOSE: Duration = Duration::from_secs(5);

/// Both ends of a tunnel, and what it takes.
pub(super) struct Tunnel {
    pub(super) client: OnUpgrade,
    pub(super) backend: OnUpgrade,
    pub(super) room: OwnedSemaphorePermit,
    pub(super) place: Place,
}

impl Tunnel {
    /// Joins the ends once both have switched. It ends with either of them, with the server, and with the backend.
    pub(super) fn open(self, core: &Core, backend: &Arc<Backend>) {
        let ends = [core.watch_token(), backend.ended.clone()];
        let task = core.env.spawn(self.run(ends));
        core.aggregation.tunnels.lock().push(task);
    }

    async fn run(self, [with_server, with_backend]: [CancellationToken; 2]) {
        let Tunnel { client, backend, room: _room, place: _place } = self;
        let both = tokio::time::timeout(SWITCH, futures::future::try_join(client, backend));
        let (client, backend) = match both.await {
            Ok(Ok(both)) => both,
            Ok(Err(error)) => return tracing::debug!(%error, "a connection could not be upgraded"),
            Err(_) => return tracing::debug!("a connection was not upgraded in time"),
        };
        tokio::select! {
            () = with_server.cancelled() => {}
            () = with_backend.cancelled() => {}
            () = join(client, backend) => {}
        }
    }
}

/// Copies both ways until one end is done.
async fn join(client: Upgraded, backend: Upgraded) {
    let (mut from_client, mut to_client) = split(TokioIo::new(client));
    let (mut from_backend, mut to_backend) = split(TokioIo::new(backend));
    let outcome = tokio::select! {
        done = copy(&mut from_client, &mut to_backend) => done,
        done = copy(&mut from_backend, &mut to_client) => done,
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "an upgraded connection broke");
    }
    // Who has not closed yet learns that this is the end. One that does not read does not keep the other waiting.
    let closing = futures::future::join(to_client.shutdown(), to_backend.shutdown());
    let _ = tokio::time::timeout(CLOSE, closing).await;
}
