/// The StatefulSet of an object.
pub(crate) fn stateful_set(object: &api::Widget) -> Result<StatefulSet, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": metadata(object),
        "spec": {
            "replicas": 1,
            "serviceName": object.name_any(),
            "selector": {"matchLabels": labels(object)},
            "template": pod_template(object, "Always"),
        },
    }))
}
