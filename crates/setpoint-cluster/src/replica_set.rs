//! ReplicaSets: as many pods of one template as the spec says.

pub(crate) mod ranking;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use kube::core::{Selector, SelectorExt};
use kube::{Api, ResourceExt};
use serde::Serialize;
use setpoint::controller::ListerError;
use setpoint::owner::{controller_of, is_controlled_by};
use setpoint::{
    Action, Context, Controller, Lister, ObjectKey, ReconcileError, SharedInformerFactory, patch_status,
};

use crate::pace::{Pace, pause};
use crate::{owned, pod, pod_control};

/// The most pods that one reconcile creates or deletes.
const BURST: usize = 500;

/// As long as pods are still to come, a set says at most this often that more of them are ready. It is short against what a
/// pod takes to start.
const PAUSE: Duration = Duration::from_millis(50);

/// A set counts its pods at most once in this time for each of them, if they are so many.
const PAUSE_PER_POD: Duration = Duration::from_micros(400);
const MANY: usize = 100;
/// But this often at least.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a set waits for its caches before it acts on what they show: as long as kube-controller-manager's
/// expectations last.
pub(crate) const CATCH_UP_LIMIT: Duration = Duration::from_secs(5 * 60);

/// What keeps a number of pods of one template: a ReplicaSet, or a ReplicationController.
pub(crate) trait Replicated: owned::Kind {
    type Status: Serialize + Send + Sync;

    /// How many pods there shall be, if it says so.
    fn replicas(&self) -> Option<i32>;
    fn selector(&self) -> Option<Selector>;
    fn template(&self) -> Option<&PodTemplateSpec>;
    fn min_ready_seconds(&self) -> i32;
    /// Its status, in the words of a ReplicaSet.
    fn status(&self) -> Option<ReplicaSetStatus>;
    /// A status in its own words.
    fn own_status(status: ReplicaSetStatus) -> Self::Status;

    fn wanted(&self) -> usize {
        usize::try_from(self.replicas().unwrap_or(1)).unwrap_or(0)
    }
}

impl Replicated for ReplicaSet {
    type Status = ReplicaSetStatus;

    fn replicas(&self) -> Option<i32> {
        self.spec.replicas
    }

    fn selector(&self) -> Option<Selector> {
        Selector::try_from(self.spec.selector.clone()).ok()
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.template.as_ref()
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.min_ready_seconds.unwrap_or(0)
    }

    fn status(&self) -> Option<ReplicaSetStatus> {
        self.status.clone()
    }

    fn own_status(status: ReplicaSetStatus) -> ReplicaSetStatus {
        status
    }
}

/// The controller of ReplicaSets.
pub(crate) fn controller(informers: &SharedInformerFactory) -> Controller {
    controller_for::<ReplicaSet>("replicaset-controller", informers)
}

/// The controller of a kind that keeps a number of pods.
pub(crate) fn controller_for<K: Replicated>(name: &str, informers: &SharedInformerFactory) -> Controller {
    let sets: Lister<K> = owned::by_controller(informers);
    owned::by_controller::<Pod>(informers);
    Controller::of::<K>(.., name, reconcile::<K>)
        .watches::<Pod>(.., move |pod| owned::concerned(&sets, pod, selects))
        .workers(5)
        .catch_up_limit(CATCH_UP_LIMIT)
        .state(Paces::default())
}

/// How often sets count their pods, and tell how many of them are ready.
#[derive(Default)]
struct Paces {
    counted: Pace,
    told: Pace,
}

impl Paces {
    fn forget(&self, key: &ObjectKey) {
        self.counted.forget(key);
        self.told.forget(key);
    }
}

fn selects<K: Replicated>(set: &K, pod: &Pod) -> bool {
    set.selector().is_some_and(|selector| selector.matches(pod.labels()))
}

async fn reconcile<K: Replicated>(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(set) = cx.lister::<K>()?.get(&key) else {
        cx.state::<Paces>()?.forget(&key);
        return Ok(Action::done());
    };
    let Some(selector) = set.selector() else {
        return Err(ReconcileError::terminal("the selector cannot be understood"));
    };
    let paces = cx.state::<Paces>()?;
    let generation = set.meta().generation.map(|generation| generation.to_string());
    if let Some(wait) = paces.counted.wait(&key, cx.env().instant(), generation.as_deref()) {
        return Ok(Action::requeue_after(wait));
    }
    let candidates = owned::candidates(&cx.lister::<Pod>()?, &*set);
    let (active, others): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|pod| pod::is_active(pod));
    let active = owned::claim_all(&cx, &*set, &selector, active, None).await?;
    let is_leaving = |pod: &&Arc<Pod>| {
        pod::is_terminating(pod) && is_controlled_by(&***pod, &*set) && selector.matches(pod.labels())
    };
    let terminating = others.iter().filter(is_leaving).count();
    let managed = match set.meta().deletion_timestamp {
        None => manage(&cx, &*set, &active).await,
        Some(_) => Ok(()),
    };
    let now = cx.env().now();
    let status = status::of(&*set, &active, terminating, managed.as_ref().err(), now);
    if managed.is_ok() && active.len() >= MANY {
        let pause = pause(active.len(), PAUSE_PER_POD, LONGEST_PAUSE);
        paces.counted.rest(&key, cx.env().instant(), pause, generation.as_deref());
    }
    if managed.is_ok() && status::only_readiness_grows(&*set, &status) {
        // Many pods become ready at about the same time: one write for several of them will do.
        let now = cx.env().instant();
        if let Some(wait) = paces.told.wait(&key, now, None) {
            return Ok(Action::requeue_after(wait));
        }
        paces.told.rest(&key, now, PAUSE, None);
    }
    let sets: Api<K> = Api::namespaced(cx.client(), key.namespace().unwrap_or_default());
    patch_status(&sets, &set, &K::own_status(status)).await?;
    managed?;
    Ok(status::next_check(&*set, &active, now))
}

/// Creates what is missing, or deletes what is too much.
async fn manage<K: Replicated>(cx: &Context, set: &K, active: &[Arc<Pod>]) -> Result<(), ReconcileError> {
    let wanted = set.wanted();
    if active.len() < wanted {
        let template = set.template().ok_or("the set has no template")?;
        let pod = pod_control::from_template(set, template);
        if pod.labels().is_empty() {
            return Err("unable to create pods, no labels".into());
        }
        let pods = vec![pod; (wanted - active.len()).min(BURST)];
        let (_, result) = pod_control::create_slowly(cx, set, &pods).await;
        return result.map_err(Into::into);
    }
    let surplus = (active.len() - wanted).min(BURST);
    if surplus == 0 {
        return Ok(());
    }
    let mut ranked = active.to_vec();
    ranking::sort(&mut ranked, &neighbours(cx, set)?, cx.env().now());
    pod_control::delete_all(cx, set, ranked[..surplus].iter().map(|pod| &**pod)).await
}

/// How many active pods of this set, and of the other sets of its owner, each node has.
fn neighbours<K: Replicated>(cx: &Context, set: &K) -> Result<BTreeMap<String, usize>, ListerError> {
    let (sets, pods) = (cx.lister::<K>()?, cx.lister::<Pod>()?);
    let related = match controller_of(set) {
        Some(owner) => owned::of(&sets, &owner.uid),
        None => sets
            .get(&ObjectKey::namespaced(&set.namespace().unwrap_or_default(), &set.name_any()))
            .into_iter()
            .collect(),
    };
    let mut nodes = BTreeMap::new();
    for pod in related.iter().flat_map(|set| owned::of(&pods, &set.uid().unwrap_or_default())) {
        if pod::is_active(&pod) {
            *nodes.entry(pod::node_name(&pod).to_owned()).or_default() += 1;
        }
    }
    Ok(nodes)
}
