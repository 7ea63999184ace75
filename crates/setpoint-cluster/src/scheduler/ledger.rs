//! What is on which node, with the pods that were given one a moment ago and that no cache shows yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use setpoint::ObjectKey;
use setpoint::k8s_openapi::api::core::v1::{Node, Pod};
use tokio::sync::Notify;

use super::fit;
use super::requests::{self, Amounts};

/// What a container without requests counts as, so that such pods are spread too.
const LEAST_CPU: i128 = 100_000_000;
const LEAST_MEMORY: i128 = 200 * 1024 * 1024 * 1_000_000_000;

/// A ledger that handlers and workers share. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct SharedLedger {
    ledger: Arc<Mutex<Ledger>>,
    changed: Arc<Notify>,
}

/// Pods on nodes, and pods that wait for one.
#[derive(Default)]
pub(super) struct Ledger {
    nodes: BTreeMap<String, Row>,
    placed: BTreeMap<String, Placed>,
    waiting: BTreeSet<ObjectKey>,
}

/// One node.
#[derive(Default)]
struct Row {
    /// None as long as only pods name it.
    node: Option<Arc<Node>>,
    allocatable: Amounts,
    used: Amounts,
    pods: i128,
    ports: Vec<Port>,
}

/// A port of the host that a pod uses: protocol, address, number.
type Port = (String, String, i32);

struct Placed {
    node: String,
    /// Whether the server has said so. Until then a binding is under way, or its answer was lost.
    is_bound: bool,
    requests: Amounts,
    ports: Vec<Port>,
}

/// What becomes of a pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It was given a node before.
    Placed,
    /// A binding was tried, and nobody knows how that ended. Its place is kept.
    InDoubt,
    /// It is to be bound to this node, where its place is kept.
    Bind(String),
    /// No node will do, for this reason.
    Wait(String),
}

impl SharedLedger {
    /// Changes the ledger. If that may help pods that wait (`change` says so), they are woken.
    pub(super) fn change(&self, change: impl FnOnce(&mut Ledger) -> bool) {
        if change(&mut self.ledger.lock()) {
            self.changed.notify_one();
        }
    }

    /// Waits until something has changed for the better, and gives the pods that wait.
    pub(super) async fn woken(&self) -> Vec<ObjectKey> {
        self.changed.notified().await;
        self.ledger.lock().waiting.iter().rev().cloned().collect()
    }

    pub(super) fn decide(&self, key: &ObjectKey, pod: &Pod) -> Decision {
        self.ledger.lock().decide(key, pod)
    }
}

impl Ledger {
    /// Counts a pod where it is. Says whether something became free.
    pub(super) fn see_pod(&mut self, pod: &Pod) -> bool {
        let node =
            pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).filter(|node| !node.is_empty());
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
        match node {
            Some(_) if has_ended => self.forget_pod(pod),
            Some(node) => {
                if self.placed.get(uid(pod)).is_none_or(|placed| placed.node != node) {
                    self.forget_pod(pod);
                    self.place(pod, node);
                }
                self.confirm(pod);
                false
            }
            // One that was given a node a moment ago and is not known to have it keeps its place.
            None => false,
        }
    }

    /// Notes that the server has bound a pod to the node where its place is.
    pub(super) fn confirm(&mut self, pod: &Pod) -> bool {
        if let Some(placed) = self.placed.get_mut(uid(pod)) {
            placed.is_bound = true;
        }
        false
    }

    /// Frees what a pod had. Says whether that was anything.
    pub(super) fn forget_pod(&mut self, pod: &Pod) -> bool {
        let Some(placed) = self.placed.remove(uid(pod)) else { return false };
        let Some(row) = self.nodes.get_mut(&placed.node) else { return false };
        row.used.subtract(&placed.requests);
        row.pods -= 1;
        for port in &placed.ports {
            if let Some(at) = row.ports.iter().position(|used| used == port) {
                row.ports.swap_remove(at);
            }
        }
        if row.pods == 0 && row.node.is_none() {
            self.nodes.remove(&placed.node);
        }
        true
    }

    /// Takes over a node's state. Says whether it may do for more pods than before.
    pub(super) fn see_node(&mut self, node: &Arc<Node>) -> bool {
        let row = self.nodes.entry(name(node).to_owned()).or_default();
        let is_same = row.node.as_ref().is_some_and(|old| {
            let resources = |node: &Node| node.status.as_ref().and_then(|status| status.allocatable.clone());
            old.spec == node.spec
                && old.metadata.labels == node.metadata.labels
                && resources(old) == resources(node)
        });
        row.allocatable = Amounts::of(node.status.as_ref().and_then(|status| status.allocatable.as_ref()));
        row.node = Some(node.clone());
        !is_same
    }

    pub(super) fn forget_node(&mut self, node: &Node) -> bool {
        if let Some(row) = self.nodes.get_mut(name(node)) {
            row.node = None;
            if row.pods == 0 {
                self.nodes.remove(name(node));
            }
        }
        // The reason that waiting pods are told changes.
        true
    }

    pub(super) fn stop_waiting(&mut self, key: &ObjectKey) -> bool {
        self.waiting.remove(key);
        false
    }

    fn decide(&mut self, key: &ObjectKey, pod: &Pod) -> Decision {
        if let Some(placed) = self.placed.get(uid(pod)) {
            return if placed.is_bound { Decision::Placed } else { Decision::InDoubt };
        }
        match self.choose(pod) {
            Ok(node) => {
                self.waiting.remove(key);
                self.place(pod, &node);
                Decision::Bind(node)
            }
            Err(why) => {
                self.waiting.insert(key.clone());
                Decision::Wait(why)
            }
        }
    }

    fn place(&mut self, pod: &Pod, node: &str) {
        let (requests, ports) = (requests::of_pod(pod), ports(pod));
        let placed = Placed { node: node.to_owned(), is_bound: false, requests, ports };
        let row = self.nodes.entry(node.to_owned()).or_default();
        row.used.add(&placed.requests);
        row.pods += 1;
        row.ports.extend(placed.ports.iter().cloned());
        self.placed.insert(uid(pod).to_owned(), placed);
    }

    /// The node with the most to spare among those that will do, or why none will.
    fn choose(&self, pod: &Pod) -> Result<String, String> {
        let wanted = requests::of_pod(pod);
        let ports = ports(pod);
        let mut refusals: BTreeMap<String, usize> = BTreeMap::new();
        let mut best: Option<(f64, &str)> = None;
        let nodes = self.nodes.iter().filter_map(|(name, row)| Some((name, row.node.as_ref()?, row)));
        let count = nodes.clone().count();
        for (name, node, row) in nodes {
            let reasons = row.refusals(pod, node, &wanted, &ports);
            if reasons.is_empty() {
                let score = row.spare(&wanted) - fit::disliked_taints(pod, node) as f64;
                if best.is_none_or(|(most, _)| score > most) {
                    best = Some((score, name));
                }
            }
            for reason in reasons {
                *refusals.entry(reason).or_default() += 1;
            }
        }
        match best {
            Some((_, name)) => Ok(name.to_owned()),
            None if count == 0 => Err("no nodes available to schedule pods".to_owned()),
            None => {
                let mut reasons: Vec<String> =
                    refusals.iter().map(|(reason, nodes)| format!("{nodes} {reason}")).collect();
                reasons.sort_unstable();
                Err(format!("0/{count} nodes are available: {}.", reasons.join(", ")))
            }
        }
    }
}

impl Row {
    /// Everything that speaks against the node, in kube-scheduler's words.
    fn refusals(&self, pod: &Pod, node: &Node, wanted: &Amounts, ports: &[Port]) -> Vec<String> {
        if let Some(reason) = fit::refusal(pod, node) {
            return vec![reason.to_owned()];
        }
        if ports.iter().any(|port| self.ports.iter().any(|used| collide(port, used))) {
            return vec!["node(s) didn't have free ports for the requested pod ports".to_owned()];
        }
        let mut reasons = Vec::new();
        if (self.pods + 1) * 1_000_000_000 > self.allocatable.get("pods") {
            reasons.push("Too many pods".to_owned());
        }
        let lacking = wanted.0.iter().filter(|(name, amount)| {
            **amount > 0 && **amount > self.allocatable.get(name) - self.used.get(name)
        });
        reasons.extend(lacking.map(|(name, _)| format!("Insufficient {name}")));
        reasons
    }

    /// How much of the node would be left with the pod on it, from 0 to 1.
    fn spare(&self, wanted: &Amounts) -> f64 {
        let left = |name: &str, least: i128| {
            let all = self.allocatable.get(name);
            let used = self.used.get(name).max(self.pods * least) + wanted.get(name).max(least);
            if all <= 0 { 0.0 } else { (all - used) as f64 / all as f64 }
        };
        (left("cpu", LEAST_CPU) + left("memory", LEAST_MEMORY)) / 2.0
    }
}

fn collide(a: &Port, b: &Port) -> bool {
    let is_any = |ip: &str| ip.is_empty() || ip == "0.0.0.0";
    a.0 == b.0 && a.2 == b.2 && (a.1 == b.1 || is_any(&a.1) || is_any(&b.1))
}

fn ports(pod: &Pod) -> Vec<Port> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    let used = ports.filter_map(|port| {
        let number = port.host_port.filter(|number| *number > 0)?;
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
        Some((protocol, port.host_ip.clone().unwrap_or_default(), number))
    });
    used.collect()
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, cpu: &str, pods: &str) -> Arc<Node> {
        let resources = json!({"cpu": cpu, "memory": "8Gi", "pods": pods});
        let node = json!({"metadata": {"name": name}, "status": {"allocatable": resources}});
        Arc::new(serde_json::from_value(node).unwrap())
    }

    fn pod(name: &str, cpu: &str) -> (ObjectKey, Pod) {
        let container = json!({"name": "a", "resources": {"requests": {"cpu": cpu}}});
        let pod = json!({"metadata": {"name": name, "uid": name}, "spec": {"containers": [container]}});
        (ObjectKey::namespaced("default", name), serde_json::from_value(pod).unwrap())
    }

    fn decide(ledger: &mut Ledger, name: &str, cpu: &str) -> Decision {
        let (key, pod) = pod(name, cpu);
        ledger.decide(&key, &pod)
    }

    #[test]
    fn pods_are_spread_and_counted_before_any_cache_shows_them() {
        let mut ledger = Ledger::default();
        assert!(ledger.see_node(&node("a", "2", "10")) && ledger.see_node(&node("b", "2", "10")));
        assert_eq!(decide(&mut ledger, "1", "1"), Decision::Bind("a".into()));
        assert_eq!(decide(&mut ledger, "1", "1"), Decision::InDoubt);
        assert_eq!(decide(&mut ledger, "2", "1"), Decision::Bind("b".into()));
        assert_eq!(
            decide(&mut ledger, "3", "1500m"),
            Decision::Wait("0/2 nodes are available: 2 Insufficient cpu.".into())
        );
        assert!(ledger.forget_pod(&pod("1", "1").1), "something became free");
        assert_eq!(decide(&mut ledger, "3", "1500m"), Decision::Bind("a".into()));
    }

    #[test]
    fn every_reason_is_counted_and_sorted() {
        let mut ledger = Ledger::default();
        assert_eq!(
            decide(&mut ledger, "1", "1"),
            Decision::Wait("no nodes available to schedule pods".into())
        );
        ledger.see_node(&node("a", "1", "0"));
        let mut tainted = (*node("b", "8", "10")).clone();
        tainted.spec =
            serde_json::from_value(json!({"taints": [{"key": "x", "effect": "NoSchedule"}]})).unwrap();
        ledger.see_node(&Arc::new(tainted));
        let why = "0/2 nodes are available: 1 Insufficient cpu, 1 Too many pods, 1 node(s) had untolerated taint(s).";
        assert_eq!(decide(&mut ledger, "1", "2"), Decision::Wait(why.into()));
    }

    #[test]
    fn a_heartbeat_wakes_nobody() {
        let mut ledger = Ledger::default();
        assert!(ledger.see_node(&node("a", "1", "1")));
        assert!(!ledger.see_node(&node("a", "1", "1")));
        assert!(ledger.see_node(&node("a", "2", "1")));
    }

    #[test]
    fn ports_of_the_host_are_taken_once() {
        let port = |ip: &str, number| ("TCP".to_owned(), ip.to_owned(), number);
        assert!(collide(&port("", 80), &port("10.0.0.1", 80)));
        assert!(!collide(&port("10.0.0.2", 80), &port("10.0.0.1", 80)));
        assert!(!collide(&port("", 81), &port("", 80)));
    }
}
