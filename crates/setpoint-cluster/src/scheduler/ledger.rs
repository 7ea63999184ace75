//! What is on which node, with the pods that were given one a moment ago and that no cache shows yet; and the pods that
//! wait for one.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use setpoint::ObjectKey;
use setpoint::k8s_openapi::api::core::v1::{Node, Pod};
use setpoint::k8s_openapi::jiff::Timestamp;
use tokio::sync::Notify;

use super::needs::{Needs, Port};
use super::nodes::Nodes;
use super::requests::Amounts;
use super::waiting::{Turn, Waiting};

/// A ledger that handlers and workers share. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct SharedLedger {
    ledger: Arc<Mutex<Ledger>>,
    changed: Arc<Notify>,
}

/// Pods on nodes, and pods that wait for one.
#[derive(Default)]
pub(super) struct Ledger {
    nodes: Nodes,
    placed: HashMap<String, Placed>,
    /// The uids of pods whose place no cache has shown yet, by their keys. If the pod goes before that, whoever looks at
    /// the key next frees the place: its deletion may have been told before the place was taken.
    unseen: HashMap<ObjectKey, String>,
    waiting: Waiting,
}

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

    /// Waits until something has changed for the better, and gives the pods to try again, the most important first.
    pub(super) async fn woken(&self) -> Vec<ObjectKey> {
        self.changed.notified().await;
        self.ledger.lock().woken()
    }

    pub(super) fn decide(&self, key: &ObjectKey, pod: &Pod) -> Decision {
        let mut ledger = self.ledger.lock();
        let waited = ledger.waiting.contains(key);
        let decision = ledger.decide(key, pod);
        // It was one of a batch: the next of them has its turn.
        let is_followed = match decision {
            Decision::Bind(_) => waited,
            Decision::Wait(_) => ledger.waiting.has_untold(key),
            Decision::Placed | Decision::InDoubt => false,
        };
        if is_followed {
            self.changed.notify_one();
        }
        decision
    }
}

impl Ledger {
    /// Counts a pod where it is. Says whether something became free.
    pub(super) fn see_pod(&mut self, pod: &Pod) -> bool {
        let node = crate::pod::node_name(pod);
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if node.is_empty() {
            // One that was given a node a moment ago and is not known to have it keeps its place.
            return false;
        }
        if matches!(phase, Some("Succeeded" | "Failed")) {
            return self.forget_pod(pod);
        }
        let needs = Needs::of(pod);
        let is_counted = self.placed.get(uid(pod)).is_some_and(|placed| {
            placed.node == node && placed.requests == needs.requests && placed.ports == needs.ports
        });
        let is_freed = !is_counted && self.forget_pod(pod);
        if !is_counted {
            self.place(pod, node, needs);
        }
        self.confirm(pod);
        is_freed
    }

    /// Counts a pod as the server has it. The caches may have been told already that it is gone.
    pub(super) fn see_live(&mut self, key: &ObjectKey, pod: &Pod) -> bool {
        let is_freed = self.see_pod(pod);
        if self.placed.contains_key(uid(pod)) {
            self.unseen.insert(key.clone(), uid(pod).to_owned());
        }
        is_freed
    }

    /// Notes which pod a cache shows at a key. A place that another one had there is free. Says whether there was one.
    pub(super) fn look(&mut self, key: &ObjectKey, shown: Option<&Pod>) -> bool {
        let Some(unseen) = self.unseen.get(key) else { return false };
        match shown {
            Some(pod) if uid(pod) == unseen => {
                // Once it is shown where it is, its deletion is told after that.
                if !crate::pod::node_name(pod).is_empty() {
                    self.unseen.remove(key);
                }
                false
            }
            _ => self.unseen.remove(key).is_some_and(|gone| self.free(&gone)),
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
        self.free(uid(pod))
    }

    fn free(&mut self, uid: &str) -> bool {
        let Some(placed) = self.placed.remove(uid) else { return false };
        self.nodes.free(&placed.node, &placed.requests, &placed.ports);
        self.waiting.node_changed(&placed.node, &self.nodes);
        true
    }

    /// Takes over a node's state. Says whether it may do for other pods than before.
    pub(super) fn see_node(&mut self, node: &Arc<Node>) -> bool {
        let has_changed = self.nodes.see(node);
        if has_changed {
            self.waiting.node_changed(name(node), &self.nodes);
        }
        has_changed
    }

    /// Forgets a node. The reason that waiting pods are told changes.
    pub(super) fn forget_node(&mut self, node: &Node) -> bool {
        self.nodes.forget(node);
        self.waiting.node_changed(name(node), &self.nodes);
        true
    }

    /// Forgets a pod that waits no longer. Says whether it did: others may wait for its try.
    pub(super) fn stop_waiting(&mut self, key: &ObjectKey) -> bool {
        self.waiting.stop(key)
    }

    fn woken(&mut self) -> Vec<ObjectKey> {
        self.waiting.woken(&self.nodes)
    }

    fn decide(&mut self, key: &ObjectKey, pod: &Pod) -> Decision {
        if let Some(placed) = self.placed.get(uid(pod)) {
            return if placed.is_bound { Decision::Placed } else { Decision::InDoubt };
        }
        let needs = Needs::of(pod);
        let known = self.waiting.refusal(&needs);
        if known.is_none()
            && let Some(node) = self.nodes.best(&needs).map(|node| node.to_string())
        {
            self.stop_waiting(key);
            self.place(pod, &node, needs);
            self.unseen.insert(key.clone(), uid(pod).to_owned());
            return Decision::Bind(node);
        }
        let why = known.unwrap_or_else(|| self.nodes.explain(&needs).into());
        let decision = Decision::Wait(why.to_string());
        self.waiting.wait(key, turn(key, pod), needs, why);
        decision
    }

    fn place(&mut self, pod: &Pod, node: &str, needs: Needs) {
        let Needs { requests, ports, .. } = needs;
        self.nodes.take(node, &requests, &ports);
        let placed = Placed { node: node.to_owned(), is_bound: false, requests, ports };
        self.placed.insert(uid(pod).to_owned(), placed);
    }
}

fn turn(key: &ObjectKey, pod: &Pod) -> Turn {
    let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
    let created = pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::MIN, |time| time.0);
    (Reverse(priority), created, key.clone())
}

fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use serde_json::json;
    use setpoint::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::super::waiting::BATCH;
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
    fn a_place_taken_after_the_deletion_was_told_is_free_when_the_key_is_looked_at_again() {
        let mut ledger = Ledger::default();
        ledger.see_node(&node("a", "1", "10"));
        let (key, old) = pod("1", "1");
        // The handler hears that the pod is gone; a worker has still read it, and the binding fails.
        assert!(!ledger.forget_pod(&old));
        assert_eq!(ledger.decide(&key, &old), Decision::Bind("a".into()));
        assert!(!ledger.look(&key, Some(&old)), "it is shown: its place stays");
        let mut new = old.clone();
        new.metadata.uid = Some("made anew".into());
        assert!(ledger.look(&key, Some(&new)), "something became free");
        assert_eq!(ledger.decide(&key, &new), Decision::Bind("a".into()));
        // The same by way of the server's own answer.
        new.spec.as_mut().unwrap().node_name = Some("a".into());
        ledger.forget_pod(&new);
        ledger.see_live(&key, &new);
        assert!(ledger.look(&key, None), "something became free");
        assert!(ledger.placed.is_empty());
        // Nothing is noted of a pod that a cache shows on its node.
        ledger.see_live(&key, &new);
        assert!(!ledger.look(&key, Some(&new)));
        assert!(ledger.unseen.is_empty());
    }

    fn important(name: &str, priority: i32, second: i64) -> (ObjectKey, Pod) {
        let (key, mut pod) = pod(name, "1");
        pod.spec.as_mut().unwrap().priority = Some(priority);
        let created = Timestamp::from_second(second).unwrap();
        pod.metadata.creation_timestamp = Some(Time(created));
        (key, pod)
    }

    #[test]
    fn waiting_pods_are_tried_by_priority_and_then_by_age() {
        let mut ledger = Ledger::default();
        for (key, pod) in
            [important("a", 0, 9), important("b", 0, 1), important("c", 7, 5), important("d", 7, 4)]
        {
            assert!(matches!(ledger.decide(&key, &pod), Decision::Wait(_)));
        }
        ledger.see_node(&node("a", "8", "10"));
        let names: Vec<String> = ledger.woken().iter().map(|key| key.name().to_owned()).collect();
        assert_eq!(names, ["d", "c", "b", "a"]);
    }

    #[test]
    fn pods_that_find_nothing_are_not_woken_and_of_equal_ones_a_few_at_a_time() {
        let shared = SharedLedger::default();
        shared.change(|ledger| ledger.see_node(&node("a", "0", "10")));
        for number in 0..100 {
            let (key, pod) = pod(&format!("{number:03}"), "1");
            assert!(matches!(shared.decide(&key, &pod), Decision::Wait(_)));
        }
        assert_eq!(shared.ledger.lock().woken(), [], "nothing has become free");
        shared.change(|ledger| ledger.see_node(&node("a", "2", "10")));
        let woken = shared.ledger.lock().woken();
        assert_eq!(woken.len(), BATCH);
        let first = |name: &str| (ObjectKey::namespaced("default", name), pod(name, "1").1);
        for name in ["000", "001"] {
            let (key, pod) = first(name);
            assert_eq!(shared.decide(&key, &pod), Decision::Bind("a".into()));
        }
        let (key, pod) = first("002");
        assert_eq!(
            shared.decide(&key, &pod),
            Decision::Wait("0/1 nodes are available: 1 Insufficient cpu.".into())
        );
        assert_eq!(shared.ledger.lock().waiting.len(), 98);
        assert_eq!(shared.ledger.lock().woken(), [], "they have been told so already");
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_most_important_comes_first_out_of_the_stream_too() {
        let shared = SharedLedger::default();
        for (key, pod) in [important("a", 0, 9), important("b", 0, 1), important("c", 7, 5)] {
            assert!(matches!(shared.decide(&key, &pod), Decision::Wait(_)));
        }
        shared.change(|ledger| ledger.see_node(&node("a", "8", "10")));
        let keys = super::super::wakings(shared.clone()).take(3).collect::<Vec<_>>().await;
        assert_eq!(keys.iter().map(ObjectKey::name).collect::<Vec<_>>(), ["c", "b", "a"]);
    }

    #[test]
    fn a_new_reason_is_told_to_a_few_at_a_time_and_to_all_in_the_end() {
        let shared = SharedLedger::default();
        shared.change(|ledger| ledger.see_node(&node("a", "0", "10")));
        let pods: HashMap<ObjectKey, Pod> = (0..50).map(|number| pod(&format!("{number:03}"), "1")).collect();
        for (key, pod) in &pods {
            shared.decide(key, pod);
        }
        shared.change(|ledger| ledger.see_node(&node("b", "0", "10")));
        let mut told = 0;
        loop {
            let woken = shared.ledger.lock().woken();
            assert!(woken.len() <= BATCH);
            if woken.is_empty() {
                break;
            }
            for key in woken {
                let why = "0/2 nodes are available: 2 Insufficient cpu.".to_owned();
                assert_eq!(shared.decide(&key, &pods[&key]), Decision::Wait(why));
                told += 1;
            }
        }
        assert_eq!(told, 50);
    }

    #[test]
    fn among_many_nodes_a_class_that_was_refused_is_tried_on_the_one_that_changed() {
        let mut ledger = Ledger::default();
        for number in 0..500 {
            ledger.see_node(&node(&format!("n{number:03}"), "1", "10"));
        }
        let (_, mut large) = pod("large", "1");
        for number in 0..500 {
            large.metadata.uid = Some(format!("large-{number}"));
            assert!(matches!(ledger.decide(&pod("x", "1").0, &large), Decision::Bind(_)));
        }
        let freed = "large-321";
        assert!(matches!(decide(&mut ledger, "small", "500m"), Decision::Wait(_)));
        assert!(matches!(decide(&mut ledger, "whole", "1"), Decision::Wait(_)));
        large.metadata.uid = Some(freed.to_owned());
        let Placed { node: at, .. } = &ledger.placed[freed];
        let at = at.clone();
        assert!(ledger.forget_pod(&large));
        assert_eq!(ledger.woken().len(), 2, "either fits now");
        assert_eq!(decide(&mut ledger, "small", "500m"), Decision::Bind(at));
        assert!(matches!(decide(&mut ledger, "whole", "1"), Decision::Wait(_)));
        assert_eq!(ledger.woken(), [], "half a node is left");
    }

    #[test]
    fn a_resize_in_place_is_counted() {
        let mut ledger = Ledger::default();
        ledger.see_node(&node("a", "4", "10"));
        let bound = |cpu: &str| {
            let (_, mut pod) = pod("1", cpu);
            pod.spec.as_mut().unwrap().node_name = Some("a".into());
            pod
        };
        assert!(!ledger.see_pod(&bound("1")));
        ledger.see_pod(&bound("3"));
        assert!(matches!(decide(&mut ledger, "2", "2"), Decision::Wait(_)));
        assert!(ledger.see_pod(&bound("1")), "something became free");
        assert_eq!(decide(&mut ledger, "2", "2"), Decision::Bind("a".into()));
    }

    /// What [`Nodes::best`] must find: a look at every node.
    fn naive(nodes: &[(Arc<Node>, i64, i64)], cpu: i64, tolerates: bool) -> Option<String> {
        let mut best: Option<(f64, String)> = None;
        for (node, used, pods) in nodes {
            let all = Amounts::of(node.status.as_ref().unwrap().allocatable.as_ref());
            let milli = |amount: i128| (amount / 1_000_000) as i64;
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref()).map_or(0, Vec::len);
            if (taints > 0 && !tolerates)
                || used + cpu > milli(all.cpu)
                || pods + 1 > milli(all.get("pods")) / 1000
            {
                continue;
            }
            let cpu = 1.0 - (used.max(&(pods * 100)) + cpu.max(100)) as f64 / milli(all.cpu) as f64;
            let memory = 1.0 - ((pods + 1) * 200) as f64 / 8192.0;
            let score = (cpu + memory) / 2.0;
            let name = node.metadata.name.clone().unwrap();
            if best.as_ref().is_none_or(|(most, first)| {
                score > most + 1e-7 || ((score - most).abs() <= 1e-7 && name < *first)
            }) {
                best = Some((score, name));
            }
        }
        best.map(|(_, name)| name)
    }

    #[test]
    fn the_best_node_is_the_one_that_a_look_at_all_of_them_finds() {
        let mut random = 12345u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for _ in 0..20 {
            let mut ledger = Ledger::default();
            let mut nodes = Vec::new();
            for number in 0..next(12) + 1 {
                let (cpu, pods) = (["1", "2", "4"][next(3) as usize], ["3", "20"][next(2) as usize]);
                let mut node = (*node(&format!("n{number:02}"), cpu, pods)).clone();
                if next(4) == 0 {
                    let taints = json!({"taints": [{"key": "x", "effect": "NoSchedule"}]});
                    node.spec = serde_json::from_value(taints).unwrap();
                }
                let node = Arc::new(node);
                ledger.see_node(&node);
                nodes.push((node, 0i64, 0i64));
            }
            let mut running: Vec<(Pod, usize, i64)> = Vec::new();
            for number in 0..200 {
                if next(3) == 0 && !running.is_empty() {
                    let (pod, at, cpu) = running.swap_remove(next(running.len() as u64) as usize);
                    assert!(ledger.forget_pod(&pod));
                    nodes[at].1 -= cpu;
                    nodes[at].2 -= 1;
                    continue;
                }
                let (cpu, tolerates) = ([0, 100, 250, 700][next(4) as usize], next(2) == 0);
                let (key, mut pod) = pod(&format!("p{number}"), &format!("{cpu}m"));
                if tolerates {
                    let all = serde_json::from_value(json!([{"operator": "Exists"}])).unwrap();
                    pod.spec.as_mut().unwrap().tolerations = Some(all);
                }
                let expected = naive(&nodes, cpu, tolerates);
                match (ledger.decide(&key, &pod), expected) {
                    (Decision::Bind(node), Some(expected)) => {
                        assert_eq!(node, expected);
                        let at = nodes
                            .iter()
                            .position(|(node, ..)| node.metadata.name.as_deref() == Some(&expected))
                            .unwrap();
                        nodes[at].1 += cpu;
                        nodes[at].2 += 1;
                        running.push((pod, at, cpu));
                    }
                    (Decision::Wait(_), None) => {}
                    (decision, expected) => panic!("{decision:?} instead of {expected:?}"),
                }
            }
        }
    }
}
