//! Pods come in the order of their places and go in the reverse order; or all at once, if the set says so.

use std::sync::Arc;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use setpoint::{Event, ReconcileError};

use super::{Run, identity, is_running_and_ready};
use crate::{failure, pod};

/// The most pods that are worked on at the same time.
const LARGEST_BATCH: usize = 500;

/// A place of the set.
pub(super) enum Slot {
    Pod(Arc<Pod>),
    /// Nobody is there; this is who should be.
    Missing(Box<Pod>),
}

impl Slot {
    pub(super) fn pod(&self) -> Option<&Arc<Pod>> {
        match self {
            Slot::Pod(pod) => Some(pod),
            Slot::Missing(_) => None,
        }
    }
}

/// Whether the next one may be looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    GoOn,
    Wait,
}

impl Run<'_> {
    /// Does something for each of many: one after another until one has to be waited for, or in batches of one,
    /// two, four, … if the set has no order.
    async fn for_each<'t, T, F>(
        &self,
        items: &'t [T],
        work: impl Fn(&'t T) -> F,
    ) -> Result<Progress, ReconcileError>
    where
        F: Future<Output = Result<Progress, ReconcileError>>,
    {
        if self.is_ordered() {
            for item in items {
                if work(item).await? == Progress::Wait {
                    return Ok(Progress::Wait);
                }
            }
            return Ok(Progress::GoOn);
        }
        let (mut done, mut size) = (0, 1);
        while done < items.len() {
            let batch = &items[done..done.saturating_add(size).min(items.len())];
            let results = join_all(batch.iter().map(&work)).await;
            results.into_iter().collect::<Result<Vec<_>, _>>()?;
            done = done.saturating_add(batch.len());
            size = size.saturating_mul(2).min(LARGEST_BATCH);
        }
        Ok(Progress::GoOn)
    }

    /// Sees to each place of the set.
    pub(super) async fn bring_up(&self, replicas: &[Slot]) -> Result<Progress, ReconcileError> {
        self.for_each(replicas, |slot| self.see_to(slot)).await
    }

    async fn see_to(&self, slot: &Slot) -> Result<Progress, ReconcileError> {
        match slot {
            Slot::Missing(new) => self.fill(new).await,
            Slot::Pod(pod) => self.keep(pod).await,
        }
    }

    /// Creates the pod of a place that nobody has.
    async fn fill(&self, new: &Pod) -> Result<Progress, ReconcileError> {
        if self.has_stale_claim(new) {
            return Ok(Progress::Wait);
        }
        if let Err(error) = self.create_claims(new).await {
            self.tell("Create", &new.name_any(), Some(&error.to_string()));
            return Err(error);
        }
        let pods: Api<Pod> = Api::namespaced(self.cx.client(), &self.set.namespace().unwrap_or_default());
        let name = new.name_any();
        match pods.create(&PostParams::default(), new).await {
            Ok(created) => {
                // Said first: giving the claims their owners may fail, when somebody binds them at the same time.
                self.tell("Create", &name, None);
                self.own_claims(&created).await?;
            }
            // The cache will show who it is.
            Err(error) if failure::already_exists(&error) => return Err(error.into()),
            Err(error) if failure::is_namespace_terminating(&error) => return Ok(Progress::Wait),
            Err(error) => {
                self.tell("Create", &name, Some(&failure::message(&error)));
                return Err(error.into());
            }
        }
        Ok(Progress::Wait)
    }

    /// Sees to a pod that is there; those after it wait until it is available.
    async fn keep(&self, pod: &Arc<Pod>) -> Result<Progress, ReconcileError> {
        if pod::is_finished(pod) {
            // Whatever its containers ended with, there is another one when it is gone.
            if pod.metadata.deletion_timestamp.is_none() {
                self.delete(pod).await?;
            }
            return Ok(Progress::Wait);
        }
        if pod::phase(pod) == "Pending" && pod.metadata.deletion_timestamp.is_none() {
            self.create_claims(pod).await?;
            self.own_claims(pod).await?;
        }
        let must_wait = self.is_unavailable(pod) || !is_running_and_ready(pod);
        if must_wait && self.is_ordered() {
            return Ok(Progress::Wait);
        }
        if pod.metadata.deletion_timestamp.is_none() {
            self.restore(pod).await?;
        }
        Ok(Progress::GoOn)
    }

    /// Gives a pod back what makes it one of this set.
    async fn restore(&self, pod: &Arc<Pod>) -> Result<(), ReconcileError> {
        let is_identified = identity::is_identified(self.set, pod);
        if is_identified && self.claims_are_owned(pod) {
            return Ok(());
        }
        let name = pod.name_any();
        if let Err(error) = self.own_claims(pod).await {
            self.tell("Update", &name, Some(&error.to_string()));
            return Err(error);
        }
        if !is_identified {
            let mut changed = Pod::clone(pod);
            identity::identify(self.set, &mut changed);
            self.create_claims(&changed).await?;
            let pods: Api<Pod> = Api::namespaced(self.cx.client(), &self.set.namespace().unwrap_or_default());
            match pods.replace(&name, &PostParams::default(), &changed).await {
                Err(error) if failure::is_not_found(&error) => return Ok(()),
                Err(error) => {
                    self.tell("Update", &name, Some(&failure::message(&error)));
                    return Err(error.into());
                }
                Ok(_) => {}
            }
        }
        // Also where only its claims have other owners now, as people know it.
        self.tell("Update", &name, None);
        Ok(())
    }

    /// Deletes pods that have no place any more.
    pub(super) async fn bring_down(
        &self,
        replicas: &[Slot],
        condemned: &[Arc<Pod>],
    ) -> Result<Progress, ReconcileError> {
        self.for_each(condemned, |pod| self.hand_over_claims(pod)).await?;
        let all_are_well =
            replicas.iter().all(|slot| slot.pod().is_some_and(|pod| !self.is_unavailable(pod)));
        // Of several that are not well, the one in the first place may go.
        let first_unwell = condemned.iter().rev().find(|pod| self.is_unavailable(pod));
        let first_unwell = first_unwell.filter(|_| all_are_well);
        self.for_each(condemned, |pod| self.condemn(pod, first_unwell)).await
    }

    async fn hand_over_claims(&self, pod: &Pod) -> Result<Progress, ReconcileError> {
        if !self.claims_are_owned(pod) {
            self.own_claims(pod).await?;
        }
        Ok(Progress::GoOn)
    }

    async fn condemn(
        &self,
        pod: &Arc<Pod>,
        first_unwell: Option<&Arc<Pod>>,
    ) -> Result<Progress, ReconcileError> {
        if pod.metadata.deletion_timestamp.is_some() {
            return Ok(Progress::Wait);
        }
        let is_well = is_running_and_ready(pod) && self.is_available(pod);
        let is_first_unwell = first_unwell.is_some_and(|first| Arc::ptr_eq(first, pod));
        if is_well || is_first_unwell || !self.is_ordered() {
            self.delete(pod).await?;
        }
        Ok(Progress::Wait)
    }

    /// Deletes a pod.
    pub(super) async fn delete(&self, pod: &Pod) -> Result<(), ReconcileError> {
        let pods: Api<Pod> = Api::namespaced(self.cx.client(), &self.set.namespace().unwrap_or_default());
        let name = pod.name_any();
        let this = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        match pods.delete(&name, &DeleteParams::default().preconditions(this)).await {
            Err(error) if !failure::is_not_found(&error) => {
                self.tell("Delete", &name, Some(&failure::message(&error)));
                return Err(error.into());
            }
            _ => self.tell("Delete", &name, None),
        }
        Ok(())
    }

    /// Says what was done with a pod, or why it could not be.
    fn tell(&self, verb: &str, pod: &str, error: Option<&str>) {
        let set = self.set.name_any();
        self.event(match error {
            None => {
                let note = format!("{verb} Pod {pod} in StatefulSet {set} successful");
                Event::normal(format!("Successful{verb}"), note)
            }
            Some(error) => {
                let note = format!("{verb} Pod {pod} in StatefulSet {set} failed error: {error}");
                Event::warning(format!("Failed{verb}"), note)
            }
        });
    }
}
