//! What may be written at all, before the object's own rules are looked at.

mod attributes;
mod certificates;
mod conditions;
mod matching;
mod plugins;
mod policies;
mod registered;
mod review;
mod webhooks;

use memchr::memmem;
use serde_json::Value;

use crate::bootstrap;
use crate::handlers::get::read;
use crate::handlers::update;
use crate::kinds;
use crate::object;
use crate::options::FieldValidation;
use crate::patch::Patched;
use crate::request::{Draft, Expected, Form, ResourceRequest};
use crate::resource::{Registry, Resource};
use crate::server::Core;
use crate::status::{GroupResource, Result, Status};
pub(crate) use attributes::{Attributes, Operation};
pub use plugins::{AdmissionPlugins, PluginError};
pub(crate) use plugins::{Charge, Plugin, Plugins};
pub(crate) use policies::Policies;
use webhooks::Mutation;
pub(crate) use webhooks::Webhooks;

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
    let (plugins, is_kept) = (&core.plugins, core.plugins.has(Plugin::NamespaceLifecycle));
    let namespaces = Registry::built_in().expect("", "v1", "namespaces");
    let mut found = read(core, &namespaces.key(None, namespace)).await?;
    if found.is_none() && plugins.has(Plugin::NamespaceAutoProvision) {
        bootstrap::namespace(core, namespace).await?;
        found = read(core, &namespaces.key(None, namespace)).await?;
    }
    let Some(record) = found else {
        if is_kept || plugins.has(Plugin::NamespaceExists) {
            return Err(Status::not_found(namespaces.group_resource(), namespace));
        }
        return Ok(());
    };
    // Nearly every namespace is here to stay, and its text says so without being read.
    let is_marked = is_kept && memmem::find(&record.value, b"\"deletionTimestamp\"").is_some();
    if is_marked && object::is_being_deleted(&object::decode(&record.value, record.revision)) {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        return Err(Status::forbidden(resource.group_resource(), name, &why)
            .caused_by_terminating_namespace(namespace));
    }
    Ok(())
}

/// Some namespaces cannot be deleted.
pub(crate) fn may_delete(core: &Core, resource: &Resource, name: &str) -> Result<()> {
    if core.plugins.has(Plugin::NamespaceLifecycle)
        && (resource.group(), resource.plural()) == ("", "namespaces")
        && IMMORTAL.contains(&name)
    {
        let namespaces = GroupResource { group: "", resource: "namespaces" };
        return Err(Status::forbidden(namespaces, name, "this namespace may not be deleted"));
    }
    Ok(())
}

/// Lets the server's own plugins, then webhooks change an object that is about to be written and has its defaults. What
/// comes out has the form of its kind, and is where the request wants it to be.
pub(crate) async fn mutate(core: &Core, attributes: &Attributes<'_>, mut object: Value) -> Result<Value> {
    let request = attributes.request;
    plugins::mutate(core, attributes, &mut object).await?;
    let webhooks = webhooks::mutating(core, &request.resource).await?;
    if webhooks.is_empty() {
        return Ok(object);
    }
    // Webhooks see what the server fills in.
    kinds::default(&request.resource, &mut object);
    let mut mutation = Mutation::new(&webhooks, |object| {
        let mut object = formed(attributes.old, object, request.expected())?;
        kinds::default(&request.resource, &mut object);
        Ok(object)
    });
    let mut object = Some(object);
    if !mutation.round(core, attributes, &mut object).await? {
        return Ok(object.unwrap_or_default());
    }
    if let Some(object) = &mut object {
        // What webhooks have put in is the plugins' business, too.
        plugins::mutate(core, attributes, object).await?;
    }
    mutation.round(core, attributes, &mut object).await?;
    let mut object = object.unwrap_or_default();
    request.set_namespace(&mut object)?;
    if attributes.operation == Operation::Create && request.name.is_some() {
        // A webhook may choose the name of a new object, but not against the path. On an update validation sees to it.
        update::check_name(request, &object)?;
    }
    Ok(object)
}

/// Lets webhooks change something that is not stored itself: a Scale, a Binding, an Eviction, a TokenRequest. What comes
/// out is of the same kind.
pub(crate) async fn mutate_virtual(core: &Core, attributes: &Attributes<'_>, object: Value) -> Result<Value> {
    let ResourceRequest { resource, namespace, .. } = attributes.request;
    if attributes.operation == Operation::Create {
        namespace_accepts(core, resource, namespace.as_deref(), attributes.name(Some(&object))).await?;
    }
    let webhooks = webhooks::mutating(core, resource).await?;
    if webhooks.is_empty() {
        return Ok(object);
    }
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let ty = setpoint_kinds::table().type_of_kind(group, version, &kind);
    let mut mutation = Mutation::new(&webhooks, |object| match ty {
        Some(ty) => {
            formed(None, object, Expected { api_version: &api_version, kind: &kind, form: Form::Typed(ty) })
        }
        None => Ok(object),
    });
    let mut object = Some(object);
    if mutation.round(core, attributes, &mut object).await? {
        mutation.round(core, attributes, &mut object).await?;
    }
    Ok(object.unwrap_or_default())
}

/// What a webhook has made of a change of `old`, in the form of its kind.
fn formed(old: Option<&Value>, object: Value, expected: Expected<'_>) -> Result<Value> {
    Ok(Draft::from(Patched::changed(old.unwrap_or(&Value::Null), object)?)
        .finish(expected, FieldValidation::Ignore)?
        .object)
}

/// Asks the server's own plugins, policies and webhooks whether an object may be written as it is now, and charges it to
/// quotas. The caller gives back what was charged if the object is not stored.
pub(crate) async fn validate(core: &Core, attributes: &Attributes<'_>, object: &Value) -> Result<Charge> {
    plugins::validate(core, attributes, object).await?;
    judge(core, attributes, Some(object)).await?;
    let charge = plugins::charge(core, attributes, object).await?;
    if let Err(status) = plugins::deny(core, attributes, Some(object)) {
        charge.give_back(core).await;
        return Err(status);
    }
    Ok(charge)
}

/// Asks policies and webhooks whether an object may be deleted.
pub(crate) async fn delete(core: &Core, attributes: &Attributes<'_>) -> Result<()> {
    let webhooks = webhooks::mutating(core, &attributes.request.resource).await?;
    Mutation::new(&webhooks, Ok).round(core, attributes, &mut None).await?;
    judge(core, attributes, None).await?;
    plugins::deny(core, attributes, None)
}

async fn judge(core: &Core, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<()> {
    policies::validate(core, attributes, object).await?;
    webhooks::validate(core, attributes, object).await
}

/// Mutates and validates something that is not stored itself.
pub(crate) async fn admit(core: &Core, attributes: &Attributes<'_>, object: Value) -> Result<Value> {
    let object = mutate_virtual(core, attributes, object).await?;
    // Quotas count what is stored.
    let _ = validate(core, attributes, &object).await?;
    Ok(object)
}
