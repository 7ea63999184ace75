//! Scaling: one set at a time, or all in proportion when a rollout is half done.

use std::cmp::Reverse;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::ReplicaSet;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use setpoint::{Event, ReconcileError};

use super::revision::{DESIRED, MOST};
use super::sets::{self, sum};
use super::{Rollout, limits};

fn number(set: &ReplicaSet, annotation: &str) -> Option<i32> {
    set.annotations().get(annotation)?.parse().ok().filter(|number| *number >= 0)
}

impl Rollout<'_> {
    /// Whether the Deployment was scaled since its sets were.
    pub(super) fn is_scaling_event(&self) -> bool {
        let mut sizes = self.sets.active().filter_map(|set| number(set, DESIRED));
        sizes.any(|desired| desired != self.replicas())
    }

    /// Makes a set have so many pods. Says whether that is new.
    pub(super) async fn scale_set(
        &mut self,
        set: &Arc<ReplicaSet>,
        replicas: i32,
    ) -> Result<bool, ReconcileError> {
        let before = sets::replicas(set);
        if before == replicas {
            return Ok(false);
        }
        self.resize(set, replicas).await?;
        let direction = if before < replicas { "up" } else { "down" };
        let note = format!("Scaled {direction} replica set {} from {before} to {replicas}", set.name_any());
        self.event(Event::normal("ScalingReplicaSet", note));
        Ok(true)
    }

    /// Writes the size of a set, and what it remembers of the Deployment's.
    async fn resize(&mut self, set: &Arc<ReplicaSet>, replicas: i32) -> Result<(), ReconcileError> {
        let annotations: std::collections::BTreeMap<_, _> = self.size_annotations().into();
        let patch = json!({
            "metadata": {"resourceVersion": set.resource_version(), "annotations": annotations},
            "spec": {"replicas": replicas},
        });
        let sets = self.api::<ReplicaSet>();
        let scaled = sets.patch(&set.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await?;
        self.sets.update(scaled);
        Ok(())
    }

    /// Brings the sets of a Deployment that was scaled, or is paused, to its size.
    pub(super) async fn scale(&mut self) -> Result<(), ReconcileError> {
        if let Some(only) = self.only_active() {
            if sets::replicas(&only) >= self.replicas() || self.is_quiet() {
                self.scale_set(&only, self.replicas()).await?;
            }
            return Ok(());
        }
        if self.is_saturated() {
            for set in self.sets.old.clone() {
                self.scale_set(&set, 0).await?;
            }
            return Ok(());
        }
        if limits::is_recreate(self.spec) {
            return Ok(());
        }
        self.scale_in_proportion().await
    }

    /// Whether no set is about to delete pods: only then may others add some.
    fn is_quiet(&self) -> bool {
        self.sets.all().all(|set| sets::is_settled(set) && sets::actual(set) <= sets::replicas(set))
    }

    /// The set that has all pods, or, if none has any, the newest.
    fn only_active(&self) -> Option<Arc<ReplicaSet>> {
        let mut active = self.sets.active();
        match (active.next(), active.next()) {
            (Some(only), None) => Some(only.clone()),
            (None, _) => self.sets.new.as_ref().or(self.sets.old.last()).cloned(),
            _ => None,
        }
    }

    /// Whether the new set has all the pods of the Deployment, and all are available.
    fn is_saturated(&self) -> bool {
        let all = self.replicas();
        self.sets.new.as_ref().is_some_and(|new| {
            sets::replicas(new) == all && number(new, DESIRED) == Some(all) && sets::available(new) == all
        })
    }

    /// Every set gets its share of what is added or taken away, so that scaling does not hasten a rollout.
    async fn scale_in_proportion(&mut self) -> Result<(), ReconcileError> {
        let all = self.replicas();
        let most = if all > 0 { all.saturating_add(limits::max_surge(self.spec)) } else { 0 };
        let mut active: Vec<_> = self.sets.active().cloned().collect();
        let to_add = most.saturating_sub(sum(&active, sets::replicas));
        if to_add > 0 && !self.is_quiet() {
            return Ok(());
        }
        // The largest first; of equal ones the newest grows first, and the oldest shrinks first.
        if to_add > 0 {
            active.sort_by_cached_key(|set| Reverse((sets::replicas(set), sets::age(set))));
        } else {
            active.sort_by_cached_key(|set| (Reverse(sets::replicas(set)), sets::age(set)));
        }
        let shares = self.shares(&active, to_add);
        for (set, share) in active.iter().zip(shares) {
            let size = sets::replicas(set).saturating_add(share).max(0);
            if !self.scale_set(set, size).await? && self.is_outdated(set) {
                self.resize(set, size).await?;
            }
        }
        Ok(())
    }

    fn is_outdated(&self, set: &ReplicaSet) -> bool {
        self.size_annotations().iter().any(|(key, value)| set.annotations().get(key) != Some(value))
    }

    /// The share of each set in `to_add`; what is left over is the first one's.
    fn shares(&self, sets: &[Arc<ReplicaSet>], to_add: i32) -> Vec<i32> {
        let mut added = 0;
        let mut shares: Vec<i32> = Vec::with_capacity(sets.len());
        for set in sets {
            let left = to_add.saturating_sub(added);
            let share = match to_add {
                0 => 0,
                1.. => self.fraction(set).min(left),
                _ => self.fraction(set).max(left),
            };
            added = added.saturating_add(share);
            shares.push(share);
        }
        if let Some(first) = shares.first_mut() {
            *first = first.saturating_add(to_add.saturating_sub(added));
        }
        shares
    }

    /// How much a set changes if its part in the Deployment stays the same.
    fn fraction(&self, set: &ReplicaSet) -> i32 {
        let size = sets::replicas(set);
        if self.replicas() == 0 {
            return size.saturating_neg();
        }
        let most = self.replicas().saturating_add(limits::max_surge(self.spec));
        let before = number(set, MOST).filter(|most| *most != 0).or(self.status.replicas).unwrap_or(0);
        if before == 0 {
            return 0;
        }
        let scaled = f64::from(size) * f64::from(most) / f64::from(before);
        (scaled.round() as i32).saturating_sub(size)
    }
}
