//! CronJobs start Jobs on time. The world begins at midnight of January 1, 2026, a Thursday.

use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::ResourceExt;
use kube::api::PostParams;
use serde_json::{Value, json};
use setpoint_sim::World;
use tokio::time::sleep;

use crate::kubelet::EXIT_CODE;
use crate::support::{MINUTE, Running, SECOND, start};

fn run(scenario: impl AsyncFnOnce(Running)) {
    World::run(13, async |world| scenario(Running::new(&world)).await);
}

pub(crate) fn cron_job(schedule: &str, exit_code: Option<i32>, spec: Value) -> Value {
    let annotations = match exit_code {
        Some(code) => json!({EXIT_CODE: code.to_string()}),
        None => json!({}),
    };
    let mut cron_job = json!({
        "metadata": {"name": "tick"},
        "spec": {"schedule": schedule, "jobTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "work", "image": "v1"}]},
            },
        }}},
    });
    for (key, value) in spec.as_object().unwrap() {
        cron_job["spec"][key] = value.clone();
    }
    cron_job
}

async fn job_names(running: &Running) -> Vec<String> {
    let mut jobs = running.list::<Job>().await;
    jobs.retain(|job| job.metadata.deletion_timestamp.is_none());
    jobs.iter().map(|job| job.name_any()).collect()
}

#[test]
fn a_job_is_started_at_each_time_and_the_newest_are_kept() {
    run(async |running| {
        running.create::<CronJob>(cron_job("*/10 * * * *", Some(0), json!({}))).await;
        sleep(61 * MINUTE).await;
        // Minutes since 1970 at 00:40, 00:50 and 01:00.
        let expected: Vec<_> = [40, 50, 60].map(|minute| format!("tick-{}", 29_453_760 + minute)).into();
        assert_eq!(job_names(&running).await, expected);
        let tick: CronJob = running.get("tick").await;
        let status = tick.status.unwrap();
        assert_eq!(status.active, None);
        assert_eq!(status.last_schedule_time.unwrap().0.to_string(), "2026-01-01T01:00:00Z");
        assert!(status.last_successful_time.is_some());
        let job: Job = running.get(&expected[2]).await;
        let at = "batch.kubernetes.io/cronjob-scheduled-timestamp";
        assert_eq!(job.annotations()[at], "2026-01-01T01:00:00Z");
        assert_eq!(job.labels()["a"], "b");
        let events = running.events("tick").await;
        let created = format!("Created job {}", expected[0]);
        assert!(events.contains(&("SuccessfulCreate".to_owned(), created)), "{events:?}");
        let done = format!("Saw completed job: {}, condition: Complete", expected[0]);
        assert!(events.contains(&("SawCompletedJob".to_owned(), done)), "{events:?}");
    });
}

#[test]
fn the_schedule_is_read_in_its_time_zone() {
    run(async |running| {
        let zone = json!({"timeZone": "Asia/Tokyo"});
        running.create::<CronJob>(cron_job("0 10 * * *", Some(0), zone)).await;
        sleep(59 * MINUTE).await;
        assert_eq!(job_names(&running).await.len(), 0);
        sleep(2 * MINUTE).await;
        let job = running.list::<Job>().await.remove(0);
        let at = "batch.kubernetes.io/cronjob-scheduled-timestamp";
        assert_eq!(job.annotations()[at], "2026-01-01T10:00:00+09:00");
    });
}

#[test]
fn a_time_zone_that_does_not_exist_is_refused_with_kubernetes_words() {
    run(async |running| {
        let value = cron_job("0 10 * * *", Some(0), json!({"timeZone": "Mars/Phobos"}));
        let object: CronJob = serde_json::from_value(value).unwrap();
        let error = running.api::<CronJob>().create(&PostParams::default(), &object).await.unwrap_err();
        assert!(error.to_string().contains("unknown time zone Mars/Phobos"), "{error}");
    });
}

#[test]
fn forbid_lets_no_second_job_run() {
    run(async |running| {
        let spec = json!({"concurrencyPolicy": "Forbid"});
        running.create::<CronJob>(cron_job("* * * * *", None, spec)).await;
        sleep(5 * MINUTE).await;
        assert_eq!(job_names(&running).await.len(), 1);
        let events = running.events("tick").await;
        assert!(events.iter().any(|(reason, _)| reason == "JobAlreadyActive"), "{events:?}");
    });
}

#[test]
fn replace_puts_the_next_job_in_place_of_the_one_that_runs() {
    run(async |running| {
        let spec = json!({"concurrencyPolicy": "Replace"});
        running.create::<CronJob>(cron_job("* * * * *", None, spec)).await;
        sleep(3 * MINUTE + 10 * SECOND).await;
        assert_eq!(job_names(&running).await, ["tick-29453763"]);
        let active = running.get::<CronJob>("tick").await.status.unwrap().active.unwrap();
        assert_eq!(active.len(), 1);
    });
}

#[test]
fn a_suspended_cron_job_starts_nothing() {
    run(async |running| {
        running.create::<CronJob>(cron_job("* * * * *", Some(0), json!({"suspend": true}))).await;
        sleep(10 * MINUTE).await;
        assert_eq!(job_names(&running).await.len(), 0);
    });
}

#[test]
fn of_times_that_were_missed_the_last_is_made_up_for_within_the_deadline() {
    for (deadline, expected) in [(json!({}), 1), (json!({"startingDeadlineSeconds": 60}), 0)] {
        World::run(17, async |world| {
            let mut running = Running::new(&world);
            running.create::<CronJob>(cron_job("0 * * * *", Some(0), deadline)).await;
            sleep(MINUTE).await;
            running.crash();
            sleep(4 * 60 * MINUTE + 30 * MINUTE).await;
            running.cluster = Some(start(&world));
            sleep(MINUTE).await;
            assert_eq!(job_names(&running).await.len(), expected);
        });
    }
}

#[test]
fn a_deadline_beyond_all_time_is_never_missed() {
    run(async |running| {
        let spec = json!({"startingDeadlineSeconds": i64::MAX});
        running.create::<CronJob>(cron_job("*/10 * * * *", Some(0), spec)).await;
        sleep(11 * MINUTE).await;
        assert_eq!(job_names(&running).await, [format!("tick-{}", 29_453_760 + 10)]);
    });
}
