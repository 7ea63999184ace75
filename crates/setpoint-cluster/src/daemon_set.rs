//! DaemonSets: one pod on each node that will do.

mod back_off;
mod manage;
mod nodes;
mod rolling;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetSpec};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::core::{Selector, SelectorExt};
use kube::{Api, ResourceExt};
use setpoint::{
    Action, Context, Controller, Event, Lister, ObjectKey, ReconcileError, SharedInformerFactory,
    patch_status,
};

use self::back_off::BackOff;
use self::nodes::Demands;
use crate::history::{History, REVISION_LABEL};
use crate::replica_set::CATCH_UP_LIMIT;
use crate::{caches, owned, pod};

/// The label of a pod that has the number of its template, as the first versions of the API counted it.
const GENERATION_LABEL: &str = "pod-template-generation";
const GENERATION: &str = "deprecated.daemonset.template.generation";

/// The controller of DaemonSets.
pub(crate) fn controller(informers: &SharedInformerFactory) -> Controller {
    let sets: Lister<DaemonSet> = informers.informer::<DaemonSet>().lister();
    let pods = informers.informer::<Pod>();
    caches::index_pods(&pods);
    owned::by_controller::<Pod>(informers);
    owned::by_controller::<ControllerRevision>(informers);
    let (all, nodes, pods) = (sets.clone(), informers.informer::<Node>().lister(), pods.lister());
    Controller::of::<DaemonSet>(.., "daemonset-controller", reconcile)
        .watches::<Pod>(.., move |pod| owned::concerned(&sets, pod, selects))
        .watches::<Node>(.., move |node| nodes::concerned(&all, &nodes, &pods, node))
        .owns::<ControllerRevision>(..)
        .workers(2)
        .catch_up_limit(CATCH_UP_LIMIT)
        .state(BackOff::default())
}

fn selects(set: &DaemonSet, pod: &Pod) -> bool {
    let selector = Selector::try_from(set.spec.selector.clone());
    selector.is_ok_and(|selector| selector.matches(pod.labels()))
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(set) = cx.lister::<DaemonSet>()?.get(&key) else {
        cx.state::<BackOff>()?.forget(&key);
        return Ok(Action::done());
    };
    let spec = &set.spec;
    let Ok(selector) = Selector::try_from(spec.selector.clone()) else {
        return Err(ReconcileError::terminal("the selector cannot be understood"));
    };
    if selector.selects_all() {
        let note = "This daemon set is selecting all pods. A non-empty selector is required.";
        cx.recorder().event(&*set, Event::warning("SelectingAll", note));
        return Ok(Action::done());
    }
    if set.metadata.deletion_timestamp.is_some() {
        return Ok(Action::done());
    }
    let candidates = owned::candidates(&cx.lister::<Pod>()?, &*set);
    let all = owned::claim_all(&cx, &*set, &selector, candidates, None).await?;
    let mut history = History::claim(&cx, &*set, &selector, REVISION_LABEL).await?;
    let known = set.status.clone().unwrap_or_default();
    let mut collisions = known.collision_count.unwrap_or(0);
    let current = history.of_template(&spec.template, &mut collisions).await?;
    let hash = current.labels().get(REVISION_LABEL).cloned().unwrap_or_else(|| current.name_any());
    let run = Run {
        cx: &cx,
        back_off: cx.state()?,
        key: &key,
        set: &set,
        spec,
        demands: Demands::of(&set),
        nodes: cx.lister::<Node>()?.list(),
        pods: by_node(&all),
        hash,
    };
    let outcome = run.update().await;
    let mut status = run.status();
    status.collision_count = known.collision_count.filter(|known| *known == collisions);
    if collisions > 0 {
        status.collision_count = Some(collisions);
    }
    status.conditions = known.conditions;
    let sets: Api<DaemonSet> = Api::namespaced(cx.client(), key.namespace().unwrap_or_default());
    let written = patch_status(&sets, &set, &status).await;
    let retry = outcome?;
    written?;
    run.forget_old(&history, &current, &all).await?;
    Ok(run.next_check(retry))
}

/// Pods by the node that they are on, or that they are made for.
fn by_node(pods: &[Arc<Pod>]) -> BTreeMap<String, Vec<Arc<Pod>>> {
    let mut nodes: BTreeMap<String, Vec<Arc<Pod>>> = BTreeMap::new();
    for pod in pods {
        let is_over = pod::is_finished(pod) && pod.metadata.deletion_timestamp.is_some();
        if let Some(node) = nodes::target(pod).filter(|_| !is_over) {
            nodes.entry(node.to_owned()).or_default().push(pod.clone());
        }
    }
    // Those that are on their node first, then the oldest.
    for pods in nodes.values_mut() {
        pods.sort_by_cached_key(|pod| {
            let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
            (pod::node_name(pod).is_empty(), created, pod.name_any())
        });
    }
    nodes
}

/// One reconcile of a DaemonSet.
struct Run<'a> {
    cx: &'a Context,
    back_off: &'a BackOff,
    key: &'a ObjectKey,
    set: &'a DaemonSet,
    spec: &'a DaemonSetSpec,
    demands: Demands,
    nodes: Vec<Arc<Node>>,
    pods: BTreeMap<String, Vec<Arc<Pod>>>,
    /// What tells the pods of the template apart.
    hash: String,
}

impl Run<'_> {
    fn pods_on(&self, node: &str) -> &[Arc<Pod>] {
        self.pods.get(node).map(Vec::as_slice).unwrap_or_default()
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.min_ready_seconds.unwrap_or(0)
    }

    fn is_available(&self, pod: &Pod) -> bool {
        pod::is_available(pod, self.min_ready_seconds(), self.cx.env().now())
    }

    /// Whether a pod was made of the template.
    fn is_updated(&self, pod: &Pod) -> bool {
        let generation = self.set.annotations().get(GENERATION);
        let is_same = |label: &str, value: &String| pod.labels().get(label) == Some(value);
        is_same(REVISION_LABEL, &self.hash)
            || generation.is_some_and(|generation| is_same(GENERATION_LABEL, generation))
    }
}
