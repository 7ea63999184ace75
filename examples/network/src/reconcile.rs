//! The controller, in the short style: finalizer, conditions, events, and what is tried again.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Api, Resource, ResourceExt};
use setpoint::conditions::{new_condition, set_condition};
use setpoint::workqueue::ItemExponential;
use setpoint::{
    Action, Context, Controller, Event, Finalize, Held, ObjectKey, ReconcileError, Verb, Watch, finalize,
    is_resync, patch_status,
};

use crate::apply::{Applied, apply, remove};
use crate::diff::Desired;
use crate::marker::marker;
use crate::network::{Network, NetworkStatus};
use crate::neutron::{Neutron, NeutronError};
use crate::sweep::sweep;

/// What keeps a Network until Neutron has nothing of it any more.
pub const FINALIZER: &str = "networks.samplecrd.k8s.io/neutron";
/// The condition that says whether Neutron has what the spec says.
pub const READY: &str = "Ready";

/// After a failure: a second, then twice as long each time, five minutes at most.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(300);
/// More than all requests of a reconcile take, each with its repetitions.
const TIME_LIMIT: Duration = Duration::from_secs(180);

/// What the controller is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which cluster this is, among those that share a Neutron.
    pub cluster: String,
    /// How often Neutron is looked at, whether a Network has changed or not: it sends no events.
    pub resync: Duration,
    /// How many Networks are worked on at the same time.
    pub workers: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { cluster: "kubernetes".to_owned(), resync: Duration::from_secs(60), workers: 4 }
    }
}

struct State {
    neutron: Neutron,
    cluster: String,
}

/// The controller.
pub fn controller(neutron: Neutron, settings: Settings) -> Controller {
    let Settings { cluster, resync, workers } = settings;
    Controller::of(Watch::<Network>::new().filter_updates(matters), "network", reconcile)
        // Read before what is gone is cleaned up; the finalizer is patched in and out.
        .writes::<Network>(&[Verb::Get, Verb::Patch])
        .writes_status::<Network>()
        .records_events()
        .triggered_by(sweep(neutron.clone(), cluster.clone(), resync * 10))
        .state(State { neutron, cluster })
        .resync(resync)
        .rate_limiter(ItemExponential::new(FIRST_RETRY, LAST_RETRY))
        .time_limit(TIME_LIMIT)
        .workers(workers)
}

/// What we write ourselves into a status is no news: a failure that made news of itself would be tried again at
/// once, for ever.
fn matters(old: &Held<Network>, new: &Held<Network>) -> bool {
    let (before, after) = (old.meta(), new.meta());
    is_resync(old, new)
        || before.generation != after.generation
        || before.deletion_timestamp != after.deletion_timestamp
        || before.finalizers != after.finalizers
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let api: Api<Network> = Api::namespaced(cx.client(), key.namespace().unwrap_or_default());
    let marker = marker(&cx.state::<State>()?.cluster, &key);
    let Some(network) = cx.lister::<Network>()?.get(&key) else {
        return clean_up_after(&key, &api, &marker, &cx).await;
    };
    finalize(&api, FINALIZER, network, async |step| match step {
        Finalize::Apply(network) => make(&key, &api, network, marker, &cx).await,
        Finalize::Cleanup(network) => unmake(&api, network, &marker, &cx).await,
    })
    .await
}

/// The key without an object: somebody took the finalizer away. What Neutron has is found by the key alone.
async fn clean_up_after(
    key: &ObjectKey,
    api: &Api<Network>,
    marker: &str,
    cx: &Context,
) -> Result<Action, ReconcileError> {
    // The cache may be behind, and a network cannot be brought back.
    if api.get_opt(key.name()).await?.is_some() {
        return Err("the cache does not show this Network yet".into());
    }
    let deleted = remove(&cx.state::<State>()?.neutron, marker, None).await?;
    if deleted > 0 {
        tracing::warn!(%key, deleted, "network was gone; deleted what neutron had of it");
    }
    Ok(Action::done())
}

async fn make(
    key: &ObjectKey,
    api: &Api<Network>,
    network: Arc<Network>,
    marker: String,
    cx: &Context,
) -> Result<Action, ReconcileError> {
    let known = network.status.clone().unwrap_or_default();
    let desired = match Desired::new(key.to_string(), marker, &network.spec) {
        Ok(desired) => desired,
        Err(error) => {
            // To try again would not help: the next change of the spec comes as an event.
            let message = error.to_string();
            cx.recorder().event(&*network, Event::warning("InvalidSpec", &message));
            write(api, &network, known, new_condition(READY, false, "InvalidSpec", message), cx).await?;
            return Ok(Action::done());
        }
    };
    match apply(&cx.state::<State>()?.neutron, &desired, &known).await {
        Ok(Applied { network_id, subnet_id, done }) => {
            for (reason, note) in done {
                tracing::info!(%key, reason, note, "changed neutron");
                cx.recorder().event(&*network, Event::normal(reason, note));
            }
            let status = NetworkStatus { network_id: Some(network_id), subnet_id: Some(subnet_id), ..known };
            let condition = new_condition(READY, true, "Synced", "Neutron has the network and its subnet");
            write(api, &network, status, condition, cx).await?;
            Ok(Action::done())
        }
        Err(error) => fail(api, &network, known, error, cx).await,
    }
}

async fn unmake(
    api: &Api<Network>,
    network: Arc<Network>,
    marker: &str,
    cx: &Context,
) -> Result<Action, ReconcileError> {
    let known = network.status.clone().unwrap_or_default();
    match remove(&cx.state::<State>()?.neutron, marker, known.network_id.as_deref()).await {
        Ok(deleted) => {
            tracing::info!(network = %network.name_any(), deleted, "deleted from neutron");
            Ok(Action::done())
        }
        Err(error) => fail(api, &network, known, error, cx).await,
    }
}

/// Says what is wrong and what to do about it, and lets the key be tried again, later and later.
async fn fail(
    api: &Api<Network>,
    network: &Network,
    known: NetworkStatus,
    error: NeutronError,
    cx: &Context,
) -> Result<Action, ReconcileError> {
    if !matches!(error, NeutronError::Stale) {
        let message = format!("{}; {}", Chain(&error), error.advice());
        cx.recorder().event(network, Event::warning(error.reason(), &message));
        write(api, network, known, new_condition(READY, false, error.reason(), message), cx).await?;
    }
    Err(error.into())
}

async fn write(
    api: &Api<Network>,
    network: &Network,
    mut status: NetworkStatus,
    mut condition: Condition,
    cx: &Context,
) -> Result<(), kube::Error> {
    status.observed_generation = network.meta().generation;
    condition.observed_generation = network.meta().generation;
    set_condition(&mut status.conditions, condition, cx.env().now());
    patch_status(api, network, &status).await.map(drop)
}

/// An error and what is behind it, on one line.
struct Chain<'a>(&'a NeutronError);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = std::error::Error::source(self.0);
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
