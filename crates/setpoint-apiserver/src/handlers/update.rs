//! PUT of an object or of a part of it, and the way that every change of an object takes.

use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::Value;

use super::get::read;
use super::{create, scale};
use crate::admission::{self, Attributes, Charge, Operation};
use crate::answer::{Answer, Payload};
use crate::bounds;
use crate::contention::Attempts;
use crate::convert;
use crate::field_error::FieldError;
use crate::kinds::{self, allocation};
use crate::managed_fields::{self, Target};
use crate::object::{self, metadata_mut};
use crate::options::WriteOptions;
use crate::rbac;
use crate::request::ResourceRequest;
use crate::resource::Resource;
use crate::response::Body;
use crate::server::Core;
use crate::status::{Result, Status};
use crate::storage::{Action, Change, Expect, Key, Record};
use crate::strategy::{self, Part};

pub(crate) async fn handle(core: &Core, request: &ResourceRequest, part: Part) -> Result<Response<Body>> {
    let options = WriteOptions::parse(&request.query, "UpdateOptions")?;
    let input = request.decode(request.expected(), options.field_validation)?;
    let object = input.object;
    check_name(request, &object)?;
    let resource = &*request.resource;
    let wanted = |old: Option<&Value>| {
        if old.is_some() && version_of(&object).is_none() && !resource.behavior().unconditional_update {
            let error = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
            return Err(Status::invalid(resource.group_resource(), request.name(), &[error]));
        }
        if old.is_none() {
            check_uid(resource, request.name(), "", uid_of(&object))?;
        }
        Ok(object.clone())
    };
    let (code, payload) = if part == Part::Main && resource.behavior().create_on_update {
        create_or_change(core, request, &options, Ownership::Tracked, wanted).await?
    } else {
        let modify = |old: &Value| wanted(Some(old));
        (StatusCode::OK, change(core, request, part, &options, Ownership::Tracked, modify).await?)
    };
    let payload = convert::webhook::payload(core, resource, payload).await?;
    let mut answer = Answer::new(code, payload);
    answer.warnings = input.warnings;
    answer.respond(request)
}

pub(crate) fn check_name(request: &ResourceRequest, object: &Value) -> Result<()> {
    match object::name(object) {
        "" => Err(Status::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            request.name()
        ))),
        name if name != request.name() => Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            request.name()
        ))),
        _ => Ok(()),
    }
}

/// The resourceVersion that a write depends on.
fn version_of(object: &Value) -> Option<&str> {
    object::text(object, &["metadata", "resourceVersion"]).filter(|version| !matches!(*version, "" | "0"))
}

/// How it is decided whose the fields of an object are after a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ownership {
    /// What changes belongs to the manager that changes it.
    Tracked,
    /// The new state says it already.
    Given,
    /// The server itself writes, and owns nothing.
    Kept,
}

impl Ownership {
    /// Puts `managedFields` into the new state, which is defaulted for it.
    fn settle(
        self,
        core: &Core,
        request: &ResourceRequest,
        options: &WriteOptions,
        old: &Value,
        new: &mut Value,
    ) {
        match self {
            Ownership::Tracked => {
                kinds::default(&request.resource, new);
                let manager = request.manager(options);
                managed_fields::update(Target::of(core, request), old, new, &manager, &now(core));
            }
            Ownership::Given => {}
            Ownership::Kept => managed_fields::set(new, old["metadata"].get("managedFields").cloned()),
        }
    }
}

/// The time that managers are noted with.
pub(super) fn now(core: &Core) -> String {
    strategy::timestamp(core.env.now()).as_str().unwrap_or_default().to_owned()
}

/// Creates the object that the request names, or changes it if it is there: `make` gets what is there. If the object
/// appears or vanishes meanwhile, it is the other way round.
pub(super) async fn create_or_change(
    core: &Core,
    request: &ResourceRequest,
    options: &WriteOptions,
    ownership: Ownership,
    mut make: impl FnMut(Option<&Value>) -> Result<Value>,
) -> Result<(StatusCode, Payload)> {
    let key = request.resource.key(request.namespace.as_deref(), request.name());
    let mut exists = read(core, &key).await?.is_some();
    loop {
        let (code, outcome) = if exists {
            let modify = |old: &Value| make(Some(old));
            (StatusCode::OK, change(core, request, Part::Main, options, ownership, modify).await)
        } else {
            let object = make(None)?;
            (StatusCode::CREATED, create::create(core, request, object, options, ownership).await)
        };
        let (resource, name) = (request.resource.group_resource(), request.name());
        let overtaken =
            if exists { Status::not_found(resource, name) } else { Status::already_exists(resource, name) };
        match outcome {
            // What is being deleted says so before.
            Err(status)
                if status.reason == overtaken.reason && status.message.ends_with(&overtaken.message) => {}
            outcome => return outcome.map(|payload| (code, payload)),
        }
        request.deadline.check(&core.env)?;
        exists = read(core, &key).await?.is_some();
    }
}

/// Whether who makes the new state of an object is shown who owns its fields. That is often half of the object, and need not
/// be copied and compared for who neither looks at it nor changes it: what is left out stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owners {
    Shown,
    Hidden,
}

/// Changes the object that the request names: reads it, lets `modify` make the wanted state from it (in the
/// served version), and writes that if it is allowed. If somebody else was faster, it is made again from the
/// newer state, until the request's time is up; one that names the resourceVersion of the older is refused then.
pub(super) async fn change(
    core: &Core,
    request: &ResourceRequest,
    part: Part,
    options: &WriteOptions,
    ownership: Ownership,
    modify: impl FnMut(&Value) -> Result<Value>,
) -> Result<Payload> {
    change_as(core, request, part, options, (ownership, Owners::Shown), modify).await
}

/// The same, where `modify` may be shown no owners.
pub(super) async fn change_as(
    core: &Core,
    request: &ResourceRequest,
    part: Part,
    options: &WriteOptions,
    (ownership, owners): (Ownership, Owners),
    mut modify: impl FnMut(&Value) -> Result<Value>,
) -> Result<Payload> {
    let resource = &*request.resource;
    let name = request.name();
    let key = resource.key(request.namespace.as_deref(), name);
    let mut attempts = Attempts::of(core, key.clone(), request);
    let mut current = attempts.first().await?;
    loop {
        let Some(record) = current else { return Err(Status::not_found(resource.group_resource(), name)) };
        let stored = object::decode(&record.value, record.revision);
        let mut old = convert::webhook::to_served(core, resource, stored).await?;
        let hidden = match owners {
            Owners::Hidden => metadata_mut(&mut old).remove("managedFields"),
            Owners::Shown => None,
        };
        let mut new = modify(&old)?;
        if hidden.is_some() {
            managed_fields::set(&mut old, hidden);
        }
        check_preconditions(resource, &old, &new)?;
        ownership.settle(core, request, options, &old, &mut new);
        let attributes = Attributes::write(request, Operation::Update, Some(&old), options);
        // What the server itself changes, nobody is asked about.
        let attributes = (part != Part::Whole).then_some(&attributes);
        if let Some(attributes) = attributes {
            new = mutate(core, attributes, new).await?;
        }
        let entries = metadata_mut(&mut new).remove("managedFields");
        strategy::prepare_update(resource, part, &old, &mut new, &core.env);
        rbac::check_update(core, request, &old, &new).await?;
        managed_fields::set(&mut new, entries);
        managed_fields::keep_times(&old, &mut new);
        let written = if part == Part::Main && kinds::has_allocations(resource) {
            write_allocated(core, request, attributes, &record, new, &old, options).await?
        } else {
            strategy::validate(resource, part, &new, Some(&old))?;
            let charge = validate(core, attributes, &new).await?;
            settled(core, charge, store(core, resource, &record, key.clone(), new, options).await).await?
        };
        match written {
            Ok(payload) => return Ok(payload),
            Err(_) => current = attempts.next().await?,
        }
    }
}

/// The same for a kind that takes addresses or gives them up when it changes.
async fn write_allocated(
    core: &Core,
    request: &ResourceRequest,
    attributes: Option<&Attributes<'_>>,
    record: &Arc<Record>,
    mut new: Value,
    old: &Value,
    options: &WriteOptions,
) -> Result<Result<Payload, Option<Arc<Record>>>> {
    let resource = &*request.resource;
    let taken = allocation::allocate(core, resource, &mut new, Some(old), options.dry_run).await?;
    let key = Key { collection: Arc::clone(resource.collection()), path: record.path.clone() };
    let checked = match strategy::validate(resource, Part::Main, &new, Some(old)) {
        Ok(()) => validate(core, attributes, &new).await,
        Err(status) => Err(status),
    };
    let outcome = match checked {
        Ok(charge) => settled(core, charge, store(core, resource, record, key, new, options).await).await,
        Err(status) => Err(status),
    };
    match &outcome {
        Ok(Ok(_)) => taken.commit(core).await,
        _ => taken.revert(core).await,
    }
    outcome
}

/// Lets webhooks change the new state; of a Scale, only what a Scale can say.
async fn mutate(core: &Core, attributes: &Attributes<'_>, new: Value) -> Result<Value> {
    if attributes.subresource() != "scale" {
        return admission::mutate(core, attributes, new).await;
    }
    let resource = &*attributes.request.resource;
    let old = attributes.old.map(|old| scale::scale_before(resource, old));
    let attributes = Attributes { old: old.as_ref(), ..attributes.clone() };
    let wanted = admission::admit(core, &attributes, scale::scale_of(resource, &new)?).await?;
    scale::scaled(resource, new, &wanted)
}

/// Gives back what was charged for a write that is not stored.
async fn settled<T, E>(core: &Core, charge: Charge, outcome: Result<Result<T, E>>) -> Result<Result<T, E>> {
    if !matches!(outcome, Ok(Ok(_))) {
        charge.give_back(core).await;
    }
    outcome
}

/// Asks whether the new state may be written. A Scale was asked about when it was mutated.
async fn validate(core: &Core, attributes: Option<&Attributes<'_>>, new: &Value) -> Result<Charge> {
    match attributes {
        Some(attributes) if attributes.subresource() != "scale" => {
            admission::validate(core, attributes, new).await
        }
        _ => Ok(Charge::default()),
    }
}

/// A wanted state may name the version and the uid that it is made for.
fn check_preconditions(resource: &Resource, old: &Value, new: &Value) -> Result<()> {
    let name = object::name(old);
    check_uid(resource, name, uid_of(old), uid_of(new))?;
    match version_of(new) {
        Some(version) if Some(version) != version_of(old) => {
            Err(Status::modified(resource.group_resource(), name))
        }
        _ => Ok(()),
    }
}

fn uid_of(object: &Value) -> &str {
    object::text(object, &["metadata", "uid"]).unwrap_or_default()
}

/// Whoever names the uid of an object does not mean another one, nor a new one.
fn check_uid(resource: &Resource, name: &str, found: &str, named: &str) -> Result<()> {
    if named.is_empty() || named == found {
        return Ok(());
    }
    let why = format!("Precondition failed: UID in precondition: {named}, UID in object meta: {found}");
    Err(Status::conflict(resource.group_resource(), name, &why))
}

/// Writes the new state, or says what is there instead of the record it was made from.
pub(super) async fn store(
    core: &Core,
    resource: &Resource,
    record: &Arc<Record>,
    key: Key,
    new: Value,
    options: &WriteOptions,
) -> Result<Result<Payload, Option<Arc<Record>>>> {
    let vanishes = strategy::may_vanish(&new);
    let gone = (vanishes && kinds::has_allocations(resource)).then(|| new.clone());
    let mut stored = convert::webhook::to_stored(core, resource, new).await?;
    metadata_mut(&mut stored).remove("resourceVersion");
    let value = object::encode(&stored);
    bounds::check_stored(&value, Some(&record.value))?;
    if value == record.value && !vanishes {
        // Nothing changes: no new version, and nobody is told.
        return Ok(Ok(Payload::Stored(Arc::clone(record))));
    }
    if options.dry_run {
        object::set_resource_version(&mut stored, record.revision);
        let served = convert::webhook::to_served(core, resource, stored).await?;
        return Ok(Ok(Payload::Object(served)));
    }
    let action = match vanishes {
        true => Action::Delete,
        false => Action::Put { value: value.clone(), ttl: resource.behavior().ttl },
    };
    let change = Change { key, expect: Expect::Revision(record.revision), action };
    Ok(match core.storage.commit(change).await {
        Ok(record) => {
            if let Some(gone) = gone {
                kinds::release(core, resource, &gone).await;
            }
            if vanishes {
                // Watchers see the state before; whoever removed the last finalizer sees what they made of it.
                let last = Record::new(record.path.clone(), record.revision, value);
                return Ok(Ok(Payload::Stored(Arc::new(last))));
            }
            Ok(Payload::Stored(record))
        }
        Err(error) => Err(error.into_current()?),
    })
}
