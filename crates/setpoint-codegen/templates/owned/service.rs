/// The Service of an object.
pub(crate) fn service(object: &api::Widget) -> Result<Service, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": metadata(object),
        "spec": {"selector": labels(object), "ports": [{"name": "http", "port": 80}]},
    }))
}
