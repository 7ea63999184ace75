/// The Job of an object.
pub(crate) fn job(object: &api::Widget) -> Result<Job, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": metadata(object),
        "spec": {"template": pod_template(object, "Never")},
    }))
}
