//! As many pods as a Job needs now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::join_all;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use kube::ResourceExt;
use setpoint::ReconcileError;

use super::pods::{
    FAILURES, IGNORED_FAILURES, INDEX, counts, failures, ignored_failures, index, is_failed, is_tracked,
    tries, waits_for_end,
};
use super::{Run, TRACKING, tracking};
use crate::number::count;
use crate::replica_set::ranking;
use crate::{pod, pod_control};

/// The most pods that one reconcile creates or deletes.
const BURST: usize = 500;
/// The environment variable that has the index.
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// The longest prefix of a generated name.
const LONGEST_PREFIX: usize = 58;

impl Run<'_> {
    /// Creates pods that are missing, or deletes those that are too many.
    pub(super) async fn manage(&mut self) -> Result<(), ReconcileError> {
        let wanted = self.wanted();
        let surplus = self.surplus(self.active.saturating_sub(wanted).max(0));
        if !surplus.is_empty() {
            return self.remove(surplus).await;
        }
        let leaving = if waits_for_end(self.spec) { self.terminating } else { 0 };
        let missing = usize::try_from(wanted.saturating_sub(leaving).saturating_sub(self.active))
            .unwrap_or(0)
            .min(BURST);
        if missing == 0 || self.is_suspended() {
            return Ok(());
        }
        let pods = match self.indexes {
            Some(_) => self.indexed_pods(missing),
            None => vec![self.pod(); missing],
        };
        if self.spec.backoff_limit_per_index.is_none() {
            let wait = self.backoff();
            if wait > SignedDuration::ZERO {
                self.look_again(wait);
                return Ok(());
            }
        }
        let (created, result) = pod_control::create_slowly(self.cx, &self.job, &pods).await;
        self.active += count(created);
        result.map_err(Into::into)
    }

    /// How many pods should run now.
    fn wanted(&self) -> i32 {
        match self.spec.completions {
            _ if self.is_suspended() => 0,
            // One that succeeds tells the others to come to their end.
            None if self.succeeded > 0 => self.active,
            None => self.parallelism(),
            Some(completions) => completions.saturating_sub(self.succeeded).min(self.parallelism()).max(0),
        }
    }

    /// The pods to delete: those whose index is taken or none of the Job's, and then so many that `least` go.
    fn surplus(&self, least: i32) -> Vec<Arc<Pod>> {
        let mut ranked = self.running.clone();
        ranking::sort(&mut ranked, &BTreeMap::new(), self.now);
        let mut surplus: Vec<Arc<Pod>> = Vec::new();
        if let Some(completions) = self.completions_by_index() {
            let mut taken = BTreeSet::new();
            // From the back, so that of two pods of an index the one stays that has come further.
            let is_kept =
                |pod: &Arc<Pod>| index(pod).is_some_and(|index| index < completions && taken.insert(index));
            let (mut kept, out): (Vec<_>, Vec<_>) = ranked.into_iter().rev().partition(is_kept);
            kept.reverse();
            (ranked, surplus) = (kept, out);
        }
        let more = usize::try_from(least).unwrap_or(0).saturating_sub(surplus.len());
        surplus.extend(ranked.into_iter().take(more));
        surplus.truncate(BURST);
        surplus
    }

    /// Deletes pods that shall not be counted.
    async fn remove(&mut self, pods: Vec<Arc<Pod>>) -> Result<(), ReconcileError> {
        let api = self.api::<Pod>();
        let removed = join_all(pods.iter().map(|pod| async {
            tracking::release(&api, pod).await?;
            pod_control::delete(self.cx, &self.job, pod).await
        }))
        .await;
        self.note_deleted(&pods, &removed);
        removed.into_iter().collect()
    }

    /// Deletes the pods that still run when the Job ends. They are counted.
    pub(super) async fn delete_running(&mut self) -> Result<(), ReconcileError> {
        let pods = self.running.clone();
        let deleted = join_all(pods.iter().map(|pod| pod_control::delete(self.cx, &self.job, pod))).await;
        self.note_deleted(&pods, &deleted);
        if deleted.iter().any(Result::is_err) {
            // It ends when they are gone.
            self.end = None;
        }
        deleted.into_iter().collect()
    }

    fn note_deleted(&mut self, pods: &[Arc<Pod>], results: &[Result<(), ReconcileError>]) {
        for (pod, _) in pods.iter().zip(results).filter(|(_, result)| result.is_ok()) {
            self.active -= 1;
            self.terminating += 1;
            self.ready -= i32::from(pod::is_ready(pod));
        }
    }

    fn pod(&self) -> Pod {
        let mut pod = pod_control::from_template(&self.job, &self.spec.template);
        let finalizers = pod.metadata.finalizers.get_or_insert_default();
        if !finalizers.iter().any(|finalizer| finalizer == TRACKING) {
            finalizers.push(TRACKING.to_owned());
        }
        pod
    }

    /// Pods for the first indexes that have none and need one.
    fn indexed_pods(&mut self, missing: usize) -> Vec<Pod> {
        let replaced = self.replaced();
        let (mut pods, mut wait) = (Vec::new(), None::<SignedDuration>);
        for index in self.pending(missing) {
            let before = replaced.get(&index);
            let left = before.map_or(SignedDuration::ZERO, |pod| self.backoff_after(pod));
            if left > SignedDuration::ZERO {
                wait = Some(wait.map_or(left, |wait| wait.min(left)));
            } else {
                pods.push(self.pod_of(index, before.map(|pod| &**pod)));
            }
        }
        if let Some(wait) = wait {
            self.look_again(wait);
        }
        pods
    }

    fn pending(&self, most: usize) -> Vec<i32> {
        let Some(indexes) = &self.indexes else { return Vec::new() };
        let mut taken: BTreeSet<i32> = self.running.iter().filter_map(|pod| index(pod)).collect();
        if waits_for_end(self.spec) {
            taken
                .extend(self.pods.iter().filter(|pod| pod::is_terminating(pod)).filter_map(|pod| index(pod)));
        }
        let is_failed = |index| indexes.failed.as_ref().is_some_and(|failed| failed.contains(index));
        let is_free =
            |index: &i32| !taken.contains(index) && !indexes.succeeded.contains(*index) && !is_failed(*index);
        (0..indexes.completions).filter(is_free).take(most).collect()
    }

    /// With a limit per index: the last failed pod of each index that has no other. It stays until the next one
    /// of its index has taken over its number of failures.
    pub(super) fn replaced(&self) -> BTreeMap<i32, Arc<Pod>> {
        let mut replaced: BTreeMap<i32, Arc<Pod>> = BTreeMap::new();
        if self.spec.backoff_limit_per_index.is_none() {
            return replaced;
        }
        let pending: BTreeSet<i32> = self.pending(usize::MAX).into_iter().collect();
        let total = |pod: &Pod| (tries(pod), super::pods::ended_at(pod));
        for pod in self.pods.iter().filter(|pod| is_tracked(pod) && is_failed(self.spec, pod)) {
            let Some(index) = index(pod).filter(|index| pending.contains(index)) else { continue };
            let is_later = replaced.get(&index).is_none_or(|known| total(known) <= total(pod));
            if is_later {
                replaced.insert(index, pod.clone());
            }
        }
        replaced
    }

    /// The pod of an index, in place of an earlier one that failed.
    fn pod_of(&self, index: i32, before: Option<&Pod>) -> Pod {
        let (mut pod, name) = (self.pod(), self.job.name_any());
        pod.labels_mut().insert(INDEX.to_owned(), index.to_string());
        pod.annotations_mut().insert(INDEX.to_owned(), index.to_string());
        if self.spec.backoff_limit_per_index.is_some() {
            let (mut failed, mut ignored) =
                before.map_or((0, 0), |pod| (failures(pod), ignored_failures(pod)));
            match before {
                Some(before) if counts(self.spec, before) => failed = failed.saturating_add(1),
                Some(_) => ignored = ignored.saturating_add(1),
                None => {}
            }
            pod.annotations_mut().insert(FAILURES.to_owned(), failed.to_string());
            if ignored > 0 {
                pod.annotations_mut().insert(IGNORED_FAILURES.to_owned(), ignored.to_string());
            }
        }
        let end = format!("-{index}-");
        let start = &name[..name.len().min(LONGEST_PREFIX - end.len())];
        pod.metadata.generate_name = Some(format!("{start}{end}"));
        let spec = pod.spec.get_or_insert_default();
        spec.hostname = Some(format!("{name}-{index}"));
        spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()).for_each(add_variable);
        pod
    }
}

/// Tells a container its index.
fn add_variable(container: &mut Container) {
    let variables = container.env.get_or_insert_default();
    if variables.iter().any(|variable| variable.name == INDEX_VARIABLE) {
        return;
    }
    let field =
        ObjectFieldSelector { field_path: format!("metadata.labels['{INDEX}']"), ..Default::default() };
    variables.push(EnvVar {
        name: INDEX_VARIABLE.to_owned(),
        value_from: Some(EnvVarSource { field_ref: Some(field), ..Default::default() }),
        ..Default::default()
    });
}
