//! Pods of an old template make way for new ones: old ones end first, or new ones start first, a few at a time.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::RollingUpdateDaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use setpoint::ReconcileError;

use super::Run;
use super::manage::Changes;
use crate::number::{Round, count, scaled};

/// The pods of a node that are not going.
struct Pair<'a> {
    node: &'a str,
    new: Option<&'a Arc<Pod>>,
    old: Option<&'a Arc<Pod>>,
    /// There are more of one kind than one; the next reconcile sees to that.
    is_crowded: bool,
}

impl Run<'_> {
    fn strategy(&self) -> Option<&RollingUpdateDaemonSet> {
        let strategy = self.spec.update_strategy.as_ref()?;
        let is_rolling = strategy.type_.as_deref().is_none_or(|type_| type_ == "RollingUpdate");
        strategy.rolling_update.as_ref().filter(|_| is_rolling)
    }

    fn is_rolling(&self) -> bool {
        let strategy = self.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref());
        strategy.is_none_or(|type_| type_ == "RollingUpdate")
    }

    fn surge(&self, nodes: i32) -> i32 {
        let surge = self.strategy().and_then(|rolling| rolling.max_surge.as_ref());
        surge.map_or(0, |surge| scaled(surge, nodes, Round::Up))
    }

    /// Whether there may be two pods on a node.
    pub(super) fn allows_surge(&self) -> bool {
        self.surge(1) > 0
    }

    /// Replaces some pods of old templates.
    pub(super) async fn roll(&self) -> Result<(), ReconcileError> {
        if !self.is_rolling() {
            return Ok(());
        }
        let wanted: BTreeSet<String> = self
            .nodes
            .iter()
            .filter(|node| self.demands.fit(node).should_run)
            .map(|node| node.name_any())
            .collect();
        let number = count(wanted.len());
        let unavailable = self.strategy().and_then(|rolling| rolling.max_unavailable.as_ref());
        let mut unavailable = unavailable.map_or(0, |unavailable| scaled(unavailable, number, Round::Up));
        let surge = self.surge(number);
        if number > 0 && unavailable == 0 && surge == 0 {
            unavailable = 1;
        }
        let all: BTreeSet<&str> = wanted.iter().chain(self.pods.keys()).map(String::as_str).collect();
        let pairs: Vec<Pair<'_>> = all.into_iter().map(|node| self.pair(node)).collect();
        let at_most = |number: i32| usize::try_from(number).unwrap_or(0);
        let changes = match surge {
            0 => self.end_first(&pairs, at_most(unavailable)),
            surge => self.start_first(&pairs, at_most(surge), wanted.len()),
        };
        self.apply(changes).await
    }

    fn pair<'a>(&'a self, node: &'a str) -> Pair<'a> {
        let living = self.pods_on(node).iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let (new, old): (Vec<_>, Vec<_>) = living.partition(|pod| self.is_updated(pod));
        let is_crowded = new.len() > 1 || old.len() > 1;
        Pair { node, new: new.first().copied(), old: old.first().copied(), is_crowded }
    }

    /// Old pods end, as many as may be unavailable; new ones follow.
    fn end_first(&self, pairs: &[Pair<'_>], most: usize) -> Changes {
        let (mut missing, mut useless, mut candidates) = (0_usize, Vec::new(), Vec::new());
        for pair in pairs {
            match (pair.new, pair.old) {
                _ if pair.is_crowded => missing += 1,
                (None, None) | (Some(_), Some(_)) => missing += 1,
                (Some(new), None) => missing += usize::from(!self.is_available(new)),
                (None, Some(old)) if !self.is_available(old) => {
                    useless.push(old.clone());
                    missing += 1;
                }
                (None, Some(old)) => candidates.push(old.clone()),
            }
        }
        candidates.truncate(most.saturating_sub(missing));
        useless.extend(candidates);
        Changes { delete: useless, ..Changes::default() }
    }

    /// New pods start beside old ones, as many as may be too many; old ones end when the new one is available.
    fn start_first(&self, pairs: &[Pair<'_>], most: usize, wanted: usize) -> Changes {
        let mut changes = Changes::default();
        let (mut surplus, mut available) = (0_usize, 0_usize);
        let (mut candidates, mut misplaced) = (Vec::new(), Vec::new());
        for pair in pairs {
            if pair.is_crowded {
                surplus += 1;
                continue;
            }
            available += usize::from(pair.old.or(pair.new).is_some_and(|pod| self.is_available(pod)));
            let Some(old) = pair.old else { continue };
            let is_old_available = self.is_available(old);
            match pair.new {
                Some(new) if self.is_available(new) => changes.delete.push(old.clone()),
                Some(_) => surplus += 1,
                None if !self.runs_on(pair.node) && is_old_available => misplaced.push(old.clone()),
                None if !self.runs_on(pair.node) => changes.delete.push(old.clone()),
                None if !is_old_available => changes.create.push(pair.node.to_owned()),
                None => candidates.push(pair.node.to_owned()),
            }
        }
        candidates.truncate(most.saturating_sub(surplus));
        changes.create.extend(candidates);
        misplaced.truncate(available.saturating_sub(wanted));
        changes.delete.extend(misplaced);
        changes
    }

    fn runs_on(&self, node: &str) -> bool {
        let is_it = |known: &&Arc<Node>| known.metadata.name.as_deref() == Some(node);
        self.nodes.iter().find(is_it).is_some_and(|node| self.demands.fit(node).should_run)
    }
}
