/// The ServiceAccount of an object.
pub(crate) fn service_account(object: &api::Widget) -> Result<ServiceAccount, serde_json::Error> {
    serde_json::from_value(json!({"metadata": metadata(object)}))
}
