//! Sees which nodes are alive: by their leases. One that is silent is marked, tainted, and its pods are not ready.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::k8s_openapi::api::coordination::v1::Lease;
use setpoint::k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, Taint};
use setpoint::kube::api::{Patch, PatchParams};
use setpoint::kube::{self, Api};
use setpoint::{Action, Context, Controller, Event, Lister, Manager, ObjectKey, ReconcileError};
use tokio::time::Instant;

use crate::caches;

/// How long one reconcile may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// What its events are from.
const NAME: &str = "node-controller";
/// The namespace of the leases of nodes.
const LEASES: &str = "kube-node-lease";
/// How long a node may be silent.
const GRACE: Duration = Duration::from_secs(50);
/// How often a silent node is looked at again.
const MONITOR: Duration = Duration::from_secs(5);
/// The conditions of which nobody knows anything when a node is silent.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
/// The taint of each condition: the status that brings it, its key, and whether it drives pods away.
const TAINTS: [(&str, &str, &str, bool); 6] = [
    ("Ready", "False", "node.kubernetes.io/not-ready", true),
    ("Ready", "Unknown", "node.kubernetes.io/unreachable", true),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure", false),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure", false),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure", false),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable", false),
];
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// What this process has seen of the nodes. Clocks of nodes are not compared with this one's.
struct Watch {
    beats: Mutex<BTreeMap<String, Beat>>,
    pods: Lister<Pod>,
}

/// The last sign of life of a node.
struct Beat {
    sign: Vec<Option<jiff::Timestamp>>,
    seen: Instant,
}

/// Adds the controller to a manager.
pub(crate) fn add_to(manager: Manager) -> Manager {
    let pods = manager.informers().informer::<Pod>();
    caches::index_pods(&pods);
    let watch = Watch { beats: Mutex::default(), pods: pods.lister() };
    let controller = Controller::of::<Node>(.., NAME, reconcile)
        .watches::<Lease>(.., |lease| {
            let name = lease
                .metadata
                .name
                .as_deref()
                .filter(|_| lease.metadata.namespace.as_deref() == Some(LEASES));
            name.map(ObjectKey::cluster).into_iter().collect()
        })
        .time_limit(TIME_LIMIT)
        .state(watch);
    manager.controller(controller)
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let watch = cx.state::<Watch>()?;
    let Some(node) = cx.lister::<Node>()?.get(&key) else {
        watch.beats.lock().remove(key.name());
        return Ok(Action::done());
    };
    let lease = cx.lister::<Lease>()?.get(&ObjectKey::namespaced(LEASES, key.name()));
    let silent = watch.silence(&node, lease.as_deref(), cx.env().instant());
    let api: Api<Node> = Api::all(cx.client());
    let written = async {
        if silent >= GRACE && status_of(&node, "Ready") != Some("Unknown") {
            return mark_unknown(&api, &node, &cx).await;
        }
        taint(&api, &node, &cx).await
    };
    match written.await {
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Action::done()),
        written => written?,
    }
    if status_of(&node, "Ready").is_some_and(|status| status != "True") {
        mark_pods(&cx, &watch.pods, &node).await?;
    }
    // A kubelet that was back for a moment may have said that its pods are ready, without a sign of life of the node.
    Ok(Action::requeue_after(if silent < GRACE { GRACE.saturating_sub(silent) } else { MONITOR }))
}

impl Watch {
    /// How long the node has given no sign of life that this process has seen.
    fn silence(&self, node: &Node, lease: Option<&Lease>, now: Instant) -> Duration {
        let renewed = lease.and_then(|lease| lease.spec.as_ref()?.renew_time.as_ref()).map(|time| time.0);
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let heartbeats =
            conditions.map(|condition| condition.last_heartbeat_time.as_ref().map(|time| time.0));
        let sign: Vec<_> = std::iter::once(renewed).chain(heartbeats).collect();
        let mut beats = self.beats.lock();
        let name = node.metadata.name.clone().unwrap_or_default();
        let beat = beats.entry(name).or_insert_with(|| Beat { sign: sign.clone(), seen: now });
        if beat.sign != sign {
            *beat = Beat { sign, seen: now };
        }
        now.saturating_duration_since(beat.seen)
    }
}

fn find<'a>(node: &'a Node, type_: &str) -> Option<&'a NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == type_)
}

fn status_of<'a>(node: &'a Node, type_: &str) -> Option<&'a str> {
    find(node, type_).map(|condition| condition.status.as_str())
}

/// Says of a silent node that nothing is known about it.
async fn mark_unknown(api: &Api<Node>, node: &Node, cx: &Context) -> Result<(), kube::Error> {
    let now = format!("{:.0}", cx.env().now());
    let condition = |type_: &str| {
        let old = find(node, type_);
        let (reason, message) = match old {
            Some(_) => ("NodeStatusUnknown", "Kubelet stopped posting node status."),
            None => ("NodeStatusNeverUpdated", "Kubelet never posted node status."),
        };
        let time =
            |time: Option<jiff::Timestamp>| time.map_or_else(|| now.clone(), |time| format!("{time:.0}"));
        let heartbeat = old.and_then(|old| old.last_heartbeat_time.as_ref()).map(|time| time.0);
        let since =
            old.filter(|old| old.status == "Unknown").and_then(|old| old.last_transition_time.as_ref());
        json!({
            "type": type_, "status": "Unknown", "reason": reason, "message": message,
            "lastHeartbeatTime": time(heartbeat), "lastTransitionTime": time(since.map(|time| time.0)),
        })
    };
    let conditions: Vec<Value> = CONDITIONS.into_iter().map(condition).collect();
    let patch = json!({
        "metadata": {"resourceVersion": node.metadata.resource_version},
        "status": {"conditions": conditions},
    });
    let name = node.metadata.name.as_deref().unwrap_or_default();
    api.patch_status(name, &PatchParams::default(), &Patch::Strategic(&patch)).await?;
    let note = format!("Node {name} status is now: NodeNotReady");
    cx.recorder().event(node, Event::normal("NodeNotReady", note));
    Ok(())
}

/// Gives the node the taints that its conditions and its cordon ask for; those of others stay.
async fn taint(api: &Api<Node>, node: &Node, cx: &Context) -> Result<(), kube::Error> {
    let spec = node.spec.clone().unwrap_or_default();
    let old = spec.taints.unwrap_or_default();
    let wanted = wanted(node);
    let is_ours =
        |taint: &Taint| taint.key == UNSCHEDULABLE || TAINTS.iter().any(|(_, _, key, _)| taint.key == *key);
    let is_wanted =
        |taint: &Taint| wanted.iter().any(|(key, effect)| taint.key == *key && taint.effect == *effect);
    let mut taints: Vec<Value> =
        old.iter().filter(|taint| !is_ours(taint) || is_wanted(taint)).map(|taint| json!(taint)).collect();
    let is_there = |(key, effect): &&(&str, &str)| old.iter().any(|t| t.key == *key && t.effect == *effect);
    let missing: Vec<_> = wanted.iter().filter(|taint| !is_there(taint)).collect();
    if taints.len() == old.len() && missing.is_empty() {
        return Ok(());
    }
    let now = format!("{:.0}", cx.env().now());
    taints
        .extend(missing.iter().map(|(key, effect)| json!({"key": key, "effect": effect, "timeAdded": now})));
    let patch = json!({
        "metadata": {"resourceVersion": node.metadata.resource_version},
        "spec": {"taints": taints},
    });
    let name = node.metadata.name.as_deref().unwrap_or_default();
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop)
}

/// The taints that a node should have, as key and effect.
fn wanted(node: &Node) -> Vec<(&'static str, &'static str)> {
    let mut wanted = Vec::new();
    for (type_, status, key, drives_away) in TAINTS {
        if status_of(node, type_) == Some(status) {
            wanted.push((key, "NoSchedule"));
            if drives_away {
                wanted.push((key, "NoExecute"));
            }
        }
    }
    if node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true)) {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    wanted
}

/// The pods of a node that is not ready serve nobody.
async fn mark_pods(cx: &Context, pods: &Lister<Pod>, node: &Node) -> Result<(), ReconcileError> {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    for pod in pods.by_index(caches::BY_NODE, name)? {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
        if ready.is_none_or(|ready| ready.status != "True") {
            continue;
        }
        let patch = json!({
            "metadata": {"uid": pod.metadata.uid},
            "status": {"conditions": [{
                "type": "Ready", "status": "False", "lastTransitionTime": format!("{:.0}", cx.env().now()),
            }]},
        });
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Pod> = Api::namespaced(cx.client(), namespace);
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        match api.patch_status(name, &PatchParams::default(), &Patch::Strategic(&patch)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => continue,
            patched => drop(patched?),
        }
        cx.recorder().event(&*pod, Event::warning("NodeNotReady", "Node is not ready"));
    }
    Ok(())
}
