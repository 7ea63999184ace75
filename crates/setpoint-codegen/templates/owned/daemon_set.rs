/// The DaemonSet of an object.
pub(crate) fn daemon_set(object: &api::Widget) -> Result<DaemonSet, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": metadata(object),
        "spec": {
            "selector": {"matchLabels": labels(object)},
            "template": pod_template(object, "Always"),
        },
    }))
}
