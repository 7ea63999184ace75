/// The Deployment of an object.
pub(crate) fn deployment(object: &api::Widget) -> Result<Deployment, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": metadata(object),
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels(object)},
            "template": pod_template(object, "Always"),
        },
    }))
}
