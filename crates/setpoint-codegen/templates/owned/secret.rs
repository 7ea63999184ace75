/// The Secret of an object.
pub(crate) fn secret(object: &api::Widget) -> Result<Secret, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": metadata(object),
        "data": {"message": k8s_openapi::ByteString(message(object).into_bytes())},
    }))
}
