//! The Node object of a node, its lease and its heartbeats.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::try_join_all;
use serde_json::{Value, json};
use setpoint::k8s_openapi::api::coordination::v1::Lease;
use setpoint::k8s_openapi::api::core::v1::Node;
use setpoint::kube::api::{Patch, PatchParams, PostParams};
use setpoint::kube::{self, Api, ResourceExt};
use setpoint::manager::RunnableError;
use setpoint::{Deleted, HandlerFns, Lister, ObjectKey, SharedInformer};
use setpoint_env::Later;
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{Machine, Nodes};

/// The namespace of the leases of nodes.
const LEASES: &str = "kube-node-lease";
/// How long a lease is good for, and how often it is renewed.
const LEASE: Duration = Duration::from_secs(40);
const RENEWAL: Duration = Duration::from_secs(10);
/// The first one comes sooner.
const FIRST_RENEWAL: Duration = Duration::from_millis(2500);
/// How often a status is written that has not changed but for its heartbeat.
const REPORT: Duration = Duration::from_secs(300);
/// How long a heartbeat may take.
const LIMIT: Duration = Duration::from_secs(10);
/// How many nodes beat at the same time. Thousands that start together would all be late otherwise.
pub(super) const BEATS: usize = 32;
/// Nodes beat together at multiples of this: what is written at the same time shares a sync of the disk. It is short against
/// [`RENEWAL`], so thousands of nodes are still spread.
const TICK: Duration = Duration::from_millis(250);
/// How long to wait after a request failed.
const RETRY: Duration = Duration::from_secs(1);
/// The version of the kubelet that the nodes play.
const VERSION: &str = "v1.37.1";

/// The annotation of a Node that is simulated.
const SIMULATED: (&str, &str) = ("sim.setpoint.dev/simulated", "true");

/// Why a heartbeat failed.
#[derive(Debug, thiserror::Error)]
enum BeatError {
    #[error(transparent)]
    Request(#[from] kube::Error),
    #[error("the server did not answer in time")]
    Late(#[from] Elapsed),
    /// Nobody may take a node from its kubelet.
    #[error(
        "there is a node {0:?} that is not simulated; delete it, or run simulated nodes in a cluster that has none of \
         that name"
    )]
    Foreign(String),
}

impl Nodes {
    /// Lets all nodes live until the shutdown. It fails if one of them is somebody else's.
    pub(super) async fn live(
        self,
        nodes: SharedInformer<Node>,
        shutdown: CancellationToken,
    ) -> Result<(), RunnableError> {
        let machines = self.clone();
        let _deletions = nodes.add_handler(HandlerFns::new().on_delete(move |node: &Deleted<Node>| {
            if let Some(machine) = machines.inner.machines.get(&node.object.name_any()) {
                machine.gone.notify_one();
            }
        }));
        nodes.start();
        let nodes = nodes.lister();
        let all = try_join_all(self.inner.machines.values().map(|machine| self.life_of(machine, &nodes)));
        tokio::select! {
            biased;
            () = shutdown.cancelled() => Ok(()),
            ended = all => ended.map(drop).map_err(Into::into),
        }
    }

    /// Registers a node, then renews its lease and reports its status, whenever it is on.
    async fn life_of(&self, machine: &Machine, nodes: &Lister<Node>) -> Result<(), BeatError> {
        let mut power = machine.power.subscribe();
        loop {
            // The sender is in the machine.
            if power.wait_for(|is_on| *is_on).await.is_err() {
                return Ok(());
            }
            let off = async { drop(power.wait_for(|is_on| !*is_on).await) };
            tokio::select! {
                biased;
                () = off => {}
                foreign = self.beat(machine, nodes) => return Err(foreign),
            }
        }
    }

    /// Beats until the node turns out to be somebody else's.
    async fn beat(&self, machine: &Machine, nodes: &Lister<Node>) -> BeatError {
        let env = &self.inner.env;
        let mut reported = None;
        let mut lease: Option<Lease> = None;
        let mut is_first = true;
        loop {
            // Nobody closes it.
            let turn = self.inner.beats.acquire().await;
            let is_well = nodes.get(&ObjectKey::cluster(&machine.name)).is_some_and(|node| is_ready(&node));
            let due =
                !is_well || reported.is_none_or(|at| env.instant().saturating_duration_since(at) >= REPORT);
            let done = async {
                if due {
                    self.report(machine).await?;
                    reported = Some(env.instant());
                }
                lease = Some(self.renew(machine, lease.take()).await?);
                Ok::<_, BeatError>(())
            };
            let outcome = timeout(LIMIT, done).await.unwrap_or_else(|late| Err(late.into()));
            drop(turn);
            let wait = match outcome {
                // Those that have started together do not beat together.
                Ok(()) if std::mem::take(&mut is_first) => self.until_tick(env.jitter(FIRST_RENEWAL, 3.0)),
                Ok(()) => self.until_tick(env.jitter(RENEWAL, 0.04)),
                Err(foreign @ BeatError::Foreign(_)) => return foreign,
                Err(error) => {
                    tracing::debug!(node = machine.name, %error, "a heartbeat failed; retrying");
                    env.jitter(RETRY, 0.5)
                }
            };
            // A node whose object was deleted registers again.
            let _ = timeout(wait, machine.gone.notified()).await;
        }
    }

    /// How long until the last tick within `wait`.
    fn until_tick(&self, wait: Duration) -> Duration {
        let now = self.inner.env.instant();
        let due = now.later(wait).saturating_duration_since(self.inner.since).as_nanos();
        let past_tick = Duration::from_nanos((due % TICK.as_nanos()) as u64);
        wait.saturating_sub(past_tick)
    }

    /// Writes the node's status; makes the node if there is none.
    async fn report(&self, machine: &Machine) -> Result<(), BeatError> {
        let api: Api<Node> = Api::all(self.inner.client.clone());
        let node = match api.get_opt(&machine.name).await? {
            Some(found) => found,
            None => api.create(&PostParams::default(), &decode(self.node(machine))?).await?,
        };
        if node.annotations().get(SIMULATED.0).is_none_or(|value| value != SIMULATED.1) {
            machine.is_registered.store(false, Ordering::Relaxed);
            return Err(BeatError::Foreign(machine.name.clone()));
        }
        let status = json!({"metadata": {"uid": node.uid()}, "status": self.status(machine, Some(&node))});
        api.patch_status(&machine.name, &PatchParams::default(), &Patch::Strategic(&status)).await?;
        machine.is_registered.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The Node as it registers.
    fn node(&self, machine: &Machine) -> Value {
        json!({
            "metadata": {
                "name": machine.name,
                "labels": {
                    "kubernetes.io/hostname": machine.name,
                    "kubernetes.io/os": "linux",
                    "kubernetes.io/arch": "amd64",
                    "beta.kubernetes.io/os": "linux",
                    "beta.kubernetes.io/arch": "amd64",
                },
                "annotations": {SIMULATED.0: SIMULATED.1},
            },
            "spec": {"podCIDR": machine.pod_cidr(), "podCIDRs": [machine.pod_cidr()]},
        })
    }

    fn status(&self, machine: &Machine, node: Option<&Node>) -> Value {
        let resources: &BTreeMap<String, String> = &self.inner.config.capacity;
        json!({
            "capacity": resources,
            "allocatable": resources,
            "addresses": [
                {"type": "InternalIP", "address": machine.host_ip()},
                {"type": "Hostname", "address": machine.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "machineID": "", "systemUUID": "", "bootID": "",
                "kernelVersion": "0.0.0-simulated",
                "osImage": "Simulated by Setpoint",
                "containerRuntimeVersion": concat!("setpoint://", env!("CARGO_PKG_VERSION")),
                "kubeletVersion": VERSION,
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
            "conditions": self.conditions(node),
        })
    }

    fn conditions(&self, node: Option<&Node>) -> Vec<Value> {
        let now = time(self.inner.env.now(), 0);
        let old = node.and_then(|node| node.status.as_ref()?.conditions.as_ref());
        let condition = |(type_, status, reason, message): (&str, &str, &str, &str)| {
            let same = old.into_iter().flatten().find(|c| c.type_ == type_ && c.status == status);
            let since = same.and_then(|c| c.last_transition_time.as_ref());
            json!({
                "type": type_, "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": now,
                "lastTransitionTime": since.map_or_else(|| now.clone(), |since| time(since.0, 0)),
            })
        };
        let conditions = [
            (
                "MemoryPressure",
                "False",
                "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available",
            ),
            ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ];
        conditions.into_iter().map(condition).collect()
    }

    /// Renews the node's lease, or makes it.
    async fn renew(&self, machine: &Machine, known: Option<Lease>) -> Result<Lease, kube::Error> {
        let api: Api<Lease> = Api::namespaced(self.inner.client.clone(), LEASES);
        let renewed = json!(time(self.inner.env.now(), 6));
        let known = match known {
            Some(lease) => Some(lease),
            None => api.get_opt(&machine.name).await?,
        };
        if known.is_some() {
            let patch = json!({"spec": {"renewTime": renewed}});
            match api.patch(&machine.name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                patched => return patched,
            }
        }
        let node = Api::<Node>::all(self.inner.client.clone()).get(&machine.name).await?;
        let lease = json!({
            "metadata": {
                "name": machine.name,
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Node", "name": machine.name, "uid": node.uid(),
                }],
            },
            "spec": {
                "holderIdentity": machine.name,
                "leaseDurationSeconds": LEASE.as_secs(),
                "renewTime": renewed,
            },
        });
        api.create(&PostParams::default(), &decode(lease)?).await
    }
}

/// Whether the server says of a node what it says of itself.
fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn decode<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, kube::Error> {
    crate::typed::typed(&value).map_err(kube::Error::SerdeError)
}

/// A time as the API writes it, with this many digits of a second.
fn time(at: jiff::Timestamp, digits: usize) -> String {
    format!("{at:.digits$}")
}
