use serde_json::{Value, json};

use super::Kind;

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const CRON_JOBS: &str = "/apis/batch/v1/namespaces/default/cronjobs";

fn template() -> Value {
    json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "work", "image": "busybox"}]}})
}

fn jobs() -> Kind {
    let spec = json!({"template": template()});
    Kind::new(
        JOBS,
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work"}, "spec": spec}),
    )
}

fn cron_jobs() -> Kind {
    let spec = json!({"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template()}}});
    Kind::new(
        CRON_JOBS,
        json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "work"}, "spec": spec}),
    )
}

#[tokio::test]
async fn a_job_selects_its_pods_by_its_uid() {
    let made = jobs().made(&[]).await;
    let uid = &made["metadata"]["uid"];
    let labels = json!({
        "controller-uid": uid, "job-name": "work",
        "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": "work"
    });
    assert_eq!(made["spec"]["template"]["metadata"]["labels"], labels);
    assert_eq!(made["metadata"]["labels"], labels);
    assert_eq!(made["spec"]["selector"], json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}));
    for (field, value) in [
        ("parallelism", json!(1)),
        ("completions", json!(1)),
        ("backoffLimit", json!(6)),
        ("completionMode", json!("NonIndexed")),
        ("suspend", json!(false)),
        ("manualSelector", json!(false)),
        ("podReplacementPolicy", json!("TerminatingOrFailed")),
    ] {
        assert_eq!(made["spec"][field], value, "{field}");
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_job() {
    let jobs = jobs();
    jobs.check(
        &[("/spec/template/spec/restartPolicy", json!("Always"))],
        &["spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\""],
    )
    .await;
    jobs.check(
        &[("/spec/completionMode", json!("Indexed")), ("/spec/parallelism", json!(2))],
        &["spec.completions: Required value: when completion mode is Indexed"],
    )
    .await;
    jobs.check(
        &[("/spec/podFailurePolicy", json!({"rules": [{"action": "Ignore"}]}))],
        &["spec.podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required"],
    )
    .await;
}

#[tokio::test]
async fn the_template_of_a_job_stays_unless_the_job_waits() {
    let completions = [("/spec/completions", json!(3))];
    let suspend = [("/spec/suspend", json!(true))];
    let selector = [("/spec/template/spec/nodeSelector", json!({"a": "b"}))];
    let parallelism = [("/spec/parallelism", json!(3))];
    jobs()
        .check_updates(&[
            (&parallelism, &[]),
            (&completions, &["spec.completions: Invalid value: 3: field is immutable"]),
            (&suspend, &[]),
            (&selector, &[]),
        ])
        .await;
}

#[tokio::test]
async fn schedules_and_time_zones_are_checked() {
    let jobs = cron_jobs();
    for good in ["@daily", "@every 1h", "0 0 1 jan mon-fri", "*/5 * * * *"] {
        jobs.check(&[("/spec/schedule", json!(good))], &[]).await;
    }
    jobs.check(
        &[("/spec/schedule", json!("61 * * * *"))],
        &["spec.schedule: Invalid value: \"61 * * * *\": end of range (61) above maximum (59): 61"],
    )
    .await;
    jobs.check(
        &[("/spec/schedule", json!("TZ=UTC 0 * * * *"))],
        &["spec.schedule: Invalid value: \"TZ=UTC 0 * * * *\": cannot use TZ or CRON_TZ in schedule, use timeZone field \
           instead"],
    )
    .await;
    jobs.check(&[("/spec/timeZone", json!("Europe/Berlin"))], &[]).await;
    jobs.check(
        &[("/spec/timeZone", json!("Mars/Phobos"))],
        &["spec.timeZone: Invalid value: \"Mars/Phobos\": unknown time zone Mars/Phobos"],
    )
    .await;
    let made = jobs.made(&[]).await;
    assert_eq!(made["spec"]["concurrencyPolicy"], "Allow");
    assert_eq!(made["spec"]["successfulJobsHistoryLimit"], 3);
}
