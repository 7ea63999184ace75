//! Deletes pods that nobody else will: those of nodes that are gone, those that are deleted and never had a node, and
//! the oldest of very many that have ended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use parking_lot::Mutex;
use serde_json::json;
use setpoint::controller::ListerError;
use setpoint::{
    Action, Change, Context, Controller, Lister, ObjectKey, Predicate, ReconcileError, SharedInformerFactory,
    Watch,
};
use tokio::time::Instant;

use crate::{caches, failure, pod};

/// How long one reconcile may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);
const NAME: &str = "pod-garbage-collector-controller";
/// How long a node may be gone before its pods are: it may come back.
const QUARANTINE: Duration = Duration::from_secs(40);
/// How long what the server said of a node holds.
const PERIOD: Duration = Duration::from_secs(20);
/// How many pods that have ended are kept.
const KEPT: usize = 12_500;
/// The taint of a node that will not come back.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// What this process has seen.
#[derive(Default)]
struct Seen {
    /// The nodes that pods name and that are not there.
    missing: Mutex<BTreeMap<String, Missing>>,
    /// Pods that have ended: evicted ones first, then the oldest.
    ended: Mutex<Ended>,
}

/// A node that is not there.
#[derive(Clone, Copy)]
struct Missing {
    since: Instant,
    /// When the server last said so: one answer does for all of the node's pods.
    confirmed: Option<Instant>,
}

impl Missing {
    fn is_confirmed(&self, now: Instant) -> bool {
        self.confirmed.is_some_and(|confirmed| now.saturating_duration_since(confirmed) < PERIOD)
    }
}

#[derive(Default)]
struct Ended {
    order: BTreeSet<(bool, Option<Timestamp>, ObjectKey)>,
    places: BTreeMap<ObjectKey, (bool, Option<Timestamp>)>,
}

impl Ended {
    fn remove(&mut self, key: &ObjectKey) {
        if let Some((is_kept, created)) = self.places.remove(key) {
            self.order.remove(&(is_kept, created, key.clone()));
        }
    }

    /// Notes a pod that has ended.
    fn add(&mut self, key: &ObjectKey, is_evicted: bool, created: Option<Timestamp>) {
        self.remove(key);
        self.places.insert(key.clone(), (!is_evicted, created));
        self.order.insert((!is_evicted, created, key.clone()));
    }

    /// The next one to delete, if there are more than `most`.
    fn surplus(&self, most: usize) -> Option<ObjectKey> {
        let (_, _, first) = self.order.first().filter(|_| self.order.len() > most)?;
        Some(first.clone())
    }
}

pub(crate) fn controller(informers: &SharedInformerFactory) -> Controller {
    let pods = informers.informer::<Pod>();
    caches::index_pods(&pods);
    let (pods, nodes) = (pods.lister(), informers.informer::<Node>().lister());
    let known = nodes.clone();
    let may_go = Predicate::new(move |change| match change {
        Change::Added(pod) | Change::Updated(_, pod) => may_go(pod, &known),
        Change::Deleted(_) => true,
    });
    Controller::of(Watch::<Pod>::new().filter(may_go), NAME, reconcile)
        .watches::<Node>(.., move |node| {
            let name = node.name_any();
            let is_gone = nodes.get(&ObjectKey::cluster(&name)).is_none();
            let keys = || pods.index_keys(caches::BY_NODE, &name).unwrap_or_default();
            if is_gone || is_out_of_service(node) { keys() } else { Vec::new() }
        })
        .time_limit(TIME_LIMIT)
        .state(Seen::default())
}

/// Whether there may be something to do for a pod: it has ended, is being deleted, or its node is not there. If its node goes
/// later, its pods are looked at because of that.
fn may_go(pod: &Pod, nodes: &Lister<Node>) -> bool {
    let node = pod::node_name(pod);
    pod::is_finished(pod)
        || pod.metadata.deletion_timestamp.is_some()
        || (!node.is_empty() && nodes.held(&ObjectKey::cluster(node)).is_none())
}

fn is_out_of_service(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_ready =
        conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    !is_ready && taints.into_iter().any(|taint| taint.key == OUT_OF_SERVICE)
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let seen = cx.state::<Seen>()?;
    let Some(pod) = cx.lister::<Pod>()?.get(&key) else {
        seen.ended.lock().remove(&key);
        return Ok(Action::done());
    };
    if pod::is_finished(&pod) {
        let is_evicted =
            pod.status.as_ref().is_some_and(|status| status.reason.as_deref() == Some("Evicted"));
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        seen.ended.lock().add(&key, is_evicted, created);
        end_surplus(&cx, seen).await?;
    }
    let is_deleted = pod.metadata.deletion_timestamp.is_some();
    let name = pod::node_name(&pod);
    if name.is_empty() {
        if is_deleted && pod.metadata.deletion_grace_period_seconds != Some(0) {
            end(&cx, &pod, None).await?;
        }
        return Ok(Action::done());
    }
    if let Some(node) = cx.lister::<Node>()?.get(&ObjectKey::cluster(name)) {
        seen.missing.lock().remove(name);
        if is_deleted && is_out_of_service(&node) {
            end(&cx, &pod, None).await?;
        }
        return Ok(Action::done());
    }
    let now = cx.env().instant();
    let missing =
        *seen.missing.lock().entry(name.to_owned()).or_insert(Missing { since: now, confirmed: None });
    let left = QUARANTINE.saturating_sub(now.saturating_duration_since(missing.since));
    if !left.is_zero() {
        return Ok(Action::requeue_after(left));
    }
    // Nothing is deleted for what only a cache says.
    if !missing.is_confirmed(now) {
        if Api::<Node>::all(cx.untracked_client()).get_opt(name).await?.is_some() {
            // The cache will show it, and then its pods are looked at again.
            return Ok(Action::requeue_after(PERIOD));
        }
        confirm(&cx, seen, name, now)?;
    }
    end(&cx, &pod, Some("PodGC: node no longer exists")).await?;
    Ok(Action::done())
}

/// Deletes pods that have ended until no more are left than are kept.
async fn end_surplus(cx: &Context, seen: &Seen) -> Result<(), ReconcileError> {
    loop {
        let Some(surplus) = seen.ended.lock().surplus(KEPT) else { return Ok(()) };
        if let Some(pod) = cx.lister::<Pod>()?.get(&surplus) {
            end(cx, &pod, None).await?;
        }
        seen.ended.lock().remove(&surplus);
    }
}

/// Notes that the server knows no such node, and forgets nodes that no pod names any more.
fn confirm(cx: &Context, seen: &Seen, name: &str, now: Instant) -> Result<(), ListerError> {
    let pods = cx.lister::<Pod>()?;
    let mut missing = seen.missing.lock();
    missing.retain(|node, _| pods.index_keys(caches::BY_NODE, node).is_ok_and(|pods| !pods.is_empty()));
    if let Some(missing) = missing.get_mut(name) {
        missing.confirmed = Some(now);
    }
    Ok(())
}

/// Says that a pod has failed, unless it has ended, and deletes it without waiting for a kubelet.
async fn end(cx: &Context, pod: &Pod, why: Option<&str>) -> Result<(), ReconcileError> {
    let pods: Api<Pod> = Api::namespaced(cx.client(), &pod.namespace().unwrap_or_default());
    let name = pod.name_any();
    let done = async {
        if !pod::is_finished(pod) {
            let mut patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"phase": "Failed"}});
            if let Some(why) = why {
                patch["status"]["conditions"] = json!([{
                    "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": why,
                    "lastTransitionTime": format!("{:.0}", cx.env().now()),
                    "observedGeneration": pod.metadata.generation,
                }]);
            }
            pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(&patch)).await?;
        }
        let this = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        pods.delete(&name, &DeleteParams::default().grace_period(0).preconditions(this)).await?;
        Ok::<_, kube::Error>(())
    };
    match done.await {
        Err(error) if failure::is_not_found(&error) => Ok(()),
        done => Ok(done?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_pods_that_have_ended_the_evicted_and_the_oldest_go_first() {
        let mut ended = Ended::default();
        let key = |name: &str| ObjectKey::namespaced("n", name);
        let at = |second| Timestamp::from_second(second).ok();
        ended.add(&key("old"), false, at(1));
        ended.add(&key("new"), false, at(3));
        assert_eq!(ended.surplus(2), None);
        ended.add(&key("evicted"), true, at(9));
        ended.add(&key("newer"), false, at(4));
        // All that are too many, one after another, also if they were there at once.
        for expected in ["evicted", "old"] {
            assert_eq!(ended.surplus(2), Some(key(expected)));
            ended.remove(&key(expected));
        }
        assert_eq!(ended.surplus(2), None);
    }
}
