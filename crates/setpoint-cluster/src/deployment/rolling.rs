//! A rolling update: new pods within the surge, old pods go as new ones become available.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::ReplicaSet;
use setpoint::ReconcileError;

use super::sets::{self, sum};
use super::{Rollout, limits};

impl Rollout<'_> {
    pub(super) async fn roll(&mut self) -> Result<(), ReconcileError> {
        if self.sets.new.is_none() {
            self.create_new_set().await?;
        }
        if self.grow_new().await? || self.shrink_old().await? {
            return Ok(());
        }
        if self.is_complete(&self.status) {
            self.forget_old_sets().await?;
        }
        Ok(())
    }

    /// How many pods the new set may have that has `current` now; none while nobody knows how many there are.
    pub(super) fn room_for_new(&self, current: i32) -> Option<i32> {
        if limits::is_recreate(self.spec) {
            return Some(self.replicas());
        }
        self.sets.all().all(|set| sets::is_settled(set)).then(|| {
            let most = self.replicas().saturating_add(limits::max_surge(self.spec));
            let room = most.saturating_sub(sum(self.sets.all(), sets::at_most)).max(0);
            self.replicas().min(current.saturating_add(room)).max(current)
        })
    }

    async fn grow_new(&mut self) -> Result<bool, ReconcileError> {
        let Some(new) = self.sets.new.clone() else { return Ok(false) };
        let (current, replicas) = (sets::replicas(&new), self.replicas());
        let target = if current >= replicas { Some(replicas) } else { self.room_for_new(current) };
        match target {
            Some(target) => self.scale_set(&new, target).await,
            None => Ok(false),
        }
    }

    /// Takes pods from the old sets: first those that do not work, then as many as the new ones replace.
    async fn shrink_old(&mut self) -> Result<bool, ReconcileError> {
        let Some(new) = self.sets.new.clone() else { return Ok(false) };
        let is_known = self.sets.all().all(|set| sets::is_settled(set));
        if !is_known || self.sets.old.iter().all(|set| sets::replicas(set) == 0) {
            return Ok(false);
        }
        let least = self.replicas().saturating_sub(limits::max_unavailable(self.spec));
        let starting = sets::replicas(&new).saturating_sub(sets::available_at_least(&new));
        let broken_at_most =
            sum(self.sets.all(), sets::replicas).saturating_sub(least).saturating_sub(starting);
        if broken_at_most <= 0 {
            return Ok(false);
        }
        let broken = |set: &ReplicaSet| sets::replicas(set).saturating_sub(sets::available_at_least(set));
        let mut sizes = shrink(&self.sets.old, sets::replicas, broken, broken_at_most);
        let old = self.sets.old.iter().zip(&sizes).map(|(set, size)| (*size).min(sets::available(set)));
        let available = old.fold(sets::available_at_least(&new), i32::saturating_add);
        let mut given_up = available.saturating_sub(least).max(0);
        for size in &mut sizes {
            let taken = given_up.min(*size);
            *size = size.saturating_sub(taken);
            given_up = given_up.saturating_sub(taken);
        }
        let mut has_shrunk = false;
        for (set, size) in self.sets.old.clone().iter().zip(sizes) {
            has_shrunk |= self.scale_set(set, size).await?;
        }
        Ok(has_shrunk)
    }
}

/// The sizes of sets after `most` pods are taken from them, the oldest first, no more than `from` of each.
fn shrink(
    sets: &[Arc<ReplicaSet>],
    size: impl Fn(&ReplicaSet) -> i32,
    from: impl Fn(&ReplicaSet) -> i32,
    mut most: i32,
) -> Vec<i32> {
    let one = |set: &Arc<ReplicaSet>| {
        let taken = most.min(from(set)).max(0);
        most = most.saturating_sub(taken);
        size(set).saturating_sub(taken)
    };
    sets.iter().map(one).collect()
}
