//! Namespaces are active, labelled with their name, and emptied before they go.

use serde_json::{Map, Value, json};

use crate::object::{self, metadata_mut};

pub(super) fn prepare_create(namespace: &mut Value) {
    let name = Value::String(object::name(namespace).to_owned());
    let metadata = metadata_mut(namespace);
    let labels = metadata.entry("labels").or_insert_with(|| Value::Object(Map::new()));
    labels["kubernetes.io/metadata.name"] = name;
    // The namespace controller empties the namespace, then removes this.
    let finalizers = &mut namespace["spec"]["finalizers"];
    let list = finalizers.as_array().cloned().unwrap_or_default();
    if !list.iter().any(|finalizer| finalizer == "kubernetes") {
        *finalizers = list.into_iter().chain(["kubernetes".into()]).collect();
    }
    namespace["status"] = json!({"phase": "Active"});
}
