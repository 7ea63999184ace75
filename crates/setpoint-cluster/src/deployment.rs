//! Deployments: ReplicaSets of one template after another, a few pods at a time.
//!
//! Where kube-controller-manager trusts that a ReplicaSet will do what its spec says, this controller waits until
//! the set has said that it did ([`sets::is_settled`]). So the bounds of a rollout hold for pods at every moment,
//! also when a controller dies between two writes.

mod conditions;
mod limits;
mod progress;
mod recreate;
mod revision;
mod rolling;
mod scale;
mod sets;
mod status;
mod template;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStatus, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use kube::core::{Selector, SelectorExt};
use kube::{Resource, ResourceExt};
use setpoint::owner::controller_of;
use setpoint::{
    Action, Context, Controller, Event, Lister, ObjectKey, ReconcileError, SharedInformerFactory,
};

use self::sets::Sets;
use crate::owned;
use crate::replica_set::CATCH_UP_LIMIT;

/// The controller of Deployments.
pub(crate) fn controller(informers: &SharedInformerFactory) -> Controller {
    let sets: Lister<ReplicaSet> = owned::by_controller(informers);
    owned::by_controller::<Pod>(informers);
    let deployments: Lister<Deployment> = informers.informer::<Deployment>().lister();
    let owners = deployments.clone();
    Controller::of::<Deployment>(.., "deployment-controller", reconcile)
        .watches::<ReplicaSet>(.., move |set| owned::concerned(&owners, set, selects))
        .watches::<Pod>(.., move |pod| waiting_for(&deployments, &sets, pod).into_iter().collect())
        .workers(5)
        .catch_up_limit(CATCH_UP_LIMIT)
}

fn selects(deployment: &Deployment, set: &ReplicaSet) -> bool {
    let selector = Selector::try_from(deployment.spec.selector.clone());
    selector.is_ok_and(|selector| selector.matches(set.labels()))
}

/// The Deployment that waits for its old pods to end, if this is one of them. Others hear of their pods from
/// their ReplicaSets.
fn waiting_for(deployments: &Lister<Deployment>, sets: &Lister<ReplicaSet>, pod: &Pod) -> Option<ObjectKey> {
    let namespace = pod.namespace()?;
    let set = controller_of(pod).filter(|owner| owner.kind == ReplicaSet::kind(&()))?;
    let set = sets.namespace(&namespace).get(&set.name)?;
    let owner = controller_of(&*set).filter(|owner| owner.kind == Deployment::kind(&()))?;
    let deployment = deployments.namespace(&namespace).get(&owner.name)?;
    limits::is_recreate(&deployment.spec).then(|| ObjectKey::namespaced(&namespace, &owner.name))
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(deployment) = cx.lister::<Deployment>()?.get(&key) else { return Ok(Action::done()) };
    let spec = &deployment.spec;
    let selector = Selector::try_from(spec.selector.clone())?;
    if selector.selects_all() {
        let note = "This deployment is selecting all pods. A non-empty selector is required.";
        cx.recorder().event(&*deployment, Event::warning("SelectingAll", note));
        return Ok(Action::done());
    }
    let candidates = owned::candidates(&cx.lister::<ReplicaSet>()?, &*deployment);
    let sets = owned::claim_all(&cx, &*deployment, &selector, candidates, None).await?;
    let mut rollout = Rollout {
        cx: &cx,
        deployment: &deployment,
        spec,
        sets: Sets::new(&spec.template, sets),
        status: deployment.status.clone().unwrap_or_default(),
        revision: deployment.annotations().get(revision::REVISION).cloned(),
    };
    let outcome = rollout.run().await;
    // Also what went wrong is in the status.
    rollout.write().await?;
    outcome?;
    Ok(rollout.next_check())
}

/// One reconcile of a Deployment.
struct Rollout<'a> {
    cx: &'a Context,
    deployment: &'a Arc<Deployment>,
    spec: &'a DeploymentSpec,
    sets: Sets,
    /// The status as it will be written.
    status: DeploymentStatus,
    /// The revision of the Deployment as it will be written.
    revision: Option<String>,
}

impl Rollout<'_> {
    async fn run(&mut self) -> Result<(), ReconcileError> {
        self.sync_revision().await?;
        if self.deployment.metadata.deletion_timestamp.is_some() {
            self.summarize();
            return Ok(());
        }
        self.note_pause();
        let is_paused = self.spec.paused == Some(true);
        if is_paused || self.is_scaling_event() {
            self.scale().await?;
            if is_paused {
                self.forget_old_sets().await?;
            }
            self.summarize();
            return Ok(());
        }
        if limits::is_recreate(self.spec) {
            self.recreate().await?
        } else {
            self.roll().await?
        }
        self.summarize();
        self.estimate_progress();
        Ok(())
    }

    fn api<K: owned::Kind>(&self) -> Api<K> {
        Api::namespaced(self.cx.client(), &self.deployment.namespace().unwrap_or_default())
    }

    fn name(&self) -> String {
        self.deployment.name_any()
    }

    fn replicas(&self) -> i32 {
        limits::replicas(self.spec)
    }

    fn event(&self, event: Event) {
        self.cx.recorder().event(&**self.deployment, event);
    }

    /// Writes status and revision, if they are not what the Deployment has.
    async fn write(&self) -> Result<(), ReconcileError> {
        let known = self.deployment.annotations().get(revision::REVISION);
        let is_same =
            self.deployment.status.as_ref() == Some(&self.status) && known == self.revision.as_ref();
        if is_same {
            return Ok(());
        }
        let mut changed = Deployment::clone(self.deployment);
        changed.status = Some(self.status.clone());
        if let Some(revision) = &self.revision {
            changed.annotations_mut().insert(revision::REVISION.to_owned(), revision.clone());
        }
        self.api::<Deployment>().replace_status(&self.name(), &PostParams::default(), &changed).await?;
        Ok(())
    }
}
