//! Simulated nodes: Node objects that live, and run pods that are bound to them, without any container.
//!
//! A node is a `machine` that registers itself and beats, and a `kubelet`, one for all nodes, that moves
//! each pod through its `life`.

pub(crate) mod annotations;
mod kubelet;
mod life;
mod log;
mod machine;
mod obstacle;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use setpoint::Manager;
use setpoint::k8s_openapi::api::core::v1::{Node, Pod};
use setpoint::kube::Client;
use setpoint_env::Env;
use setpoint_env::watch;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use crate::caches;

pub use self::annotations::{EXIT_CODE, FAIL_AFTER, IMAGE_PULL_ERROR, READY_AFTER};
pub use self::log::SyntheticLog;

/// The number of nodes, and their properties.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeConfig {
    /// The number of nodes. They are called `node-1`, `node-2` ….
    pub count: usize,
    /// The capacity of each node, by resource.
    pub capacity: BTreeMap<String, String>,
    /// How long things take.
    pub delays: Delays,
}

/// How long things take on a node. Each time is random between the given one and one and a half times as much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delays {
    /// From a pod's arrival until its first container runs: the sandbox, the network, the image.
    pub start: Duration,
    /// How long an init container runs.
    pub init: Duration,
    /// How long a container of a Job runs, unless an annotation says otherwise.
    pub job: Duration,
    /// From the deletion of a pod until its containers have ended; never longer than its grace period.
    pub stop: Duration,
}

impl Default for NodeConfig {
    fn default() -> NodeConfig {
        let capacity = [("cpu", "32"), ("memory", "256Gi"), ("pods", "110"), ("ephemeral-storage", "1Ti")];
        NodeConfig {
            count: 1,
            capacity: capacity.into_iter().map(|(name, amount)| (name.into(), amount.into())).collect(),
            delays: Delays::default(),
        }
    }
}

impl Default for Delays {
    fn default() -> Delays {
        Delays {
            start: Duration::from_millis(400),
            init: Duration::from_millis(400),
            job: Duration::from_secs(2),
            stop: Duration::from_millis(400),
        }
    }
}

/// The nodes of a cluster, to stop and restart them. Clones are the same nodes.
#[derive(Clone)]
pub struct Nodes {
    inner: Arc<Inner>,
}

struct Inner {
    machines: BTreeMap<String, Machine>,
    config: NodeConfig,
    client: Client,
    env: Env,
    /// Turns to beat.
    beats: Semaphore,
    /// When the first tick was: nodes beat some whole ticks later.
    since: Instant,
}

/// One node.
struct Machine {
    name: String,
    /// Its place among the nodes; addresses follow from it.
    number: usize,
    power: watch::Sender<bool>,
    /// Whether the Node object of this name is known to be the machine's own.
    is_registered: AtomicBool,
    /// Told when its Node object is gone.
    gone: Notify,
    /// The last byte of each pod's address, by uid.
    addresses: Mutex<BTreeMap<String, u8>>,
}

impl Nodes {
    pub(crate) fn new(client: Client, env: Env, config: NodeConfig) -> Nodes {
        let machine = |number: usize| {
            let name = format!("node-{}", number + 1);
            let power = watch::Sender::new(true);
            let (is_registered, gone) = (AtomicBool::new(false), Notify::new());
            let machine = Machine { name, number, power, is_registered, gone, addresses: Mutex::default() };
            (machine.name.clone(), machine)
        };
        let machines = (0..config.count).map(machine).collect();
        let (beats, since) = (Semaphore::new(machine::BEATS), env.instant());
        Nodes { inner: Arc::new(Inner { machines, config, client, env, beats, since }) }
    }

    /// Adds everything that makes the nodes live to a manager.
    pub(crate) fn add_to(&self, manager: Manager) -> Manager {
        if self.inner.machines.is_empty() {
            return manager;
        }
        caches::index_pods_by_address(&manager.informers().informer::<Pod>());
        let (machines, nodes) = (self.clone(), manager.informers().informer::<Node>());
        manager
            .controller(kubelet::controller(self.clone()))
            .runnable("nodes", move |cx| async move { machines.live(nodes, cx.stopping().clone()).await })
    }

    /// The names of the nodes.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.inner.machines.keys().map(String::as_str)
    }

    /// Stops a node, as a power failure would: no more heartbeats, and its pods do nothing. Returns whether the node
    /// exists.
    pub fn kill(&self, name: &str) -> bool {
        self.switch(name, false)
    }

    /// Restarts a node. Returns whether the node exists.
    pub fn revive(&self, name: &str) -> bool {
        self.switch(name, true)
    }

    fn switch(&self, name: &str, is_on: bool) -> bool {
        let machine = self.inner.machines.get(name);
        machine.map(|machine| machine.power.send_replace(is_on)).is_some()
    }
}

impl Machine {
    fn is_on(&self) -> bool {
        *self.power.borrow()
    }

    fn is_registered(&self) -> bool {
        self.is_registered.load(Ordering::Relaxed)
    }

    /// The node's own address.
    fn host_ip(&self) -> String {
        let host = self.number + 2;
        format!("172.18.{}.{}", host / 250, host % 250)
    }

    /// The network that its pods are in.
    fn pod_cidr(&self) -> String {
        let (high, low) = network(self.number);
        format!("10.{high}.{low}.0/24")
    }

    /// The address of a pod: the one that it has, or the first that is free. `is_shown` says whether the cache shows a pod
    /// with an address; a process that took over the node may not have come to all of its pods.
    fn pod_ip(&self, uid: &str, current: Option<&str>, is_shown: impl Fn(&str) -> bool) -> String {
        let (high, low) = network(self.number);
        let prefix = format!("10.{high}.{low}.");
        let last_byte = |ip: &str| ip.strip_prefix(&prefix)?.parse::<u8>().ok();
        let mut addresses = self.addresses.lock();
        let known = addresses.get(uid).copied().or_else(|| last_byte(current?));
        let last = known.unwrap_or_else(|| {
            let mut is_taken = [false; 256];
            addresses.values().for_each(|last| is_taken[usize::from(*last)] = true);
            let is_free = |last: &u8| !is_taken[usize::from(*last)] && !is_shown(&format!("{prefix}{last}"));
            (2..=254).find(is_free).unwrap_or(254)
        });
        addresses.insert(uid.to_owned(), last);
        format!("{prefix}{last}")
    }

    fn release(&self, uid: &str) {
        self.addresses.lock().remove(uid);
    }
}

/// The second and the third byte of the addresses of a node's pods: from 10.244.0.0 to the end of the network; the nodes after
/// these have what is between the services' addresses and them.
fn network(number: usize) -> (usize, usize) {
    let high = number / 256;
    let high = if high < 12 { 244 + high } else { 112 + (high - 12) };
    (high, number % 256)
}

impl std::fmt::Debug for Nodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn thousands_of_nodes_have_networks_of_their_own_and_none_of_the_services() {
        let networks: BTreeSet<_> = (0..20_000).map(network).collect();
        assert_eq!(networks.len(), 20_000);
        assert!(networks.iter().all(|(high, low)| (112..256).contains(high) && *low < 256));
    }
}
