//! What the server itself writes into an object, and which parts of an object a request may change.

pub(crate) mod subresources;
mod takes;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value};
use setpoint_env::Env;
use setpoint_kinds::{Generation, NameStyle, Type};

use crate::field_error::FieldError;
use crate::kinds;
use crate::metadata;
use crate::metadata::names::NameRule;
use crate::object::{self, metadata_mut};
use crate::resource::Resource;
use crate::status::{GroupResource, Result, Status};

/// How many errors of an object are told.
const MOST_ERRORS: usize = 1000;
/// How much text of them: an error quotes the value that it is about.
const MOST_TEXT: usize = 1 << 20;

/// Which part of an object a request writes. What each part takes is in the table of [`subresources`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything, for changes that the server itself makes.
    Whole,
    /// The object itself; not its status, if that has a path of its own.
    Main,
    /// `/status`.
    Status,
    /// `/scale`: the replicas.
    Scale,
    /// `/approval` of a certificate signing request: the conditions of its status.
    Approval,
    /// `/ephemeralcontainers` of a pod.
    EphemeralContainers,
    /// `/resize` of a pod: resources of its containers.
    Resize,
    /// `/finalize` of a namespace: its spec, which is a list of finalizers.
    Finalize,
}

/// A moment as Kubernetes writes it: whole seconds, UTC.
pub(crate) fn timestamp(time: Timestamp) -> Value {
    Value::String(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Fills in what the server decides about a new object. Its name is settled by now.
pub(crate) fn prepare_create(resource: &Resource, object: &mut Value, env: &Env) {
    let metadata = metadata_mut(object);
    for ignored in ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        metadata.remove(ignored);
    }
    metadata.insert("uid".into(), env.uuid().into());
    metadata.insert("creationTimestamp".into(), timestamp(env.now()));
    match resource.behavior().generation {
        Generation::Absent => metadata.remove("generation"),
        _ => metadata.insert("generation".into(), 1.into()),
    };
    kinds::default(resource, object);
    if resource.behavior().resets_status {
        reset_status(resource, object);
    }
    kinds::prepare_create(resource, object, env);
}

fn reset_status(resource: &Resource, object: &mut Value) {
    let Some(object) = object.as_object_mut() else { return };
    // Go writes an empty status where its type says so, as `status: {}`.
    match resource.ty().and_then(|ty| ty.field("status")) {
        Some(field) if !field.omit_zero && !field.pointer => {
            let zero = field.ty.struct_type().map_or_else(|| Value::Object(Map::new()), Type::zero);
            object.insert("status".into(), zero);
        }
        _ => drop(object.remove("status")),
    }
}

/// Lays what the request may change over what it may not.
pub(crate) fn prepare_update(resource: &Resource, part: Part, old: &Value, new: &mut Value, env: &Env) {
    takes::take(resource, part, old, new);
    kinds::default(resource, new);
    kinds::prepare_update(resource, part, old, new, env);
    let metadata = metadata_mut(new);
    let old_metadata = &old["metadata"];
    metadata.remove("selfLink");
    // These are the server's: absent in the request means unchanged, and a change is refused below.
    for field in
        ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "namespace", "name"]
    {
        if metadata.get(field).is_none_or(Value::is_null)
            && let Some(value) = old_metadata.get(field)
        {
            metadata.insert(field.into(), value.clone());
        }
    }
    match old_metadata.get("generation") {
        Some(generation) => metadata.insert("generation".into(), generation.clone()),
        None => metadata.remove("generation"),
    };
    if resource.writes(part).counts && resource.behavior().generation.counts(old, new) {
        bump_generation(new);
    }
}

/// Counts a change of intent, where the kind counts them.
pub(crate) fn bump_generation(object: &mut Value) {
    let metadata = metadata_mut(object);
    if let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
        metadata.insert("generation".into(), generation.saturating_add(1).into());
    }
}

fn name_rule(style: NameStyle) -> NameRule {
    match style {
        NameStyle::DnsLabel => NameRule::Label,
        NameStyle::IpAddress => NameRule::IpAddress,
        // The names of signers and of API services need more than the rule for a path; that is validation by kind.
        NameStyle::PathSegment | NameStyle::ClusterTrustBundle | NameStyle::ApiService => {
            NameRule::PathSegment
        }
        _ => NameRule::Subdomain,
    }
}

/// Refuses what breaks the rules. `old` is the object before an update of `part`.
pub(crate) fn validate(resource: &Resource, part: Part, object: &Value, old: Option<&Value>) -> Result<()> {
    if let Some(error) = kinds::wrong_kind(resource, object) {
        return Err(Status::invalid(resource.group_kind(), object::name(object), &[error]));
    }
    let new_metadata = &object["metadata"];
    // The name of what is stored was checked when it was created, perhaps by older rules.
    let rule = if old.is_some() { NameRule::PathSegment } else { name_rule(resource.behavior().name) };
    let mut errors = metadata::validate_create(new_metadata, resource.is_namespaced(), rule);
    match old {
        Some(old) => errors.extend(metadata::validate_update(new_metadata, &old["metadata"])),
        None if rule == NameRule::PathSegment => errors.extend(metadata::validate_name_length(new_metadata)),
        None => {}
    }
    let more = kinds::validate(resource, part, object, old, &errors);
    errors.extend(more);
    if errors.is_empty() {
        return Ok(());
    }
    // A hostile object can have a hundred thousand errors: each is told once, and not all of them.
    let (mut seen, mut length) = (BTreeSet::new(), 0);
    let distinct = errors.into_iter().filter(|error| {
        let is_told = length < MOST_TEXT;
        let text = if is_told { error.to_string() } else { String::new() };
        length += text.len();
        is_told && seen.insert(text)
    });
    let distinct: Vec<FieldError> = distinct.take(MOST_ERRORS).collect();
    // Events of both APIs are those of the core one inside.
    let group = if resource.plural() == "events" { "" } else { resource.group() };
    let kind = GroupResource { group, resource: resource.kind() };
    Err(Status::invalid(kind, object::name(object), &distinct))
}

/// Whether nothing holds a deleted object back any more.
pub(crate) fn may_vanish(object: &Value) -> bool {
    let metadata = &object["metadata"];
    let finalizers = metadata["finalizers"].as_array().is_none_or(Vec::is_empty);
    let grace = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0;
    let spec_finalizers =
        object["kind"] != "Namespace" || object["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty);
    object::is_being_deleted(object) && finalizers && grace && spec_finalizers
}
