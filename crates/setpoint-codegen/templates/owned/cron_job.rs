/// The CronJob of an object.
pub(crate) fn cron_job(object: &api::Widget) -> Result<CronJob, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": metadata(object),
        "spec": {
            "schedule": "0 * * * *",
            "jobTemplate": {"spec": {"template": pod_template(object, "Never")}},
        },
    }))
}
