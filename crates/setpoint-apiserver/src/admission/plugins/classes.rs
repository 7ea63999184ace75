//! `DefaultStorageClass` and `DefaultIngressClass`: the class of what names none.

use serde_json::Value;

use crate::object;
use crate::resource::Registry;
use crate::server::Core;
use crate::status::Result;
use crate::storage::ListQuery;

const STORAGE_MARKS: &[&str] =
    &["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
const INGRESS_MARKS: &[&str] = &["ingressclass.kubernetes.io/is-default-class"];

/// The name of the class that is marked as default: of several the newest, then the first by name.
async fn default_of(core: &Core, group: &str, plural: &str, marks: &[&str]) -> Result<Option<Value>> {
    let classes = Registry::built_in().expect(group, "v1", plural);
    let page = core.storage.list(&ListQuery::all(classes.collection())).await?;
    let mut found: Option<(String, Value)> = None;
    // They come in the order of their names.
    for record in &page.records {
        let class = object::decode(&record.value, record.revision);
        let metadata = &class["metadata"];
        if !marks.iter().any(|mark| metadata["annotations"][mark] == "true") {
            continue;
        }
        let made = metadata["creationTimestamp"].as_str().unwrap_or_default().to_owned();
        if found.as_ref().is_none_or(|(newest, _)| made > *newest) {
            found = Some((made, metadata["name"].clone()));
        }
    }
    Ok(found.map(|(_, name)| name))
}

/// A claim that asks for no class, in either of the two ways, gets the default one. An empty name is a name.
pub(super) async fn storage(core: &Core, claim: &mut Value) -> Result<()> {
    const OLD_NAME: &str = "volume.beta.kubernetes.io/storage-class";
    let has_class = claim["metadata"]["annotations"].get(OLD_NAME).is_some()
        || claim["spec"].get("storageClassName").is_some_and(|name| !name.is_null());
    if !has_class
        && let Some(name) = default_of(core, "storage.k8s.io", "storageclasses", STORAGE_MARKS).await?
    {
        claim["spec"]["storageClassName"] = name;
    }
    Ok(())
}

/// The same for an ingress.
pub(super) async fn ingress(core: &Core, ingress: &mut Value) -> Result<()> {
    const OLD_NAME: &str = "kubernetes.io/ingress.class";
    let has_class = ingress["metadata"]["annotations"].get(OLD_NAME).is_some()
        || ingress["spec"].get("ingressClassName").is_some_and(|name| !name.is_null());
    if !has_class
        && let Some(name) = default_of(core, "networking.k8s.io", "ingressclasses", INGRESS_MARKS).await?
    {
        ingress["spec"]["ingressClassName"] = name;
    }
    Ok(())
}
