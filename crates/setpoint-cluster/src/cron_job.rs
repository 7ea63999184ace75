//! CronJobs: a Job at each time of a schedule.

mod history;
mod schedule;
mod timing;

use std::sync::Arc;
use std::time::Duration;

use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Resource, ResourceExt};
use setpoint::owner::{controller_reference, is_controlled_by};
use setpoint::{Action, Context, Controller, Event, ObjectKey, ReconcileError, SharedInformerFactory};
use setpoint_env::Later;

use self::schedule::Schedule;
use crate::replica_set::CATCH_UP_LIMIT;
use crate::time::{time, whole_second};
use crate::{failure, owned};

/// The annotation of a Job that says for which time it was made.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// The controller of CronJobs.
pub(crate) fn controller(informers: &SharedInformerFactory) -> Controller {
    owned::by_controller::<Job>(informers);
    Controller::of::<CronJob>(.., "cronjob-controller", reconcile)
        .owns::<Job>(..)
        .workers(5)
        .catch_up_limit(CATCH_UP_LIMIT)
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(cron_job) = cx.lister::<CronJob>()?.get(&key) else { return Ok(Action::done()) };
    let jobs = owned::of(&cx.lister::<Job>()?, &cron_job.uid().unwrap_or_default());
    let status = cron_job.status.clone().unwrap_or_default();
    let mut turn = Turn { cx: &cx, cron_job: &cron_job, now: cx.env().now(), jobs, status };
    let outcome = turn.run().await;
    turn.clean_up().await?;
    turn.write().await?;
    let next = outcome?;
    Ok(next
        .map_or(Action::done(), |left| Action::requeue_after(left.max(SignedDuration::ZERO).unsigned_abs())))
}

/// One reconcile of a CronJob.
struct Turn<'a> {
    cx: &'a Context,
    cron_job: &'a Arc<CronJob>,
    now: Timestamp,
    jobs: Vec<Arc<Job>>,
    /// The status as it will be written.
    status: CronJobStatus,
}

impl Turn<'_> {
    /// Starts a Job if it is time. Says when to look again.
    async fn run(&mut self) -> Result<Option<SignedDuration>, ReconcileError> {
        self.look_at_jobs().await?;
        let is_off = self.cron_job.spec.suspend == Some(true);
        if self.cron_job.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        let (Some(zone), false) = (self.time_zone(), is_off) else { return Ok(None) };
        let Some(schedule) = self.schedule(&zone) else { return Ok(None) };
        let due = match self.due(&schedule) {
            Ok(due) => due,
            Err(error) => {
                let note = format!("invalid schedule: {} : {error}", self.cron_job.spec.schedule);
                self.event(Event::warning("InvalidSchedule", note));
                return Ok(None);
            }
        };
        if let Some(at) = due
            && self.may_start(at)
        {
            self.stop_active().await?;
            self.start(at, &zone).await?;
        }
        Ok(Some(self.next(&schedule)))
    }

    fn api<K: owned::Kind>(&self) -> Api<K> {
        Api::namespaced(self.cx.client(), &self.cron_job.namespace().unwrap_or_default())
    }

    fn event(&self, event: Event) {
        self.cx.recorder().event(&**self.cron_job, event);
    }

    fn time_zone(&self) -> Option<TimeZone> {
        let Some(name) = &self.cron_job.spec.time_zone else { return Some(TimeZone::UTC) };
        let zone = find_zone(name);
        if zone.is_none() {
            let note = format!("invalid timeZone: {name:?}: unknown time zone {name}");
            self.event(Event::warning("UnknownTimeZone", note));
        }
        zone
    }

    fn schedule(&self, zone: &TimeZone) -> Option<Schedule> {
        let text = &self.cron_job.spec.schedule;
        if text.contains("TZ") {
            let note = format!(
                "CRON_TZ or TZ used in schedule {text:?} is not officially supported, see \
                 https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
            );
            self.event(Event::warning("UnsupportedSchedule", note));
        }
        let schedule = Schedule::parse(text, zone);
        if let Err(error) = &schedule {
            let note = format!("unparseable schedule: {text:?} : {error}");
            self.event(Event::warning("UnparseableSchedule", note));
        }
        schedule.ok()
    }

    /// Whether a Job may be started for this time, or has been.
    fn may_start(&self, at: Timestamp) -> bool {
        let spec = &self.cron_job.spec;
        let deadline =
            spec.starting_deadline_seconds.map(|seconds| Duration::from_secs(seconds.max(0).unsigned_abs()));
        if deadline.is_some_and(|deadline| at.later(deadline) < self.now) {
            let at = at.to_zoned(TimeZone::UTC).strftime("%a, %d %b %Y %H:%M:%S %z").to_string();
            let note = format!("Missed scheduled time to start a job: {at}");
            self.event(Event::warning("MissSchedule", note));
            return false;
        }
        let name = self.job_name(at);
        let mut active = self.status.active.iter().flatten();
        let is_known = active.any(|job| job.name.as_ref() == Some(&name));
        if is_known || self.status.last_schedule_time.as_ref().is_some_and(|last| last.0 == whole_second(at))
        {
            return false;
        }
        let is_forbidden = spec.concurrency_policy.as_deref() == Some("Forbid");
        if is_forbidden && self.status.active.iter().flatten().next().is_some() {
            let note = "Not starting job because prior execution is running and concurrency policy is Forbid";
            self.event(Event::normal("JobAlreadyActive", note));
            return false;
        }
        true
    }

    /// The name is the same for the same time, so that no time gets two Jobs.
    fn job_name(&self, at: Timestamp) -> String {
        format!("{}-{}", self.cron_job.name_any(), at.as_second() / 60)
    }

    /// Deletes what still runs, if the next Job shall take its place.
    async fn stop_active(&mut self) -> Result<(), ReconcileError> {
        if self.cron_job.spec.concurrency_policy.as_deref() != Some("Replace") {
            return Ok(());
        }
        for job in self.status.active.clone().unwrap_or_default() {
            let name = job.name.unwrap_or_default();
            self.delete(&name, &job.uid.unwrap_or_default()).await?;
        }
        Ok(())
    }

    async fn delete(&mut self, name: &str, uid: &str) -> Result<(), ReconcileError> {
        let deleted = self.api::<Job>().delete(name, &DeleteParams::background()).await;
        if let Err(error) = deleted
            && !failure::is_not_found(&error)
        {
            let note = format!("Deleted job: {}", failure::message(&error));
            self.event(Event::warning("FailedDelete", note));
            return Err(error.into());
        }
        self.forget(uid);
        self.event(Event::normal("SuccessfulDelete", format!("Deleted job {name}")));
        Ok(())
    }

    /// Takes a Job out of the list of active ones. Says whether it was there.
    fn forget(&mut self, uid: &str) -> bool {
        let Some(active) = &mut self.status.active else { return false };
        let before = active.len();
        active.retain(|job| job.uid.as_deref() != Some(uid));
        let is_found = active.len() != before;
        if active.is_empty() {
            self.status.active = None;
        }
        is_found
    }

    async fn start(&mut self, at: Timestamp, zone: &TimeZone) -> Result<(), ReconcileError> {
        let wanted = self.job(at, zone);
        let job = match self.api::<Job>().create(&PostParams::default(), &wanted).await {
            Ok(job) => {
                self.event(Event::normal("SuccessfulCreate", format!("Created job {}", job.name_any())));
                job
            }
            // It was made before, and nobody got to say so.
            Err(error) if failure::already_exists(&error) => {
                let job = self.api::<Job>().get(&wanted.name_any()).await?;
                if !is_controlled_by(&job, &**self.cron_job) {
                    return Ok(());
                }
                job
            }
            Err(error) => {
                if !failure::is_namespace_terminating(&error) {
                    let note = format!("Error creating job: {}", failure::message(&error));
                    self.event(Event::warning("FailedCreate", note));
                }
                return Err(error.into());
            }
        };
        let mut reference = job.object_ref(&());
        reference.resource_version = job.resource_version();
        self.status.active.get_or_insert_default().push(reference);
        self.status.last_schedule_time = Some(time(at));
        Ok(())
    }

    fn job(&self, at: Timestamp, zone: &TimeZone) -> Job {
        let template = &self.cron_job.spec.job_template;
        let meta = template.metadata.clone().unwrap_or_default();
        let mut annotations = meta.annotations.unwrap_or_default();
        let local = at.to_zoned(zone.clone());
        let format = if local.offset().is_zero() { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S%:z" };
        annotations.insert(SCHEDULED.to_owned(), local.strftime(format).to_string());
        let metadata = ObjectMeta {
            name: Some(self.job_name(at)),
            namespace: self.cron_job.namespace(),
            labels: meta.labels,
            annotations: Some(annotations),
            owner_references: Some(controller_reference(&**self.cron_job).into_iter().collect()),
            ..ObjectMeta::default()
        };
        Job { metadata, spec: template.spec.clone(), status: None }
    }

    /// Writes the status if it is not what the CronJob has.
    async fn write(&self) -> Result<(), ReconcileError> {
        if self.cron_job.status.clone().unwrap_or_default() == self.status {
            return Ok(());
        }
        let mut changed = CronJob::clone(self.cron_job);
        changed.status = Some(self.status.clone());
        self.api::<CronJob>().replace_status(&changed.name_any(), &PostParams::default(), &changed).await?;
        Ok(())
    }
}

/// The zone of this name, from the database that is part of the program.
fn find_zone(name: &str) -> Option<TimeZone> {
    TimeZoneDatabase::bundled().get(name).ok()
}
