//! Gives pods that have none a node, or says why no node will do.

pub(crate) mod fit;
mod ledger;
mod needs;
mod nodes;
mod requests;
mod waiting;

use std::collections::VecDeque;
use std::time::Duration;

use futures::Stream;
use futures::stream::unfold;
use serde_json::json;
use setpoint::k8s_openapi::api::core::v1::{Node, Pod};
use setpoint::kube::api::{Patch, PatchParams, PostParams};
use setpoint::kube::core::Status;
use setpoint::kube::{self, Api};
use setpoint::{
    Action, Context, Controller, Event, HandlerFns, Held, Manager, ObjectKey, Predicate, ReconcileError,
    Registration, Watch,
};

use self::ledger::{Decision, SharedLedger};
use crate::failure;

/// How long one reconcile may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// What pods that want this scheduler have in `spec.schedulerName`, and what its events are from.
const NAME: &str = "default-scheduler";
/// How many pods are bound at the same time. Each is decided on alone. Each binding waits for the disk; those that wait
/// together share the wait.
const WORKERS: usize = 48;

/// Adds the scheduler to a manager.
pub(crate) fn add_to(manager: Manager) -> Manager {
    let ledger = SharedLedger::default();
    let informers = manager.informers();
    let pods = informers.informer::<Pod>().add_handler(follow_pods(&ledger));
    let nodes = informers.informer::<Node>().add_handler(follow_nodes(&ledger));
    // Once a cache shows a pod on its node, there is nothing more to do for it.
    let is_bound = |pod: &Held<Pod>| !crate::pod::node_name(pod).is_empty();
    let unbound = Predicate::updates(move |old, new| {
        !(is_bound(old) && is_bound(new)) || old.metadata.uid != new.metadata.uid
    });
    let controller = Controller::of(Watch::<Pod>::new().filter(unbound), NAME, reconcile)
        .reads::<Node>(..)
        .triggered_by(wakings(ledger.clone()))
        .workers(WORKERS)
        .time_limit(TIME_LIMIT)
        .state(Scheduler { ledger, pods, nodes });
    manager.controller(controller)
}

/// What is on which node, and what tells the ledger of it.
struct Scheduler {
    ledger: SharedLedger,
    pods: Registration,
    nodes: Registration,
}

fn follow_pods(ledger: &SharedLedger) -> HandlerFns<Pod> {
    let (added, updated, deleted) = (ledger.clone(), ledger.clone(), ledger.clone());
    HandlerFns::new()
        .on_add(move |pod: &Held<Pod>, _| added.change(|ledger| ledger.see_pod(pod)))
        .on_update(move |old: &Held<Pod>, pod: &Held<Pod>| {
            // The deletion of a pod whose name was taken again at once may not be told.
            let is_another = old.metadata.uid != pod.metadata.uid;
            updated.change(|ledger| (is_another && ledger.forget_pod(old)) | ledger.see_pod(pod));
        })
        .on_delete(move |pod| deleted.change(|ledger| ledger.forget_pod(&pod.object)))
}

fn follow_nodes(ledger: &SharedLedger) -> HandlerFns<Node> {
    let (added, updated, deleted) = (ledger.clone(), ledger.clone(), ledger.clone());
    HandlerFns::new()
        .on_add(move |node: &Held<Node>, _| added.change(|ledger| ledger.see_node(node.object())))
        .on_update(move |_, node: &Held<Node>| updated.change(|ledger| ledger.see_node(node.object())))
        .on_delete(move |node| deleted.change(|ledger| ledger.forget_node(&node.object)))
}

/// The pods that wait for a node, each time that one of them may have one, the most important first.
fn wakings(ledger: SharedLedger) -> impl Stream<Item = ObjectKey> + Send + 'static {
    unfold((ledger, VecDeque::new()), |(ledger, mut keys)| async move {
        while keys.is_empty() {
            keys = ledger.woken().await.into();
        }
        let key = keys.pop_front()?;
        Some((key, (ledger, keys)))
    })
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Scheduler { ledger, pods, nodes } = cx.state()?;
    let pod = cx.lister::<Pod>()?.get(&key);
    ledger.change(|ledger| ledger.look(&key, pod.as_deref()));
    let Some(pod) = pod.filter(|pod| is_to_schedule(pod)) else {
        ledger.change(|ledger| ledger.stop_waiting(&key));
        return Ok(Action::done());
    };
    // The caches are full before the ledger has been told of everything in them.
    pods.wait_for_sync().await;
    nodes.wait_for_sync().await;
    let mut decision = ledger.decide(&key, &pod);
    if decision == Decision::InDoubt {
        if !is_unbound(&cx, ledger, &key, &pod).await? {
            return Ok(Action::done());
        }
        ledger.change(|ledger| ledger.forget_pod(&pod));
        decision = ledger.decide(&key, &pod);
    }
    match decision {
        Decision::Placed | Decision::InDoubt => {}
        Decision::Bind(node) => match bind(&cx, &pod, &node).await {
            Ok(()) => {
                ledger.change(|ledger| ledger.confirm(&pod));
                let (namespace, name) = (key.namespace().unwrap_or_default(), key.name());
                let note = format!("Successfully assigned {namespace}/{name} to {node}");
                cx.recorder().event(&*pod, Event::normal("Scheduled", note).action("Binding"));
            }
            Err(error) if failure::is_not_found(&error) => {
                ledger.change(|ledger| ledger.forget_pod(&pod));
            }
            // The server may have done it all the same: the place is kept until the next try has looked.
            Err(error) => return Err(error.into()),
        },
        Decision::Wait(why) => {
            say_why(&cx, &pod, &why).await?;
            cx.recorder().event(&*pod, Event::warning("FailedScheduling", why).action("Scheduling"));
        }
    }
    Ok(Action::done())
}

/// Asks the server whether a pod whose binding failed has a node after all, and tells the ledger.
async fn is_unbound(
    cx: &Context,
    ledger: &SharedLedger,
    key: &ObjectKey,
    pod: &Pod,
) -> Result<bool, kube::Error> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<Pod> = Api::namespaced(cx.untracked_client(), namespace);
    let live = api.get_opt(pod.metadata.name.as_deref().unwrap_or_default()).await?;
    let Some(live) = live.filter(|live| live.metadata.uid == pod.metadata.uid) else {
        ledger.change(|ledger| ledger.forget_pod(pod));
        return Ok(false);
    };
    ledger.change(|ledger| ledger.see_live(key, &live));
    Ok(crate::pod::node_name(&live).is_empty())
}

/// Whether the pod waits for this scheduler.
fn is_to_schedule(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    spec.node_name.as_deref().unwrap_or_default().is_empty()
        && spec.scheduler_name.as_deref().is_none_or(|name| name == NAME)
        && spec.scheduling_gates.as_ref().is_none_or(Vec::is_empty)
        && pod.metadata.deletion_timestamp.is_none()
        && !matches!(phase, Some("Succeeded" | "Failed"))
}

/// Nobody waits for the cache to show the binding: the ledger knows it.
async fn bind(cx: &Context, pod: &Pod, node: &str) -> Result<(), kube::Error> {
    let meta = &pod.metadata;
    let (namespace, name) =
        (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": {"name": name, "namespace": namespace, "uid": meta.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let api: Api<Pod> = Api::namespaced(cx.untracked_client(), namespace);
    let _: Status = api.create_subresource("binding", name, &PostParams::default(), &binding).await?;
    Ok(())
}

/// Sets the condition that says why the pod is pending.
async fn say_why(cx: &Context, pod: &Pod, why: &str) -> Result<(), kube::Error> {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let old = conditions.into_iter().find(|condition| condition.type_ == "PodScheduled");
    let is_false =
        old.is_some_and(|old| old.status == "False" && old.reason.as_deref() == Some("Unschedulable"));
    if is_false && old.is_some_and(|old| old.message.as_deref() == Some(why)) {
        return Ok(());
    }
    let since = old.filter(|_| is_false).and_then(|old| old.last_transition_time.clone());
    let now = cx.env().now();
    let since = since.map_or(now, |since| since.0);
    let patch = json!({
        "metadata": {"uid": pod.metadata.uid},
        "status": {"conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why,
            "lastProbeTime": null, "lastTransitionTime": format!("{since:.0}"),
            "observedGeneration": pod.metadata.generation,
        }]},
    });
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<Pod> = Api::namespaced(cx.client(), namespace);
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    match api.patch_status(name, &PatchParams::default(), &Patch::Strategic(&patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        patched => patched.map(drop),
    }
}
