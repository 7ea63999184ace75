//! Jobs: pods that run to their end, counted once each.
//!
//! A pod of a Job keeps a finalizer until it is counted: first its uid is noted in the status, then the finalizer
//! goes, then the counter moves. Whatever dies in between, no pod is counted twice or not at all.

mod backoff;
mod conditions;
mod failure_policy;
mod indexes;
mod manage;
mod pods;
mod stray;
mod success_policy;
mod tracking;
mod verdict;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::core::{Selector, SelectorExt};
use kube::{Api, ResourceExt};
use setpoint::{
    Action, Context, Controller, Event, Lister, ObjectKey, ReconcileError, SharedInformerFactory,
};

pub(crate) use self::conditions::{finished, is_finished};
use self::indexes::Indexes;
use crate::number::count;
use crate::replica_set::CATCH_UP_LIMIT;
use crate::{owned, pod};

/// The finalizer of a pod that is not counted yet.
const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// Who manages a Job unless it says otherwise.
const MANAGED_BY: &str = "kubernetes.io/job-controller";

/// The controller of Jobs.
pub(crate) fn controller(informers: &SharedInformerFactory) -> Controller {
    owned::by_controller::<Pod>(informers);
    stray::index(informers);
    let jobs: Lister<Job> = informers.informer::<Job>().lister();
    Controller::of::<Job>(.., "job-controller", reconcile)
        .watches::<Pod>(.., move |pod| {
            let mut keys = owned::concerned(&jobs, pod, selects);
            keys.extend(stray::key(pod));
            keys
        })
        .workers(5)
        .catch_up_limit(CATCH_UP_LIMIT)
}

fn selector_of(job: &Job) -> Option<Selector> {
    Selector::try_from(job.spec.as_ref()?.selector.clone()?).ok()
}

fn selects(job: &Job, pod: &Pod) -> bool {
    let is_open = !is_finished(job) && job.metadata.deletion_timestamp.is_none();
    is_open && selector_of(job).is_some_and(|selector| selector.matches(pod.labels()))
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let job = cx.lister::<Job>()?.get(&key);
    let manager = job.as_ref().and_then(|job| job.spec.as_ref()?.managed_by.clone());
    if manager.is_some_and(|manager| manager != MANAGED_BY) {
        return Ok(Action::done());
    }
    let open = job.as_ref().filter(|job| !is_finished(job));
    stray::release(&cx, &key, open.map(|job| &**job)).await?;
    let Some(job) = open else { return Ok(Action::done()) };
    let (Some(spec), Some(selector)) = (job.spec.as_ref(), selector_of(job)) else {
        return Err(ReconcileError::terminal("the Job has no selector"));
    };
    if !matches!(spec.completion_mode.as_deref(), None | Some("NonIndexed" | "Indexed")) {
        let note = "Skipped Job sync because completion mode is unknown";
        cx.recorder().event(&**job, Event::warning("UnknownCompletionMode", note));
        return Ok(Action::done());
    }
    let candidates = owned::candidates(&cx.lister::<Pod>()?, &**job);
    let pods = owned::claim_all(&cx, &**job, &selector, candidates, Some(TRACKING)).await?;
    let mut run = Run::new(&cx, job, spec, pods);
    run.sync().await?;
    Ok(run.next.map_or(Action::done(), Action::requeue_after))
}

/// One reconcile of a Job.
struct Run<'a> {
    cx: &'a Context,
    job: Job,
    spec: &'a JobSpec,
    now: Timestamp,
    pods: Vec<Arc<Pod>>,
    /// The pods that may still run and are not being deleted.
    running: Vec<Arc<Pod>>,
    /// How many of these there are after what this reconcile did.
    active: i32,
    ready: i32,
    terminating: i32,
    succeeded: i32,
    failed: i32,
    indexes: Option<Indexed>,
    /// The status as it will be written.
    status: JobStatus,
    /// How the Job ends, or that it will.
    end: Option<JobCondition>,
    /// When to look again.
    next: Option<Duration>,
}

/// What an indexed Job knows of its indexes.
struct Indexed {
    completions: i32,
    succeeded: Indexes,
    /// Only with a limit per index.
    failed: Option<Indexes>,
}

impl<'a> Run<'a> {
    fn new(cx: &'a Context, job: &Job, spec: &'a JobSpec, pods: Vec<Arc<Pod>>) -> Run<'a> {
        let running: Vec<_> = pods.iter().filter(|pod| pod::is_active(pod)).cloned().collect();
        let mut status = job.status.clone().unwrap_or_default();
        status.uncounted_terminated_pods.get_or_insert_default();
        let mut run = Run {
            cx,
            job: job.clone(),
            spec,
            now: cx.env().now(),
            active: count(running.len()),
            ready: count(running.iter().filter(|pod| pod::is_ready(pod)).count()),
            terminating: count(pods.iter().filter(|pod| pod::is_terminating(pod)).count()),
            pods,
            running,
            succeeded: 0,
            failed: 0,
            indexes: None,
            status,
            end: None,
            next: None,
        };
        run.count_ended();
        run.indexes = run.indexed();
        if let Some(indexes) = &run.indexes {
            run.succeeded = indexes.succeeded.len();
        }
        run
    }

    async fn sync(&mut self) -> Result<(), ReconcileError> {
        if self.status.start_time.is_none() && !self.is_suspended() {
            self.status.start_time = Some(crate::time::time(self.now));
        }
        self.judge();
        let managed = if self.end.is_some() {
            self.delete_running().await
        } else {
            let managed = match self.job.metadata.deletion_timestamp {
                None => self.manage().await,
                Some(_) => Ok(()),
            };
            self.judge_completions();
            managed
        };
        self.status.active = crate::number::unless_zero(self.active);
        self.status.ready = Some(self.ready);
        self.status.terminating = Some(self.terminating);
        self.track().await?;
        managed
    }

    fn api<K: owned::Kind>(&self) -> Api<K> {
        Api::namespaced(self.cx.client(), &self.job.namespace().unwrap_or_default())
    }

    fn event(&self, event: Event) {
        self.cx.recorder().event(&self.job, event);
    }

    fn is_suspended(&self) -> bool {
        self.spec.suspend == Some(true)
    }

    fn parallelism(&self) -> i32 {
        self.spec.parallelism.unwrap_or(1)
    }

    /// Looks again after this time, or earlier.
    fn look_again(&mut self, after: SignedDuration) {
        let after = after.max(SignedDuration::ZERO).unsigned_abs();
        self.next = Some(self.next.map_or(after, |next| next.min(after)));
    }

    /// The uids that the status notes, of pods that succeeded and that failed.
    fn noted(&self) -> (BTreeSet<&str>, BTreeSet<&str>) {
        let noted = self.status.uncounted_terminated_pods.as_ref();
        (
            uids(noted.and_then(|noted| noted.succeeded.as_ref())),
            uids(noted.and_then(|noted| noted.failed.as_ref())),
        )
    }
}

fn uids(list: Option<&Vec<String>>) -> BTreeSet<&str> {
    list.into_iter().flatten().map(String::as_str).collect()
}
