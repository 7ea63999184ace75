//! Field management: who owns which field of an object, and server-side apply, which is made of it.
//!
//! The semantics are those of structured-merge-diff as kube-apiserver uses it. Every write goes through [`update`] or
//! [`apply`]; both work on the defaulted object, before the server sets what is its own to set.
//!
//! ```text
//! element → field_set            paths, and sets of them (FieldsV1)
//! schema → items                 what is one value, what is merged, by which keys
//! validate, to_set, compare,
//! merge, remove                  what can be done with typed values
//! managed                        metadata.managedFields
//! target → owners                who owns what after a write
//! last_applied, scale            client-side apply's annotation; /scale
//! ```

mod compare;
mod element;
mod field_set;
mod items;
mod last_applied;
mod managed;
mod merge;
mod owners;
mod remove;
mod scale;
mod schema;
mod target;
mod to_set;
mod validate;

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::object::{self, metadata_mut};
use crate::status::{Result, Status};
use managed::Managed;
use owners::Conflict;
use validate::Duplicates;

pub(crate) use scale::{ScaleOwners, ScalePath};
pub(crate) use target::Target;

/// Who owns the fields of an object that somebody applies to for the first time, if nobody was noted.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Notes in `new` who owns its fields after an update from `live`. It is a create if `live` has no uid.
pub(crate) fn update(target: Target<'_>, live: &Value, new: &mut Value, manager: &str, now: &str) {
    let given = metadata_mut(new).remove("managedFields");
    let kept = live["metadata"].get("managedFields");
    let is_create = object::text(live, &["metadata", "uid"]).unwrap_or_default().is_empty();
    let mut managed = managers(target, given.as_ref(), kept);
    if managed.is_empty() && !is_create {
        // Ownership that was reset is not tracked again before somebody applies.
        return;
    }
    let schema = target.schema();
    let is_new_typed = validate::validate(schema, new, Duplicates::Allowed).is_ok();
    let is_live_typed = || validate::validate_beside(schema, live, new, Duplicates::Allowed).is_ok();
    if is_new_typed && (is_create || is_live_typed()) {
        target.update(live, new, &mut managed, manager, now);
        managed.cap();
        set(new, managed.encode());
    } else {
        // An object that cannot be tracked is written all the same.
        set(new, kept.cloned());
    }
}

/// The managers that an update begins with: those of the request, unless it has none or cannot have any.
fn managers(target: Target<'_>, given: Option<&Value>, kept: Option<&Value>) -> Managed {
    let kept = || Managed::decode(kept).unwrap_or_default();
    if !target.subresource.is_empty() {
        return kept();
    }
    if given.is_some_and(is_reset) {
        return Managed::default();
    }
    match given.map(|given| Managed::decode(Some(given))) {
        Some(Ok(managed)) if !managed.is_empty() => managed,
        _ => kept(),
    }
}

/// `[]` and `[{}]` give up all ownership.
fn is_reset(entries: &Value) -> bool {
    match entries.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => only.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// Decoding drops an empty list; this one means something.
pub(crate) fn note_reset(object: &Value) -> Option<Value> {
    let entries = object.get("metadata")?.get("managedFields")?;
    entries.as_array().is_some_and(Vec::is_empty).then(|| json!([{}]))
}

/// Sets `metadata.managedFields`.
pub(crate) fn set(object: &mut Value, entries: Option<Value>) {
    match entries {
        Some(entries) => metadata_mut(object).insert("managedFields".to_owned(), entries),
        None => metadata_mut(object).remove("managedFields"),
    };
}

/// Takes back new times if nothing else is new, so that a write that changes nothing stays one.
pub(crate) fn keep_times(old: &Value, new: &mut Value) {
    let (Some(before), Some(after)) =
        (old["metadata"]["managedFields"].as_array(), new["metadata"]["managedFields"].as_array())
    else {
        return;
    };
    let is_same_but_time = |(a, b): (&Value, &Value)| match (a.as_object(), b.as_object()) {
        (Some(a), Some(b)) => {
            let but_time = |(name, _): &(&String, &Value)| *name != "time";
            a.iter().filter(but_time).eq(b.iter().filter(but_time))
        }
        _ => false,
    };
    if before == after || before.len() != after.len() || !before.iter().zip(after).all(is_same_but_time) {
        return;
    }
    let entries = metadata_mut(new).insert("managedFields".to_owned(), before.clone().into());
    let version =
        metadata_mut(new).insert("resourceVersion".into(), old["metadata"]["resourceVersion"].clone());
    if old != new {
        set(new, entries);
    }
    match version {
        Some(version) => metadata_mut(new).insert("resourceVersion".into(), version),
        None => metadata_mut(new).remove("resourceVersion"),
    };
}

/// A wish to apply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Apply<'a> {
    pub(crate) manager: &'a str,
    /// Take fields from other managers.
    pub(crate) force: bool,
    pub(crate) now: &'a str,
}

/// Merges the object `applied` into `live` and notes who owns what. The outcome has not been held against its kind yet.
pub(crate) fn apply(target: Target<'_>, live: &Value, applied: &Value, wish: Apply<'_>) -> Result<Value> {
    check_kind(target, applied)?;
    let mut managed = Managed::decode(live["metadata"].get("managedFields"))
        .map_err(|why| internal(format!("failed to decode managed fields: {why}")))?;
    if managed.is_empty() {
        target.update(&target.empty(), live, &mut managed, BEFORE_FIRST_APPLY, wish.now);
    }
    if applied["metadata"].get("managedFields").is_some_and(Value::is_array) {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    let name = describe(applied);
    validate::validate(target.schema(), applied, Duplicates::Refused)
        .map_err(|why| internal(format!("failed to create typed patch object ({name}): {why}")))?;
    validate::validate(target.schema(), live, Duplicates::Allowed)
        .map_err(|why| internal(format!("failed to create typed live object ({}): {why}", describe(live))))?;
    let (new, managed) = last_applied::apply(target, live, applied, managed, wish)
        .map_err(|conflicts| conflict(&conflicts))?;
    let mut new = new.unwrap_or_else(|| live.clone());
    if wish.manager == last_applied::MANAGER {
        last_applied::refresh(&mut new, applied);
    }
    set(&mut new, managed.encode());
    Ok(new)
}

fn check_kind(target: Target<'_>, applied: &Value) -> Result<()> {
    if applied["apiVersion"] == target.api_version && applied["kind"] == target.kind {
        return Ok(());
    }
    Err(Status::bad_request(format!("invalid object type: {}", kind_text(applied))))
}

/// `apps/v1, Kind=Deployment`.
fn kind_text(object: &Value) -> String {
    let version = object::text(object, &["apiVersion"]).unwrap_or_default();
    let slash = if version.contains('/') { "" } else { "/" };
    format!("{slash}{version}, Kind={}", object::text(object, &["kind"]).unwrap_or_default())
}

/// An object in error messages: `default/web; apps/v1, Kind=Deployment`.
fn describe(object: &Value) -> String {
    let namespace = object::text(object, &["metadata", "namespace"]).unwrap_or_default();
    format!("{namespace}/{}; {}", object::name(object), kind_text(object))
}

/// 500, which is what kube-apiserver makes of all that it has no better word for.
fn internal(message: String) -> Status {
    Status::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
}

/// 409 with one cause for each field.
fn conflict(conflicts: &[Conflict]) -> Status {
    let path = |conflict: &Conflict| element::path_text(&conflict.path);
    let message = match conflicts {
        [only] => format!("Apply failed with 1 conflict: conflict with {}: {}", only.manager, path(only)),
        many => {
            let mut lines = Vec::new();
            for (at, conflict) in many.iter().enumerate() {
                if at == 0 || many[at - 1].manager != conflict.manager {
                    lines.push(format!("conflicts with {}:", conflict.manager));
                }
                lines.push(format!("- {}", path(conflict)));
            }
            format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n"))
        }
    };
    let causes = conflicts.iter().map(|found| (format!("conflict with {}", found.manager), path(found)));
    Status::apply_conflict(message, causes)
}
