//! Deletes pods that do not tolerate the taint `NoExecute` of their node, or not any longer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use parking_lot::Mutex;
use serde_json::json;
use setpoint::{
    Action, Change, Context, Controller, Event, ObjectKey, Predicate, ReconcileError, SharedInformerFactory,
    Watch,
};
use tokio::time::Instant;

use crate::scheduler::fit::is_tolerated;
use crate::{caches, failure, pod};

/// How long one reconcile may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);
const NAME: &str = "taint-eviction-controller";
/// How many pods are looked at at the same time.
const WORKERS: usize = 8;

/// The pods that will be deleted, and since when their time runs.
#[derive(Default)]
struct Scheduled(Mutex<BTreeMap<ObjectKey, (Option<String>, Instant)>>);

impl Scheduled {
    fn has(&self, key: &ObjectKey) -> bool {
        self.0.lock().contains_key(key)
    }
}

/// What becomes of a pod.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Stay,
    /// It goes when so much time has passed.
    GoAfter(Duration),
}

pub(crate) fn controller(informers: &SharedInformerFactory) -> Controller {
    let pods = informers.informer::<Pod>();
    caches::index_pods(&pods);
    let pods = pods.lister();
    let (nodes, scheduled) = (informers.informer::<Node>().lister(), Arc::new(Scheduled::default()));
    let known = scheduled.clone();
    // If the node of a pod gets such a taint later, its pods are looked at because of that.
    let concerned = Predicate::new(move |change| match change {
        Change::Added(pod) | Change::Updated(_, pod) => {
            let node = nodes.get(&ObjectKey::cluster(pod::node_name(pod)));
            node.is_some_and(|node| driving(&node).next().is_some()) || known.has(pod.key())
        }
        Change::Deleted(_) => true,
    });
    Controller::of(Watch::<Pod>::new().filter(concerned), NAME, reconcile)
        // Both states of a node that changes are looked at: one that has had a taint concerns its pods, too.
        .watches::<Node>(.., move |node| {
            let keys = || pods.index_keys(caches::BY_NODE, &node.name_any()).unwrap_or_default();
            if driving(node).next().is_some() { keys() } else { Vec::new() }
        })
        .workers(WORKERS)
        .time_limit(TIME_LIMIT)
        .state(scheduled)
}

/// The taints of a node that drive pods away.
fn driving(node: &Node) -> impl Iterator<Item = &Taint> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.filter(|taint| taint.effect == "NoExecute")
}

fn verdict(pod: &Pod, node: &Node) -> Verdict {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    let mut least: Option<Duration> = None;
    for taint in driving(node) {
        let mut tolerating = tolerations.iter().filter(|one| is_tolerated(taint, std::slice::from_ref(*one)));
        let Some(toleration) = tolerating.next() else { return Verdict::GoAfter(Duration::ZERO) };
        if let Some(seconds) = toleration.toleration_seconds {
            let time = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
            least = Some(least.map_or(time, |least| least.min(time)));
        }
    }
    least.map_or(Verdict::Stay, Verdict::GoAfter)
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let scheduled = cx.state::<Arc<Scheduled>>()?;
    let pod = cx.lister::<Pod>()?.get(&key).filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let nodes = cx.lister::<Node>()?;
    let node = pod.as_ref().and_then(|pod| nodes.get(&ObjectKey::cluster(pod::node_name(pod))));
    let (Some(pod), Some(node)) = (pod, node) else {
        scheduled.0.lock().remove(&key);
        return Ok(Action::done());
    };
    let Verdict::GoAfter(time) = verdict(&pod, &node) else {
        if scheduled.0.lock().remove(&key).is_some() {
            let note = format!("Cancelling deletion of Pod {key}");
            cx.recorder().event(&*pod, Event::normal("TaintManagerEviction", note));
        }
        return Ok(Action::done());
    };
    let now = cx.env().instant();
    let since = {
        let mut scheduled = scheduled.0.lock();
        let entry = scheduled.entry(key.clone()).or_insert_with(|| (pod.uid(), now));
        if entry.0 != pod.uid() {
            *entry = (pod.uid(), now);
        }
        entry.1
    };
    let left = time.saturating_sub(now.saturating_duration_since(since));
    if !left.is_zero() {
        return Ok(Action::requeue_after(left));
    }
    let note = format!("Marking for deletion Pod {key}");
    cx.recorder().event(&*pod, Event::normal("TaintManagerEviction", note));
    delete(&cx, &pod).await?;
    scheduled.0.lock().remove(&key);
    Ok(Action::done())
}

/// Says why a pod goes, and deletes it.
async fn delete(cx: &Context, pod: &Pod) -> Result<(), ReconcileError> {
    let pods: Api<Pod> = Api::namespaced(cx.client(), &pod.namespace().unwrap_or_default());
    let name = pod.name_any();
    let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [{
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint",
        "lastTransitionTime": format!("{:.0}", cx.env().now()),
        "observedGeneration": pod.metadata.generation,
    }]}});
    let done = async {
        pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(&patch)).await?;
        let this = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        pods.delete(&name, &DeleteParams::default().preconditions(this)).await?;
        Ok::<_, kube::Error>(())
    };
    match done.await {
        Err(error) if failure::is_not_found(&error) => Ok(()),
        done => Ok(done?),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn check(tolerations: Value, expected: Verdict) {
        let pod = json!({"metadata": {}, "spec": {"containers": [], "tolerations": tolerations}});
        let taints = json!([{"key": "a", "effect": "NoExecute"}, {"key": "b", "effect": "NoSchedule"}]);
        let node = json!({"metadata": {}, "spec": {"taints": taints}});
        let (pod, node) = (serde_json::from_value(pod).unwrap(), serde_json::from_value(node).unwrap());
        assert_eq!(verdict(&pod, &node), expected, "{tolerations}");
    }

    #[test]
    fn a_pod_stays_as_long_as_it_tolerates_the_taint() {
        check(json!([]), Verdict::GoAfter(Duration::ZERO));
        check(json!([{"key": "a", "operator": "Exists"}]), Verdict::Stay);
        let seconds =
            |seconds: i64| json!([{"key": "a", "operator": "Exists", "tolerationSeconds": seconds}]);
        check(seconds(300), Verdict::GoAfter(Duration::from_secs(300)));
        check(seconds(-1), Verdict::GoAfter(Duration::ZERO));
        check(json!([{"key": "b", "operator": "Exists"}]), Verdict::GoAfter(Duration::ZERO));
    }
}
