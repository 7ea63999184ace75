//! PATCH of an object or of a part of it.

use http::{Response, StatusCode};
use serde_json::Value;

use super::update::{self, Owners, Ownership};
use crate::answer::Answer;
use crate::convert;
use crate::field_error::FieldError;
use crate::kinds;
use crate::managed_fields::{self, Apply, Target};
use crate::object;
use crate::options::{FieldValidation, WriteOptions};
use crate::patch::{self, PatchType, Patched};
use crate::request::{Draft, ResourceRequest};
use crate::response::Body;
use crate::server::Core;
use crate::status::{Result, Status};
use crate::strategy::Part;

pub(crate) async fn handle(core: &Core, request: &ResourceRequest, part: Part) -> Result<Response<Body>> {
    let kind = PatchType::of(request)?;
    let options = WriteOptions::parse_patch(&request.query, kind)?;
    if kind == PatchType::Apply {
        return apply(core, request, part, &options).await;
    }
    let mut warnings = Vec::new();
    // Only a patch that names the owners can look at them, or change them.
    let is_merged = matches!(kind, PatchType::Merge | PatchType::Strategic);
    let names_owners = || memchr::memmem::find(&request.body, b"managedFields").is_some();
    let escapes = || request.body.contains(&b'\\');
    let owners = if is_merged && !names_owners() && !escapes() { Owners::Hidden } else { Owners::Shown };
    let how = (Ownership::Tracked, owners);
    let payload = update::change_as(core, request, part, &options, how, |old: &Value| {
        let draft = || patch::apply(kind, request.resource.ty(), old, &request.body).map(Draft::from);
        let (expected, validation) = (|| request.expected(), options.field_validation);
        let mut input = match draft()?.finish_good(expected(), validation) {
            Some(input) => input,
            None => draft()?.finish(expected(), validation)?,
        };
        request.set_namespace(&mut input.object)?;
        update::check_name(request, &input.object)?;
        warnings = input.warnings;
        Ok(input.object)
    })
    .await?;
    let payload = convert::webhook::payload(core, &request.resource, payload).await?;
    let mut answer = Answer::ok(payload);
    answer.warnings = warnings;
    answer.respond(request)
}

/// Server-side apply. What is not there is created.
async fn apply(
    core: &Core,
    request: &ResourceRequest,
    part: Part,
    options: &WriteOptions,
) -> Result<Response<Body>> {
    let (applied, warnings) = patch::decode_applied(&request.body, options.field_validation)?;
    let make = |old: Option<&Value>| match old {
        Some(old) => merge(core, request, options, old, &applied),
        None => new_applied(core, request, options, &applied),
    };
    let (code, payload) = if part == Part::Main {
        update::create_or_change(core, request, options, Ownership::Given, make).await?
    } else {
        let modify = |old: &Value| make(Some(old));
        (StatusCode::OK, update::change(core, request, part, options, Ownership::Given, modify).await?)
    };
    let payload = convert::webhook::payload(core, &request.resource, payload).await?;
    let mut answer = Answer::new(code, payload);
    answer.warnings = warnings;
    answer.respond(request)
}

/// The object with what is applied to it, and with its owners.
fn merge(
    core: &Core,
    request: &ResourceRequest,
    options: &WriteOptions,
    live: &Value,
    applied: &Value,
) -> Result<Value> {
    let now = update::now(core);
    let wish = Apply { manager: &request.manager(options), force: options.force, now: &now };
    let value = managed_fields::apply(Target::of(core, request), live, applied, wish)?;
    let patched = Patched::applied(live, value)?;
    // What the kind does not have was refused already, and what was there may have such.
    let mut object = Draft::from(patched).finish(request.expected(), FieldValidation::Ignore)?.object;
    request.set_namespace(&mut object)?;
    update::check_name(request, &object)?;
    check_uid(request, live, &object)?;
    kinds::default(&request.resource, &mut object);
    Ok(object)
}

/// The uid of what is applied is no precondition, as in other writes, but a field that may not change.
fn check_uid(request: &ResourceRequest, live: &Value, object: &Value) -> Result<()> {
    let uid = |object: &Value| object::text(object, &["metadata", "uid"]).unwrap_or_default().to_owned();
    if uid(live).is_empty() || uid(object) == uid(live) {
        return Ok(());
    }
    let error = FieldError::invalid("metadata.uid", uid(object), "field is immutable");
    Err(Status::invalid(request.resource.group_kind(), request.name(), &[error]))
}

/// The new object that is applied where there is none.
fn new_applied(
    core: &Core,
    request: &ResourceRequest,
    options: &WriteOptions,
    applied: &Value,
) -> Result<Value> {
    let object = merge(core, request, options, &Target::of(core, request).empty(), applied)?;
    if let Some(uid) = object::text(&object, &["metadata", "uid"]).filter(|uid| !uid.is_empty()) {
        let why = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        return Err(Status::conflict(request.resource.group_resource(), request.name(), &why));
    }
    Ok(object)
}
