//! Recreate: the new pods come when the last old one has ended.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use setpoint::ReconcileError;
use setpoint::controller::ListerError;

use super::Rollout;
use super::sets::{self, sum};
use crate::{owned, pod};

impl Rollout<'_> {
    pub(super) async fn recreate(&mut self) -> Result<(), ReconcileError> {
        let mut has_shrunk = false;
        for set in self.sets.old.clone() {
            has_shrunk |= self.scale_set(&set, 0).await?;
        }
        if has_shrunk || self.has_old_pods()? {
            return Ok(());
        }
        match self.sets.new.clone() {
            None => self.create_new_set().await?,
            Some(new) => drop(self.scale_set(&new, self.replicas()).await?),
        }
        if self.is_complete(&self.status) {
            self.forget_old_sets().await?;
        }
        Ok(())
    }

    /// Whether an old pod may still run, or an old set may still make one.
    fn has_old_pods(&self) -> Result<bool, ListerError> {
        let old = &self.sets.old;
        let pods = self.cx.lister::<Pod>()?;
        let mut of_old = old.iter().flat_map(|set| owned::of(&pods, &set.uid().unwrap_or_default()));
        Ok(sum(old, sets::actual) > 0
            || old.iter().any(|set| !sets::is_settled(set))
            || of_old.any(|pod| !pod::is_finished(&pod)))
    }
}
