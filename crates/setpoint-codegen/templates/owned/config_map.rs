/// The ConfigMap of an object.
pub(crate) fn config_map(object: &api::Widget) -> Result<ConfigMap, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": metadata(object),
        "data": {"message": message(object)},
    }))
}
