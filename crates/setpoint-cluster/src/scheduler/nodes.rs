//! The nodes, ordered by how much is to spare on them, so that the best one is found without a look at the others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use setpoint::k8s_openapi::api::core::v1::Node;

use super::fit;
use super::needs::{Needs, Port, collide};
use super::requests::Amounts;

/// What a container without requests counts as, so that such pods are spread too.
const LEAST_CPU: i128 = 100_000_000;
const LEAST_MEMORY: i128 = 200 * 1024 * 1024 * 1_000_000_000;
/// One pod, in nanos, as `allocatable` counts them.
const ONE: i128 = 1_000_000_000;
/// The score of an empty node. A taint that a pod would rather not have weighs as much.
const WHOLE: f64 = 1e9;

/// Nodes, and what is on them.
#[derive(Default)]
pub(super) struct Nodes {
    rows: HashMap<Arc<str>, Row>,
    shapes: BTreeMap<Arc<str>, Shape>,
}

/// One node.
#[derive(Default)]
struct Row {
    /// None as long as only pods name it.
    node: Option<(Arc<Node>, Arc<str>)>,
    used: Amounts,
    pods: i128,
    ports: Vec<Port>,
}

/// Nodes with the same taints and the same amounts of everything. What a pod costs is the same on all of them, so one order
/// of them holds for every pod.
struct Shape {
    /// Any of them.
    example: Arc<Node>,
    allocatable: Amounts,
    /// Those with room for one more pod by number, the one with the most to spare first. What is free on each is here, too:
    /// thousands that lack only processor time are passed over without a look at their rows.
    open: BTreeMap<(Reverse<i64>, Arc<str>), Free>,
    /// The others.
    full: BTreeSet<Arc<str>>,
}

/// What is free on a node.
struct Free {
    cpu: i128,
    memory: i128,
}

/// Why a node will not do, in kube-scheduler's words.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Refusal<'a> {
    Because(&'static str),
    Insufficient(&'a str),
}

impl Nodes {
    /// Takes over a node's state. Says whether it may do for other pods than before.
    pub(super) fn see(&mut self, node: &Arc<Node>) -> bool {
        let name = name(node);
        let old = self.rows.get(name).and_then(|row| row.node.as_ref());
        let allocatable = |node: &Node| node.status.as_ref().and_then(|status| status.allocatable.clone());
        let is_same = old.is_some_and(|(old, _)| {
            old.spec == node.spec
                && old.metadata.labels == node.metadata.labels
                && allocatable(old) == allocatable(node)
        });
        if is_same {
            // What is compared is equal, so the shape is, too.
            return false;
        }
        let shape = self.shape_of(node);
        self.change(name, |row| row.node = Some((node.clone(), shape)));
        true
    }

    /// Forgets a node; the pods on it are still counted.
    pub(super) fn forget(&mut self, node: &Node) {
        if self.rows.contains_key(name(node)) {
            self.change(name(node), |row| row.node = None);
        }
    }

    /// Counts a pod on a node.
    pub(super) fn take(&mut self, node: &str, requests: &Amounts, ports: &[Port]) {
        self.change(node, |row| {
            row.used.add(requests);
            row.pods += 1;
            row.ports.extend(ports.iter().cloned());
        });
    }

    /// Counts a pod on a node no longer.
    pub(super) fn free(&mut self, node: &str, requests: &Amounts, ports: &[Port]) {
        self.change(node, |row| {
            row.used.subtract(requests);
            row.pods -= 1;
            for port in ports {
                if let Some(at) = row.ports.iter().position(|used| used == port) {
                    row.ports.swap_remove(at);
                }
            }
        });
    }

    /// The node with the most to spare among those that will do; of equal ones the first by name.
    pub(super) fn best(&self, needs: &Needs) -> Option<&Arc<str>> {
        let mut best = None;
        if let Some(names) = needs.named() {
            for (name, row) in names.iter().filter_map(|name| self.rows.get_key_value(*name)) {
                let Some((node, shape)) = row.node.as_ref().map(|(node, shape)| (node, &self.shapes[shape]))
                else {
                    continue;
                };
                if fit::intolerance(&needs.tolerations, node).is_none() && row.takes(shape, needs) {
                    let score = row.spare(shape) - shape.cost(needs);
                    best = best.max(Some((score, Reverse(name))));
                }
            }
            return best.map(|(_, Reverse(name))| name);
        }
        for shape in self.shapes.values() {
            if fit::intolerance(&needs.tolerations, &shape.example).is_some() {
                continue;
            }
            let cost = shape.cost(needs);
            for ((Reverse(spare), name), free) in &shape.open {
                let candidate = Some((spare - cost, Reverse(name)));
                // All that follow are worse.
                if candidate < best {
                    break;
                }
                if free.is_enough(needs) && self.rows[name].takes(shape, needs) {
                    best = candidate;
                    break;
                }
            }
        }
        best.map(|(_, Reverse(name))| name)
    }

    /// Whether this node will do.
    pub(super) fn takes(&self, node: &str, needs: &Needs) -> bool {
        let Some(row) = self.rows.get(node) else { return false };
        let Some((node, shape)) = &row.node else { return false };
        fit::intolerance(&needs.tolerations, node).is_none() && row.takes(&self.shapes[shape], needs)
    }

    /// How many nodes there are, those that only pods name included.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Why no node will do. Looks at each of them.
    pub(super) fn explain(&self, needs: &Needs) -> String {
        let mut counts: BTreeMap<Refusal<'_>, usize> = BTreeMap::new();
        let mut count = 0;
        for row in self.rows.values() {
            let Some((node, shape)) = &row.node else { continue };
            count += 1;
            match fit::intolerance(&needs.tolerations, node) {
                Some(reason) => *counts.entry(Refusal::Because(reason)).or_default() += 1,
                None => row.refusals(&self.shapes[shape], needs, |refusal| {
                    *counts.entry(refusal).or_default() += 1;
                }),
            }
        }
        if count == 0 {
            return "no nodes available to schedule pods".to_owned();
        }
        let mut reasons: Vec<String> = counts
            .iter()
            .map(|(refusal, nodes)| match refusal {
                Refusal::Because(reason) => format!("{nodes} {reason}"),
                Refusal::Insufficient(name) => format!("{nodes} Insufficient {name}"),
            })
            .collect();
        reasons.sort_unstable();
        format!("0/{count} nodes are available: {}.", reasons.join(", "))
    }

    /// The key of a node's shape, which is there afterwards.
    fn shape_of(&mut self, node: &Arc<Node>) -> Arc<str> {
        let spec = node.spec.as_ref();
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let taints = spec.and_then(|spec| spec.taints.as_ref());
        let parts = (taints, spec.and_then(|spec| spec.unschedulable), allocatable);
        let key: Arc<str> = serde_json::to_string(&parts).unwrap_or_default().into();
        self.shapes.entry(key.clone()).or_insert_with(|| Shape {
            example: node.clone(),
            allocatable: Amounts::of(allocatable),
            open: BTreeMap::new(),
            full: BTreeSet::new(),
        });
        key
    }

    /// Changes a node's row, and its place in the order with it.
    fn change(&mut self, name: &str, change: impl FnOnce(&mut Row)) {
        let (name, mut row) = self.rows.remove_entry(name).unwrap_or_else(|| (name.into(), Row::default()));
        let before = row.node.as_ref().map(|(_, shape)| shape.clone());
        if let Some(shape) = before.as_ref().and_then(|shape| self.shapes.get_mut(shape)) {
            shape.remove(&name, &row);
        }
        change(&mut row);
        let after = row.node.as_ref().map(|(_, shape)| shape);
        if let Some(shape) = after.and_then(|shape| self.shapes.get_mut(shape)) {
            shape.insert(&name, &row);
        }
        if let Some(before) = before.filter(|before| self.shapes.get(before).is_some_and(Shape::is_empty)) {
            self.shapes.remove(&before);
        }
        if row.node.is_some() || row.pods > 0 {
            self.rows.insert(name, row);
        }
    }
}

impl Shape {
    fn insert(&mut self, name: &Arc<str>, row: &Row) {
        if row.is_full(self) {
            self.full.insert(name.clone());
        } else {
            let left = |all: i128, used: i128| all.saturating_sub(used);
            let free = Free {
                cpu: left(self.allocatable.cpu, row.used.cpu),
                memory: left(self.allocatable.memory, row.used.memory),
            };
            self.open.insert((Reverse(row.spare(self)), name.clone()), free);
        }
    }

    fn remove(&mut self, name: &Arc<str>, row: &Row) {
        if row.is_full(self) {
            self.full.remove(name);
        } else {
            self.open.remove(&(Reverse(row.spare(self)), name.clone()));
        }
    }

    fn is_empty(&self) -> bool {
        self.open.is_empty() && self.full.is_empty()
    }

    /// What a pod takes from the score of each of these nodes.
    fn cost(&self, needs: &Needs) -> i64 {
        let part = |wanted: i128, least: i128, all: i128| fraction(wanted.max(least), all);
        let cpu = part(needs.requests.cpu, LEAST_CPU, self.allocatable.cpu);
        let memory = part(needs.requests.memory, LEAST_MEMORY, self.allocatable.memory);
        let disliked = fit::disliked_taints(&needs.tolerations, &self.example) as f64;
        (((cpu + memory) / 2.0 + disliked) * WHOLE) as i64
    }
}

impl Free {
    /// Nothing is enough for who wants nothing, however much too much is on the node.
    fn is_enough(&self, needs: &Needs) -> bool {
        let is_free = |wanted: i128, free: i128| wanted <= 0 || wanted <= free;
        is_free(needs.requests.cpu, self.cpu) && is_free(needs.requests.memory, self.memory)
    }
}

impl Row {
    fn is_full(&self, shape: &Shape) -> bool {
        (self.pods + 1).saturating_mul(ONE) > shape.allocatable.get("pods")
    }

    /// How much of the node is left, as a score.
    fn spare(&self, shape: &Shape) -> i64 {
        let left = |used: i128, least: i128, all: i128| {
            if all <= 0 { 0.0 } else { 1.0 - fraction(used.max(self.pods.saturating_mul(least)), all) }
        };
        let cpu = left(self.used.cpu, LEAST_CPU, shape.allocatable.cpu);
        let memory = left(self.used.memory, LEAST_MEMORY, shape.allocatable.memory);
        ((cpu + memory) / 2.0 * WHOLE) as i64
    }

    /// Whether the pod can be on the node, whose taints it tolerates.
    fn takes(&self, shape: &Shape, needs: &Needs) -> bool {
        let mut takes = true;
        self.refusals(shape, needs, |_| takes = false);
        takes
    }

    /// Everything else that speaks against the node.
    fn refusals<'a>(&self, shape: &Shape, needs: &'a Needs, mut refuse: impl FnMut(Refusal<'a>)) {
        if self.node.as_ref().is_none_or(|(node, _)| !needs.matches(node)) {
            return refuse(Refusal::Because(fit::UNMATCHED));
        }
        if needs.ports.iter().any(|port| self.ports.iter().any(|used| collide(port, used))) {
            return refuse(Refusal::Because("node(s) didn't have free ports for the requested pod ports"));
        }
        if self.is_full(shape) {
            refuse(Refusal::Because("Too many pods"));
        }
        for (name, amount) in needs.requests.iter().filter(|(_, amount)| *amount > 0) {
            if amount > shape.allocatable.get(name).saturating_sub(self.used.get(name)) {
                refuse(Refusal::Insufficient(name));
            }
        }
    }
}

/// A part of a whole; nothing of nothing.
fn fraction(part: i128, all: i128) -> f64 {
    if all <= 0 { 0.0 } else { part as f64 / all as f64 }
}

fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}
