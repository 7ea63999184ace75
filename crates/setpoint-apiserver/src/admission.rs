//! What may be written at all, before the object's own rules are looked at.

use crate::handlers::get::read;
use crate::object;
use crate::resource::{Registry, Resource};
use crate::server::Core;
use crate::status::{GroupResource, Result, Status};

/// Namespaces that the server itself relies on.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// A new object needs a namespace that exists and is not on its way out.
pub(crate) async fn namespace_accepts(
    core: &Core,
    resource: &Resource,
    namespace: Option<&str>,
    name: &str,
) -> Result<()> {
    let Some(namespace) = namespace else { return Ok(()) };
    let namespaces = Registry::built_in().expect("", "v1", "namespaces");
    let Some(record) = read(core, &namespaces.key(None, namespace)).await? else {
        return Err(Status::not_found(namespaces.group_resource(), namespace));
    };
    let object = object::decode(&record.value, record.revision);
    if object::is_being_deleted(&object) {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        return Err(Status::forbidden(resource.group_resource(), name, &why)
            .caused_by_terminating_namespace(namespace));
    }
    Ok(())
}

/// Some namespaces cannot be deleted.
pub(crate) fn may_delete(resource: &Resource, name: &str) -> Result<()> {
    if (resource.group(), resource.plural()) == ("", "namespaces") && IMMORTAL.contains(&name) {
        let namespaces = GroupResource { group: "", resource: "namespaces" };
        return Err(Status::forbidden(namespaces, name, "this namespace may not be deleted"));
    }
    Ok(())
}
