//! The Jobs that a CronJob has started: which still run, which have ended, and which are kept.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use setpoint::{Event, ReconcileError};

use super::Turn;
use crate::job::finished;

fn has_succeeded(job: &Job) -> bool {
    finished(job).is_some_and(|condition| condition.type_ == "Complete")
}

impl Turn<'_> {
    /// Brings the list of active Jobs up to date.
    pub(super) async fn look_at_jobs(&mut self) -> Result<(), ReconcileError> {
        for job in self.jobs.clone() {
            let uid = job.uid().unwrap_or_default();
            let Some(condition) = finished(&job) else {
                let mut active = self.status.active.iter().flatten();
                if !active.any(|known| known.uid.as_deref() == Some(uid.as_str())) {
                    let note = "Saw a job that the controller did not create or forgot";
                    self.event(Event::warning("UnexpectedJob", format!("{note}: {}", job.name_any())));
                }
                continue;
            };
            if self.forget(&uid) {
                let (name, condition) = (job.name_any(), &condition.type_);
                let note = format!("Saw completed job: {name}, condition: {condition}");
                self.event(Event::normal("SawCompletedJob", note));
            }
            let completed = job.status.as_ref().and_then(|status| status.completion_time.clone());
            if has_succeeded(&job)
                && completed.as_ref().map(|time| time.0)
                    > self.status.last_successful_time.as_ref().map(|time| time.0)
            {
                self.status.last_successful_time = completed;
            }
        }
        self.forget_missing().await
    }

    /// Forgets active Jobs that are gone. The cache alone does not say so: it may be behind.
    async fn forget_missing(&mut self) -> Result<(), ReconcileError> {
        for known in self.status.active.clone().unwrap_or_default() {
            let (name, uid) = (known.name.unwrap_or_default(), known.uid.unwrap_or_default());
            if self.jobs.iter().any(|job| job.uid().as_ref() == Some(&uid)) {
                continue;
            }
            if self.api::<Job>().get_opt(&name).await?.is_none() {
                self.event(Event::normal("MissingJob", format!("Active job went missing: {name}")));
                self.forget(&uid);
            }
        }
        Ok(())
    }

    /// Deletes Jobs that have ended and are more than history keeps.
    pub(super) async fn clean_up(&mut self) -> Result<(), ReconcileError> {
        let spec = &self.cron_job.spec;
        let limits = [spec.successful_jobs_history_limit, spec.failed_jobs_history_limit];
        let ended = self.jobs.iter().filter(|job| finished(job).is_some()).cloned();
        let (succeeded, failed): (Vec<_>, Vec<_>) = ended.partition(|job| has_succeeded(job));
        for (jobs, limit) in [succeeded, failed].into_iter().zip(limits) {
            if let Some(limit) = limit {
                self.keep_newest(jobs, usize::try_from(limit).unwrap_or(0)).await?;
            }
        }
        Ok(())
    }

    async fn keep_newest(&mut self, mut jobs: Vec<Arc<Job>>, most: usize) -> Result<(), ReconcileError> {
        let start =
            |job: &Job| job.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
        jobs.sort_by_cached_key(|job| (start(job).is_none(), start(job), job.name_any()));
        let surplus = jobs.len().saturating_sub(most);
        for job in &jobs[..surplus] {
            if job.metadata.deletion_timestamp.is_none() {
                self.delete(&job.name_any(), &job.uid().unwrap_or_default()).await?;
            }
        }
        Ok(())
    }
}
