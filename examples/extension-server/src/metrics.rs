//! What nodes and pods use. There is no kubelet here that could be asked: a container uses half of what it requests, or what
//! an annotation of its pod says.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use setpoint_apiserver::extension::{Asked, Failure, Listed, Resource};
use setpoint_env::Env;
use setpoint_kinds::Quantity;

/// Annotations of a pod: what each of its containers uses, in thousandths of a processor and in MiB.
pub const CPU: &str = "metrics.example.com/millicpu";
/// The same for memory.
pub const MEMORY: &str = "metrics.example.com/mebibytes";

const GROUP: &str = "metrics.k8s.io";
const VERSION: &str = "v1beta1";
/// The time that the figures are for.
const WINDOW: &str = "10s";

/// Quantities by resource: `cpu`, `memory`.
pub(crate) type Usage = BTreeMap<String, String>;

/// What a node uses.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
pub struct NodeMetrics {
    /// Its name is that of the node.
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// When it was measured.
    pub timestamp: String,
    /// For how long.
    pub window: String,
    /// How much of each resource.
    pub usage: Usage,
}

/// What the containers of a pod use.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
pub struct PodMetrics {
    /// Its name is that of the pod.
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// When it was measured.
    pub timestamp: String,
    /// For how long.
    pub window: String,
    /// Each container.
    pub containers: Vec<ContainerMetrics>,
}

/// What a container uses.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
pub struct ContainerMetrics {
    /// Its name.
    pub name: String,
    /// How much of each resource.
    pub usage: Usage,
}

macro_rules! kind {
    ($kind:ident, $plural:literal, $scope:ty) => {
        impl kube::Resource for $kind {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                stringify!($kind).into()
            }
            fn group((): &()) -> Cow<'_, str> {
                GROUP.into()
            }
            fn version((): &()) -> Cow<'_, str> {
                VERSION.into()
            }
            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

kind!(NodeMetrics, "nodes", kube::core::ClusterResourceScope);
kind!(PodMetrics, "pods", kube::core::NamespaceResourceScope);

/// Thousandths of a processor, and bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Amount {
    millicpu: u64,
    bytes: u64,
}

impl Amount {
    fn plus(self, other: Amount) -> Amount {
        Amount {
            millicpu: self.millicpu.saturating_add(other.millicpu),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    fn usage(self) -> Usage {
        let kibibytes = format!("{}Ki", self.bytes / 1024);
        [("cpu".to_owned(), format!("{}m", self.millicpu)), ("memory".to_owned(), kibibytes)].into()
    }
}

fn used(pod: &Pod, container: &Container) -> Amount {
    let told = |name: &str| pod.annotations().get(name).and_then(|text| text.parse::<u64>().ok());
    let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let requested =
        |name: &str| requests.and_then(|requests| requests.get(name)).map(|quantity| quantity.0.as_str());
    let half = |amount: Option<u64>, least: u64| amount.map_or(least, |amount| amount / 2);
    Amount {
        millicpu: told(CPU).unwrap_or_else(|| half(requested("cpu").and_then(millis), 1)),
        bytes: told(MEMORY)
            .map(|mebibytes| mebibytes.saturating_mul(1 << 20))
            .unwrap_or_else(|| half(requested("memory").and_then(bytes), 8 << 20)),
    }
}

/// How much of a processor is used, in thousandths.
pub(crate) fn millicpu(usage: &Usage) -> u64 {
    usage.get("cpu").and_then(|text| millis(text)).unwrap_or(0)
}

/// `250m`, `2`, `0.5`, in thousandths.
pub(crate) fn millis(text: &str) -> Option<u64> {
    u64::try_from(Quantity::parse(text).ok()?.millis()).ok()
}

/// `64Mi`, `1.5Gi`, `2T`, `1024`.
fn bytes(text: &str) -> Option<u64> {
    u64::try_from(Quantity::parse(text).ok()?.whole()).ok()
}

fn is_running(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
}

fn total(pod: &Pod) -> Amount {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.fold(Amount::default(), |sum, container| sum.plus(used(pod, container)))
}

/// The same name and labels: objects are selected by them. Figures are as old as their question.
fn metadata(of: &ObjectMeta, env: &Env) -> ObjectMeta {
    ObjectMeta {
        creation_timestamp: Some(Time(env.now())),
        name: of.name.clone(),
        namespace: of.namespace.clone(),
        labels: of.labels.clone(),
        ..ObjectMeta::default()
    }
}

fn now(env: &Env) -> String {
    format!("{:.0}", env.now())
}

/// Where the figures of nodes come from.
#[derive(Clone, Debug)]
pub struct Nodes {
    client: ClientOf,
    env: Env,
}

/// Where the figures of pods come from.
#[derive(Clone, Debug)]
pub struct Pods {
    client: ClientOf,
    env: Env,
}

#[derive(Clone)]
struct ClientOf(Client);

impl std::fmt::Debug for ClientOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl Nodes {
    /// The nodes of this cluster.
    pub fn new(client: Client, env: Env) -> Nodes {
        Nodes { client: ClientOf(client), env }
    }
}

impl Pods {
    /// The pods of this cluster.
    pub fn new(client: Client, env: Env) -> Pods {
        Pods { client: ClientOf(client), env }
    }
}

impl Resource for Nodes {
    type Object = NodeMetrics;

    async fn list(&self, _asked: &Asked) -> Result<Listed<NodeMetrics>, Failure> {
        let everything = ListParams::default();
        let nodes: Api<Node> = Api::all(self.client.0.clone());
        let pods: Api<Pod> = Api::all(self.client.0.clone());
        let nodes = nodes.list(&everything).await.map_err(Failure::unavailable)?;
        let pods = pods.list(&everything).await.map_err(Failure::unavailable)?;
        let mut by_node: BTreeMap<&str, Amount> = BTreeMap::new();
        for pod in pods.items.iter().filter(|pod| is_running(pod)) {
            let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) else { continue };
            let sum = by_node.entry(node).or_default();
            *sum = sum.plus(total(pod));
        }
        // A node without pods works, too.
        let own = Amount { millicpu: 50, bytes: 256 << 20 };
        let measure = |node: &Node| {
            let amount = by_node.get(&*node.name_any()).copied().unwrap_or_default().plus(own);
            NodeMetrics {
                metadata: metadata(&node.metadata, &self.env),
                timestamp: now(&self.env),
                window: WINDOW.to_owned(),
                usage: amount.usage(),
            }
        };
        Ok(nodes.items.iter().map(measure).collect::<Vec<_>>().into())
    }
}

impl Resource for Pods {
    type Object = PodMetrics;

    async fn list(&self, asked: &Asked) -> Result<Listed<PodMetrics>, Failure> {
        let pods: Api<Pod> = match &asked.namespace {
            Some(namespace) => Api::namespaced(self.client.0.clone(), namespace),
            None => Api::all(self.client.0.clone()),
        };
        let pods = pods.list(&ListParams::default()).await.map_err(Failure::unavailable)?;
        let measure = |pod: &Pod| {
            let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
            let containers = containers
                .map(|container| ContainerMetrics {
                    name: container.name.clone(),
                    usage: used(pod, container).usage(),
                })
                .collect();
            PodMetrics {
                metadata: metadata(&pod.metadata, &self.env),
                timestamp: now(&self.env),
                window: WINDOW.to_owned(),
                containers,
            }
        };
        Ok(pods.items.iter().filter(|pod| is_running(pod)).map(measure).collect::<Vec<_>>().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read() {
        let processors = ["250m", "2", "0.5", "1e3", "x", "-1"].map(millis);
        assert_eq!(processors, [Some(250), Some(2000), Some(500), Some(1_000_000), None, None]);
        let amounts = ["64Mi", "1k", "7", "1Ti", "1.5Gi", "2T", "100m", "1e3", ""].map(bytes);
        let expected = [64 << 20, 1000, 7, 1 << 40, 3 << 29, 2_000_000_000_000, 1, 1000]
            .map(Some)
            .into_iter()
            .chain([None]);
        assert_eq!(amounts.to_vec(), expected.collect::<Vec<_>>());
    }
}
