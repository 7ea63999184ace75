//! StatefulSets: pods with names, an order, and volumes of their own.
//!
//! Where pods come and go one after another, each step waits until the caches show the last one, whoever did it: the
//! order holds when the controller dies between two writes.

mod claims;
mod identity;
mod manage;
mod retention;
mod status;
mod update;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::core::{Selector, SelectorExt};
use kube::{Api, ResourceExt};
use setpoint::{
    Action, Context, Controller, Lister, ObjectKey, ReconcileError, SharedInformerFactory, patch_status,
};

use self::identity::{is_member, ordinal, ordinals};
use self::manage::{Progress, Slot};
use crate::history::{History, REVISION_LABEL, template_of};
use crate::replica_set::CATCH_UP_LIMIT;
use crate::{owned, pod};

/// The label of a revision that has its hash.
const HASH_LABEL: &str = "controller.kubernetes.io/hash";

/// The controller of StatefulSets.
pub(crate) fn controller(informers: &SharedInformerFactory) -> Controller {
    let sets: Lister<StatefulSet> = informers.informer::<StatefulSet>().lister();
    owned::by_controller::<Pod>(informers);
    owned::by_controller::<ControllerRevision>(informers);
    Controller::of::<StatefulSet>(.., "statefulset-controller", reconcile)
        .watches::<Pod>(.., move |pod| owned::concerned(&sets, pod, takes))
        .owns::<ControllerRevision>(..)
        // A claim that a pod waits for, or that an older pod still has, decides what happens next.
        .watches::<PersistentVolumeClaim>(.., claims::concerned)
        .workers(5)
        .catch_up_limit(CATCH_UP_LIMIT)
}

fn takes(set: &StatefulSet, pod: &Pod) -> bool {
    let selector = Selector::try_from(set.spec.selector.clone());
    is_member(set, pod) && selector.is_ok_and(|selector| selector.matches(pod.labels()))
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(set) = cx.lister::<StatefulSet>()?.get(&key) else { return Ok(Action::done()) };
    let spec = &set.spec;
    let Ok(selector) = Selector::try_from(spec.selector.clone()) else {
        return Err(ReconcileError::terminal("the selector cannot be understood"));
    };
    let mut history = History::claim(&cx, &*set, &selector, HASH_LABEL).await?;
    let mut candidates = owned::candidates(&cx.lister::<Pod>()?, &*set);
    candidates.retain(|pod| is_member(&set, pod));
    let pods = owned::claim_all(&cx, &*set, &selector, candidates, None).await?;
    let known = set.status.clone().unwrap_or_default();
    let mut collisions = known.collision_count.unwrap_or(0);
    let update = history.of_template(&spec.template, &mut collisions).await?;
    let current =
        history.find(known.current_revision.as_deref().unwrap_or_default()).unwrap_or(&update).clone();
    let run =
        Run { cx: &cx, claims: cx.lister()?, set: &set, pods: &pods, current: &current, update: &update };
    let mut status = StatefulSetStatus {
        observed_generation: set.metadata.generation,
        current_revision: Some(current.name_any()),
        update_revision: Some(update.name_any()),
        collision_count: Some(collisions),
        conditions: known.conditions,
        ..StatefulSetStatus::default()
    };
    run.count(&mut status);
    let outcome = run.manage(&mut status).await;
    run.complete(&mut status);
    let sets: Api<StatefulSet> = Api::namespaced(cx.client(), key.namespace().unwrap_or_default());
    let written = patch_status(&sets, &set, &status).await;
    outcome?;
    written?;
    run.forget_old(&history).await?;
    Ok(run.next_check())
}

/// One reconcile of a StatefulSet.
struct Run<'a> {
    cx: &'a Context,
    claims: Lister<PersistentVolumeClaim>,
    set: &'a StatefulSet,
    pods: &'a [Arc<Pod>],
    /// The revision that all pods had when the last rollout was over.
    current: &'a ControllerRevision,
    /// The revision of the template.
    update: &'a ControllerRevision,
}

impl Run<'_> {
    /// Creates, updates and deletes pods, as far as the order allows it now.
    async fn manage(&self, status: &mut StatefulSetStatus) -> Result<(), ReconcileError> {
        if self.set.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let (replicas, condemned) = self.slots()?;
        if self.bring_up(&replicas).await? == Progress::Wait {
            return Ok(());
        }
        if self.bring_down(&replicas, &condemned).await? == Progress::Wait {
            return Ok(());
        }
        self.roll(&replicas, status).await
    }

    /// The places of the set, in order, and the pods that have none any more, the last first.
    fn slots(&self) -> Result<(Vec<Slot>, Vec<Arc<Pod>>), ReconcileError> {
        let range = ordinals(self.set);
        let mut replicas: Vec<Slot> = Vec::new();
        for place in range.clone() {
            let found = self.pods.iter().find(|pod| ordinal(pod) == Some(place));
            replicas.push(match found {
                Some(pod) => Slot::Pod(pod.clone()),
                None => Slot::Missing(Box::new(self.new_pod(place)?)),
            });
        }
        let is_outside = |pod: &&Arc<Pod>| ordinal(pod).is_some_and(|place| !range.contains(&place));
        let mut condemned: Vec<_> = self.pods.iter().filter(is_outside).cloned().collect();
        condemned.sort_by_key(|pod| std::cmp::Reverse(ordinal(pod)));
        Ok((replicas, condemned))
    }

    /// A pod for a place that has none: of the old template below the partition.
    fn new_pod(&self, place: i32) -> Result<Pod, ReconcileError> {
        let spec = &self.set.spec;
        let strategy = spec.update_strategy.as_ref();
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let is_rolling = strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("RollingUpdate");
        let old = match rolling {
            Some(rolling) => rolling.partition.unwrap_or(0),
            None if is_rolling => {
                self.set.status.as_ref().and_then(|status| status.current_replicas).unwrap_or(0)
            }
            None => 0,
        };
        let is_old = place < ordinals(self.set).start.saturating_add(old);
        let revision = if is_old { self.current } else { self.update };
        let template = template_of(revision).ok_or("the revision has no template")?;
        Ok(identity::new_pod(self.set, &template, &revision.name_any(), place))
    }

    fn min_ready_seconds(&self) -> i32 {
        self.set.spec.min_ready_seconds.unwrap_or(0)
    }

    /// Whether pods come and go one after another.
    fn is_ordered(&self) -> bool {
        let policy = self.set.spec.pod_management_policy.as_deref();
        policy != Some("Parallel")
    }

    fn is_available(&self, pod: &Pod) -> bool {
        pod::is_available(pod, self.min_ready_seconds(), self.cx.env().now())
    }

    fn is_unavailable(&self, pod: &Pod) -> bool {
        pod.metadata.deletion_timestamp.is_some() || !self.is_available(pod)
    }

    fn is_updated(&self, pod: &Pod) -> bool {
        revision_of(pod) == self.update.name_any()
    }
}

/// The name of the revision that a pod was made of.
fn revision_of(pod: &Pod) -> &str {
    pod.labels().get(REVISION_LABEL).map(String::as_str).unwrap_or_default()
}

fn is_running_and_ready(pod: &Pod) -> bool {
    pod::phase(pod) == "Running" && pod::is_ready(pod)
}
