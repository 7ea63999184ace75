//! Finds networks whose Network is gone, also those that went while nobody watched.

use std::time::Duration;

use futures::Stream;
use futures::stream::{self, StreamExt};
use setpoint::ObjectKey;

use crate::marker;
use crate::neutron::Neutron;

/// The keys of all our networks in Neutron, now and again after each `period`. For a key that has no Network
/// any more, the reconciler deletes what is there.
pub(crate) fn sweep(
    neutron: Neutron,
    cluster: String,
    period: Duration,
) -> impl Stream<Item = ObjectKey> + Send {
    let rounds = stream::unfold(true, move |is_first| async move {
        if !is_first {
            tokio::time::sleep(period).await;
        }
        Some(((), false))
    });
    rounds.then(move |()| keys(neutron.clone(), cluster.clone())).flat_map(stream::iter)
}

async fn keys(neutron: Neutron, cluster: String) -> Vec<ObjectKey> {
    match neutron.networks().await {
        Ok(networks) => {
            networks.iter().filter_map(|network| marker::key_of(&cluster, &network.description)).collect()
        }
        Err(error) => {
            tracing::warn!(%error, "cannot look for networks that nobody owns; the next sweep will");
            Vec::new()
        }
    }
}
