//! Jobs and CronJobs while the controllers die and the network misbehaves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use parking_lot::Mutex;
use serde_json::json;
use setpoint_sim::{Swarm, World};
use tokio::time::sleep;

use crate::cron_jobs::cron_job;
use crate::jobs::{conditions, end, job};
use crate::support::{MINUTE, Running, SECOND, crash_often, watch_all};

const SEEDS: u64 = 12;
const COMPLETIONS: usize = 8;
const PARALLELISM: usize = 3;
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn is_active(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase(pod), "Succeeded" | "Failed")
}

/// The most pods that were active at a time, of all and of one index.
#[derive(Clone, Copy, Debug, Default)]
struct Most {
    active: usize,
    of_one_index: usize,
}

impl Most {
    fn note(&mut self, pods: &BTreeMap<String, Pod>) {
        let mut by_index: BTreeMap<&str, usize> = BTreeMap::new();
        for pod in pods.values().filter(|pod| is_active(pod)) {
            *by_index.entry(pod.labels().get(INDEX).map_or("", String::as_str)).or_default() += 1;
        }
        self.active = self.active.max(by_index.values().sum());
        let indexed = by_index.iter().filter(|(index, _)| !index.is_empty());
        self.of_one_index = self.of_one_index.max(indexed.map(|(_, count)| *count).max().unwrap_or(0));
    }
}

async fn job_under_faults(world: World, mode: &str) {
    let seed = world.seed();
    let mut running = Running::new(&world);
    let most: Arc<Mutex<Most>> = Arc::default();
    let inner = most.clone();
    let _watch = watch_all::<Pod>(&world, move |pods| inner.lock().note(pods));
    world.faults().swarm(Swarm::every(0.03));
    let spec = json!({"completions": COMPLETIONS, "parallelism": PARALLELISM, "completionMode": mode});
    running.create::<Job>(job("work", Some(0), spec)).await;
    crash_often(&mut running, 8, 3 * SECOND).await;
    world.faults().heal();
    sleep(15 * MINUTE).await;
    let work: Job = running.get("work").await;
    assert_eq!(conditions(&work), end("Complete", "SuccessCriteriaMet", "CompletionsReached"), "seed {seed}");
    let status = work.status.unwrap();
    assert_eq!(status.succeeded, Some(COMPLETIONS as i32), "seed {seed}");
    assert_eq!((status.active, status.failed), (None, None), "seed {seed}");
    let pods = running.list::<Pod>().await;
    assert!(pods.iter().all(|pod| pod.finalizers().is_empty()), "seed {seed}: a pod keeps its finalizer");
    let succeeded: Vec<&Pod> = pods.iter().filter(|pod| phase(pod) == "Succeeded").collect();
    assert_eq!(succeeded.len(), COMPLETIONS, "seed {seed}");
    if mode == "Indexed" {
        let indexes: BTreeSet<&String> = succeeded.iter().map(|pod| &pod.labels()[INDEX]).collect();
        assert_eq!(indexes.len(), COMPLETIONS, "seed {seed}: an index ran twice");
    }
    let most = *most.lock();
    assert!(most.active <= PARALLELISM && most.of_one_index <= 1, "seed {seed}: {most:?}");
    assert!(most.active > 0, "seed {seed}: nobody looked");
}

#[test]
fn jobs_that_crash_anywhere_never_run_too_many_pods_and_count_each_once() {
    for seed in 0..SEEDS {
        World::run(seed, async |world| job_under_faults(world, "NonIndexed").await);
    }
}

#[test]
fn indexed_jobs_that_crash_anywhere_run_each_index_once() {
    for seed in 0..SEEDS {
        World::run(seed, async |world| job_under_faults(world, "Indexed").await);
    }
}

#[test]
fn cron_jobs_that_crash_anywhere_start_no_time_twice() {
    for seed in 0..SEEDS / 2 {
        World::run(seed, async |world| {
            let mut running = Running::new(&world);
            let starts: Arc<Mutex<BTreeMap<String, BTreeSet<String>>>> = Arc::default();
            let inner = starts.clone();
            let _watch = watch_all::<Job>(&world, move |jobs| {
                for job in jobs.values() {
                    let at = job.annotations()[SCHEDULED].clone();
                    inner.lock().entry(at).or_default().insert(job.uid().unwrap());
                }
            });
            world.faults().swarm(Swarm::every(0.03));
            // Few are kept, so that a time whose Job is deleted already could be started again.
            let limit = json!({"successfulJobsHistoryLimit": 1});
            running.create::<CronJob>(cron_job("* * * * *", Some(0), limit)).await;
            crash_often(&mut running, 8, 2 * MINUTE).await;
            world.faults().heal();
            let healed = world.env().now();
            sleep(3 * MINUTE).await;
            let starts = starts.lock().clone();
            let twice: Vec<_> = starts.iter().filter(|(_, jobs)| jobs.len() > 1).collect();
            assert!(twice.is_empty(), "seed {seed}: {twice:?}");
            let late = starts.keys().filter(|at| at.parse::<jiff::Timestamp>().unwrap() > healed).count();
            assert!(late >= 2, "seed {seed}: only {late} starts in three good minutes of {starts:?}");
        });
    }
}
