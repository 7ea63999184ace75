//! Jobs run to their end, and count their pods once.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};
use setpoint_sim::World;
use tokio::time::sleep;

use crate::kubelet::EXIT_CODE;
use crate::support::{MINUTE, Running, SECOND};

fn run(scenario: impl AsyncFnOnce(Running)) {
    World::run(11, async |world| scenario(Running::new(&world)).await);
}

pub(crate) fn job(name: &str, exit_code: Option<i32>, spec: Value) -> Value {
    let annotations = match exit_code {
        Some(code) => json!({EXIT_CODE: code.to_string()}),
        None => json!({}),
    };
    let mut job = json!({
        "metadata": {"name": name},
        "spec": {"template": {
            "metadata": {"annotations": annotations},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "work", "image": "v1"}]},
        }},
    });
    for (key, value) in spec.as_object().unwrap() {
        job["spec"][key] = value.clone();
    }
    job
}

/// The conditions that are true, with their reasons.
pub(crate) fn conditions(job: &Job) -> Vec<(String, String)> {
    let conditions = job.status.as_ref().unwrap().conditions.iter().flatten();
    let set = conditions.filter(|condition| condition.status == "True");
    set.map(|condition| (condition.type_.clone(), condition.reason.clone().unwrap())).collect()
}

pub(crate) fn end(type_: &str, interim: &str, reason: &str) -> Vec<(String, String)> {
    vec![(interim.to_owned(), reason.to_owned()), (type_.to_owned(), reason.to_owned())]
}

#[test]
fn a_job_completes_when_enough_pods_have_succeeded() {
    run(async |running| {
        let spec = json!({"completions": 7, "parallelism": 3});
        running.create::<Job>(job("work", Some(0), spec)).await;
        sleep(SECOND / 2).await;
        let status = running.get::<Job>("work").await.status.unwrap();
        assert_eq!((status.active, status.ready, status.start_time.is_some()), (Some(3), Some(0), true));
        sleep(MINUTE).await;
        let work: Job = running.get("work").await;
        let status = work.status.clone().unwrap();
        assert_eq!((status.succeeded, status.active, status.failed), (Some(7), None, None));
        assert_eq!(conditions(&work), end("Complete", "SuccessCriteriaMet", "CompletionsReached"));
        assert!(status.completion_time.is_some());
        assert_eq!(status.uncounted_terminated_pods, Some(Default::default()));
        let pods = running.list::<Pod>().await;
        assert_eq!(pods.len(), 7);
        assert!(pods.iter().all(|pod| pod.finalizers().is_empty()));
        let events = running.events("work").await;
        assert_eq!(events.last().unwrap(), &("Completed".to_owned(), "Job completed".to_owned()));
    });
}

#[test]
fn a_job_fails_at_its_backoff_limit_and_waits_longer_after_each_failure() {
    run(async |running| {
        running.create::<Job>(job("work", Some(1), json!({"backoffLimit": 3}))).await;
        sleep(5 * SECOND).await;
        assert_eq!(running.list::<Pod>().await.len(), 1);
        sleep(10 * SECOND).await;
        assert_eq!(running.list::<Pod>().await.len(), 2);
        sleep(5 * MINUTE).await;
        let work: Job = running.get("work").await;
        assert_eq!(conditions(&work), end("Failed", "FailureTarget", "BackoffLimitExceeded"));
        assert_eq!(work.status.unwrap().failed, Some(4));
        let events = running.events("work").await;
        let note = "Job has reached the specified backoff limit";
        assert_eq!(events.last().unwrap(), &("BackoffLimitExceeded".to_owned(), note.to_owned()));
    });
}

#[test]
fn a_job_that_takes_too_long_is_stopped() {
    run(async |running| {
        let spec = json!({"activeDeadlineSeconds": 30, "parallelism": 2});
        running.create::<Job>(job("work", None, spec)).await;
        sleep(20 * SECOND).await;
        assert_eq!(running.active_pods().await.len(), 2);
        sleep(MINUTE).await;
        let work: Job = running.get("work").await;
        assert_eq!(conditions(&work), end("Failed", "FailureTarget", "DeadlineExceeded"));
        assert_eq!(running.list::<Pod>().await.len(), 0);
        let status = work.status.unwrap();
        assert_eq!((status.active, status.failed, status.terminating), (None, Some(2), Some(0)));
    });
}

#[test]
fn a_suspended_job_has_no_pods_and_starts_anew_when_it_is_resumed() {
    run(async |running| {
        running.create::<Job>(job("work", None, json!({"parallelism": 2}))).await;
        sleep(10 * SECOND).await;
        running.patch::<Job>("work", json!({"spec": {"suspend": true}})).await;
        sleep(10 * SECOND).await;
        let work: Job = running.get("work").await;
        assert_eq!(conditions(&work), [("Suspended".to_owned(), "JobSuspended".to_owned())]);
        assert_eq!(running.list::<Pod>().await.len(), 0);
        assert_eq!(work.status.as_ref().unwrap().failed, None);
        running.patch::<Job>("work", json!({"spec": {"suspend": false}})).await;
        sleep(10 * SECOND).await;
        assert_eq!(running.active_pods().await.len(), 2);
        assert_eq!(conditions(&running.get("work").await), []);
        let reasons: Vec<_> = running.events("work").await.into_iter().map(|(reason, _)| reason).collect();
        assert!(reasons.contains(&"Suspended".to_owned()) && reasons.contains(&"Resumed".to_owned()));
    });
}

#[test]
fn an_indexed_job_gives_each_pod_its_place() {
    run(async |running| {
        let spec = json!({"completions": 4, "parallelism": 2, "completionMode": "Indexed"});
        running.create::<Job>(job("work", Some(0), spec)).await;
        sleep(MINUTE).await;
        let work: Job = running.get("work").await;
        let status = work.status.clone().unwrap();
        assert_eq!((status.completed_indexes.as_deref(), status.succeeded), (Some("0-3"), Some(4)));
        assert_eq!(conditions(&work), end("Complete", "SuccessCriteriaMet", "CompletionsReached"));
        let pods = running.list::<Pod>().await;
        let key = "batch.kubernetes.io/job-completion-index";
        let mut places: Vec<_> = pods.iter().map(|pod| pod.labels()[key].clone()).collect();
        places.sort();
        assert_eq!(places, ["0", "1", "2", "3"]);
        let third = pods.iter().find(|pod| pod.annotations()[key] == "2").unwrap();
        let spec = third.spec.as_ref().unwrap();
        assert_eq!(spec.hostname.as_deref(), Some("work-2"));
        assert!(third.name_any().starts_with("work-2-"));
        assert_eq!(spec.containers[0].env.as_ref().unwrap()[0].name, "JOB_COMPLETION_INDEX");
    });
}

#[test]
fn with_a_limit_per_index_each_index_fails_for_itself() {
    run(async |running| {
        let spec = json!({"completions": 2, "parallelism": 2, "completionMode": "Indexed",
                          "backoffLimitPerIndex": 1, "backoffLimit": 100});
        running.create::<Job>(job("work", Some(1), spec)).await;
        sleep(5 * MINUTE).await;
        let work: Job = running.get("work").await;
        assert_eq!(conditions(&work), end("Failed", "FailureTarget", "FailedIndexes"));
        let status = work.status.unwrap();
        assert_eq!((status.failed_indexes.as_deref(), status.failed), (Some("0,1"), Some(4)));
    });
}

#[test]
fn a_failure_policy_ends_a_job_at_once_or_ignores_a_failure() {
    run(async |running| {
        let rule = |action: &str, code: i32| {
            json!({"podFailurePolicy": {"rules": [
                {"action": action, "onExitCodes": {"operator": "In", "values": [code]}}]}})
        };
        running.create::<Job>(job("fatal", Some(42), rule("FailJob", 42))).await;
        running.create::<Job>(job("ignored", Some(7), rule("Ignore", 7))).await;
        sleep(MINUTE).await;
        let fatal: Job = running.get("fatal").await;
        assert_eq!(conditions(&fatal), end("Failed", "FailureTarget", "PodFailurePolicy"));
        let ignored: Job = running.get("ignored").await;
        assert_eq!(conditions(&ignored), []);
        assert_eq!(ignored.status.unwrap().failed, None);
    });
}

#[test]
fn a_success_policy_ends_a_job_early() {
    run(async |running| {
        let spec = json!({"completions": 5, "parallelism": 1, "completionMode": "Indexed",
                          "successPolicy": {"rules": [{"succeededIndexes": "0-1"}]}});
        running.create::<Job>(job("work", Some(0), spec)).await;
        sleep(MINUTE).await;
        let work: Job = running.get("work").await;
        assert_eq!(conditions(&work), end("Complete", "SuccessCriteriaMet", "SuccessPolicy"));
        assert_eq!(work.status.unwrap().completed_indexes.as_deref(), Some("0,1"));
    });
}

#[test]
fn a_job_is_deleted_when_its_time_after_the_end_is_over() {
    run(async |running| {
        running.create::<Job>(job("work", Some(0), json!({"ttlSecondsAfterFinished": 100}))).await;
        sleep(90 * SECOND).await;
        assert_eq!(running.list::<Job>().await.len(), 1);
        sleep(30 * SECOND).await;
        let left = running.list::<Job>().await;
        // In the foreground: the garbage collector ends it.
        assert!(left.iter().all(|job| job.metadata.deletion_timestamp.is_some()));
    });
}
