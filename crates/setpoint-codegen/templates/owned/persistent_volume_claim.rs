/// The PersistentVolumeClaim of an object.
pub(crate) fn persistent_volume_claim(
    object: &api::Widget,
) -> Result<PersistentVolumeClaim, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": metadata(object),
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }))
}
