//! Counting each pod once.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::join_all;
use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use setpoint::{Event, ReconcileError};

use super::conditions::{self, COMPLETE, FAILED, FAILURE_TARGET, SUCCESS_CRITERIA_MET};
use super::pods::{counts, index, is_failed, is_tracked};
use super::{Run, TRACKING};
use crate::number::{count, unless_zero};
use crate::{failure, pod};

/// The most uids that a status notes, so that it does not grow too large.
const MOST_NOTED: usize = 500;

/// Takes the finalizer from a pod; one that is gone needs none.
pub(super) async fn release(api: &Api<Pod>, pod: &Pod) -> Result<(), ReconcileError> {
    if !is_tracked(pod) {
        return Ok(());
    }
    let patch = json!({"metadata": {
        "uid": pod.metadata.uid,
        "$deleteFromPrimitiveList/finalizers": [TRACKING],
    }});
    match api.patch(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(&patch)).await {
        Err(error) if !failure::is_not_found(&error) => Err(error.into()),
        _ => Ok(()),
    }
}

impl Run<'_> {
    /// Notes pods that have ended, lets them go, counts them, and ends the Job if that was all.
    pub(super) async fn track(&mut self) -> Result<(), ReconcileError> {
        let is_uncounted = |pod: &&Arc<Pod>| is_tracked(pod);
        let mut tracked: BTreeSet<String> =
            self.pods.iter().filter(is_uncounted).filter_map(|pod| pod.uid()).collect();
        self.count_released(&tracked);
        let (pods, is_all) = self.note();
        self.note_indexes();
        let end = self.note_end();
        self.write().await?;
        let api = self.api::<Pod>();
        let released = join_all(pods.iter().map(|pod| release(&api, pod))).await;
        for (pod, _) in pods.iter().zip(&released).filter(|(_, released)| released.is_ok()) {
            tracked.remove(&pod.uid().unwrap_or_default());
        }
        self.count_released(&tracked);
        let released: Result<(), ReconcileError> = released.into_iter().collect();
        let ending = end.filter(|_| is_all && released.is_ok() && self.terminating == 0 && self.is_counted());
        if let Some(end) = &ending {
            if end.type_ == COMPLETE {
                self.status.completion_time = end.last_transition_time.clone();
            }
            conditions::set(&mut self.status.conditions, end.clone());
        }
        self.write().await?;
        if let Some(end) = ending {
            self.announce(end);
        }
        released
    }

    /// Moves uids that are noted and have no finalizer any more to the counters.
    fn count_released(&mut self, tracked: &BTreeSet<String>) {
        let noted = self.status.uncounted_terminated_pods.get_or_insert_default();
        let take = |list: &mut Option<Vec<String>>| {
            let before = list.as_ref().map_or(0, Vec::len);
            list.iter_mut().for_each(|list| list.retain(|uid| tracked.contains(uid)));
            let after = list.as_ref().map_or(0, Vec::len);
            if after == 0 {
                *list = None;
            }
            count(before - after)
        };
        let (succeeded, failed) = (take(&mut noted.succeeded), take(&mut noted.failed));
        self.status.succeeded = unless_zero(self.status.succeeded.unwrap_or(0).saturating_add(succeeded));
        self.status.failed = unless_zero(self.status.failed.unwrap_or(0).saturating_add(failed));
    }

    /// Whether nothing is noted that is not counted.
    fn is_counted(&self) -> bool {
        let (succeeded, failed) = self.noted();
        succeeded.is_empty() && failed.is_empty()
    }

    /// Notes the pods that have ended. Returns those that can be let go, and whether these are all.
    fn note(&mut self) -> (Vec<Arc<Pod>>, bool) {
        let replaced: BTreeSet<_> = self.replaced().into_values().filter_map(|pod| pod.uid()).collect();
        let fails_rest = self.end.as_ref().is_some_and(|end| end.type_ != SUCCESS_CRITERIA_MET);
        let is_over = self.end.is_some() || self.job.metadata.deletion_timestamp.is_some();
        let (mut pods, mut new_indexes) = (Vec::new(), 0);
        for pod in self.pods.clone() {
            let uid = pod.uid().unwrap_or_default();
            let (has_succeeded, has_failed) = (pod::phase(&pod) == "Succeeded", is_failed(self.spec, &pod));
            let may_go = is_over || has_succeeded || (has_failed && !replaced.contains(&uid));
            if !is_tracked(&pod) || !may_go {
                continue;
            }
            pods.push(pod.clone());
            let (succeeded, failed) = self.noted();
            let (is_succeeded, is_failed) = (succeeded.contains(uid.as_str()), failed.contains(uid.as_str()));
            if has_succeeded && !is_failed {
                match &self.indexes {
                    // The index is note enough.
                    Some(_) => new_indexes += usize::from(self.is_valid_index(&pod)),
                    None if !is_succeeded => self.uncounted().0.push(uid),
                    None => {}
                }
            } else if (has_failed || fails_rest)
                && !is_failed
                && (self.indexes.is_none() || self.is_valid_index(&pod))
                && counts(self.spec, &pod)
            {
                self.uncounted().1.push(uid);
            }
            let (succeeded, failed) = self.noted();
            if new_indexes + succeeded.len() + failed.len() >= MOST_NOTED {
                return (pods, false);
            }
        }
        (pods, true)
    }

    fn is_valid_index(&self, pod: &Pod) -> bool {
        let completions = self.completions_by_index().unwrap_or(0);
        index(pod).is_some_and(|index| index < completions)
    }

    fn uncounted(&mut self) -> (&mut Vec<String>, &mut Vec<String>) {
        let noted = self.status.uncounted_terminated_pods.get_or_insert_default();
        (noted.succeeded.get_or_insert_default(), noted.failed.get_or_insert_default())
    }

    fn note_indexes(&mut self) {
        let Some(indexes) = &self.indexes else { return };
        self.status.succeeded = unless_zero(indexes.succeeded.len());
        let text = indexes.succeeded.to_string();
        self.status.completed_indexes = (!text.is_empty()).then_some(text);
        self.status.failed_indexes = indexes.failed.as_ref().map(ToString::to_string);
    }

    /// Notes that the Job will end, and returns how.
    fn note_end(&mut self) -> Option<JobCondition> {
        let end = self.end.clone()?;
        let last = match end.type_.as_str() {
            FAILURE_TARGET => FAILED,
            SUCCESS_CRITERIA_MET => COMPLETE,
            _ => return Some(end),
        };
        conditions::set(&mut self.status.conditions, end.clone());
        let words = |text: &Option<String>| text.clone().unwrap_or_default();
        Some(conditions::new(last, "True", &words(&end.reason), &words(&end.message), self.now))
    }

    /// Writes the status if it is not what the Job has.
    async fn write(&mut self) -> Result<(), ReconcileError> {
        let noted = self.status.uncounted_terminated_pods.get_or_insert_default();
        for list in [&mut noted.succeeded, &mut noted.failed] {
            if list.as_ref().is_some_and(Vec::is_empty) {
                *list = None;
            }
        }
        if self.job.status.as_ref() == Some(&self.status) {
            return Ok(());
        }
        let mut changed = self.job.clone();
        changed.status = Some(self.status.clone());
        let jobs = self.api::<Job>();
        self.job = jobs.replace_status(&changed.name_any(), &PostParams::default(), &changed).await?;
        Ok(())
    }

    fn announce(&self, end: JobCondition) {
        if end.type_ == COMPLETE {
            if self.spec.completions.is_some_and(|completions| self.succeeded > completions) {
                let note = "Too many succeeded pods running after completion count reached";
                self.event(Event::warning("TooManySucceededPods", note));
            }
            self.event(Event::normal("Completed", "Job completed"));
        } else {
            self.event(Event::warning(end.reason.unwrap_or_default(), end.message.unwrap_or_default()));
        }
    }
}
