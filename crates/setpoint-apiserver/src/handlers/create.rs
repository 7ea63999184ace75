//! POST of a new object.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::Value;
use setpoint_kinds::Verb;

use super::get::read;
use super::update::{Ownership, now};
use crate::admission::{self, Attributes, Operation};
use crate::answer::{Answer, Payload};
use crate::authorize;
use crate::bounds;
use crate::convert;
use crate::definitions::Custom;
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
use crate::storage::{Action, Change, Expect, Record};
use crate::strategy::{self, Part};

/// How often a generated name that is taken is replaced by another.
const NAME_TRIES: usize = 8;

pub(crate) async fn handle(core: &Core, request: &ResourceRequest) -> Result<Response<Body>> {
    let options = WriteOptions::parse(&request.query, "CreateOptions")?;
    let input = request.decode(request.expected(), options.field_validation)?;
    let payload = create(core, request, input.object, &options, Ownership::Tracked).await?;
    let payload = convert::webhook::payload(core, &request.resource, payload).await?;
    let mut answer = Answer::new(StatusCode::CREATED, payload);
    answer.warnings = input.warnings;
    answer.respond(request)
}

/// Creates an object whose body has been read; also what a PUT to a free name does.
pub(super) async fn create(
    core: &Core,
    request: &ResourceRequest,
    mut object: Value,
    options: &WriteOptions,
    ownership: Ownership,
) -> Result<Payload> {
    let resource = &*request.resource;
    if request.verb != Verb::Create {
        // Whoever may change objects may not therefore make new ones.
        authorize::authorize(core, &request.user, &request.attributes(Verb::Create)).await?;
    }
    if resource.definition().is_some_and(Custom::is_terminating) {
        let why = "create not allowed while custom resource definition is terminating";
        return Err(Status::forbidden(resource.group_resource(), object::name(&object), why));
    }
    admission::namespace_accepts(core, resource, request.namespace.as_deref(), object::name(&object)).await?;
    kinds::default(resource, &mut object);
    if ownership == Ownership::Tracked {
        let target = Target::of(core, request);
        managed_fields::update(target, &target.empty(), &mut object, &request.manager(options), &now(core));
    }
    if resource.group() == "admissionregistration.k8s.io"
        && resource.plural().starts_with("mutatingadmission")
    {
        // Whoever relies on it should know.
        request.warn("mutating admission policies are stored, but this server does not act on them");
    }
    let attributes = Attributes::write(request, Operation::Create, None, options);
    object = admission::mutate(core, &attributes, object).await?;
    rbac::check_create(core, request, &object).await?;
    if !object::name(&object).is_empty() {
        return attempt(core, &attributes, object, options).await?.map_err(Taken::into_status);
    }
    let mut tries = 0;
    loop {
        let mut named = object.clone();
        generate_name(core, &mut named);
        match attempt(core, &attributes, named, options).await? {
            Ok(payload) => return Ok(payload),
            Err(_) if tries < NAME_TRIES => tries += 1,
            Err(taken) => return Err(taken.into_status()),
        }
    }
}

/// The name of a new object is taken.
struct Taken<'a> {
    resource: &'a Resource,
    name: String,
    by: Option<Arc<Record>>,
}

impl Taken<'_> {
    fn into_status(self) -> Status {
        let mut status = Status::already_exists(self.resource.group_resource(), &self.name);
        let deleted = self
            .by
            .is_some_and(|record| object::is_being_deleted(&object::decode(&record.value, record.revision)));
        if deleted {
            status.message = format!("object is being deleted: {}", status.message);
        }
        status
    }
}

/// Tries to create the object under the name that it has.
async fn attempt<'a>(
    core: &Core,
    attributes: &Attributes<'a>,
    mut object: Value,
    options: &WriteOptions,
) -> Result<Result<Payload, Taken<'a>>> {
    let resource = &*attributes.request.resource;
    strategy::prepare_create(resource, &mut object, &core.env);
    kinds::identify(resource, &mut object, &attributes.request.user);
    let name = object::name(&object).to_owned();
    let outcome = write(core, attributes, object, options).await?;
    Ok(outcome.map_err(|by| Taken { resource, name, by }))
}

/// Checks and writes the object, or says which record has its name. Services get their addresses on the way.
async fn write(
    core: &Core,
    attributes: &Attributes<'_>,
    mut object: Value,
    options: &WriteOptions,
) -> Result<Result<Payload, Option<Arc<Record>>>> {
    let resource = &*attributes.request.resource;
    if !kinds::has_allocations(resource) {
        strategy::validate(resource, Part::Main, &object, None)?;
        kinds::default(resource, &mut object);
        return store(core, attributes, object, options).await;
    }
    let taken = allocation::allocate(core, resource, &mut object, None, options.dry_run).await?;
    let outcome = match strategy::validate(resource, Part::Main, &object, None) {
        Ok(()) => {
            // What was reset or made on the way has defaults, too.
            kinds::default(resource, &mut object);
            store(core, attributes, object, options).await
        }
        Err(status) => Err(status),
    };
    match &outcome {
        Ok(Ok(_)) => taken.commit(core).await,
        _ => taken.revert(core).await,
    }
    outcome
}

/// Writes the object if it may be, or says which record has its name.
async fn store(
    core: &Core,
    attributes: &Attributes<'_>,
    object: Value,
    options: &WriteOptions,
) -> Result<Result<Payload, Option<Arc<Record>>>> {
    let charge = admission::validate(core, attributes, &object).await?;
    let outcome = put(core, attributes, object, options).await;
    if !matches!(outcome, Ok(Ok(_))) {
        charge.give_back(core).await;
    }
    outcome
}

async fn put(
    core: &Core,
    attributes: &Attributes<'_>,
    object: Value,
    options: &WriteOptions,
) -> Result<Result<Payload, Option<Arc<Record>>>> {
    let ResourceRequest { resource, namespace, .. } = attributes.request;
    let key = resource.key(namespace.as_deref(), object::name(&object));
    let has_version = version_of(&object).is_some_and(|version| version != 0);
    let stored = convert::webhook::to_stored(core, resource, object).await?;
    let value: Bytes = object::encode(&stored);
    bounds::check_stored(&value, None)?;
    if options.dry_run {
        return match read(core, &key).await? {
            // What conversion drops is not stored, so it is not answered either.
            None => Ok(Ok(Payload::Object(convert::webhook::to_served(core, resource, stored).await?))),
            existing => Ok(Err(existing)),
        };
    }
    // The last check, as in kube-apiserver. It does not come to it in a dry run, nor when a PUT or an apply creates.
    if has_version && attributes.request.verb == Verb::Create {
        return Err(Status::version_of_new());
    }
    let action = Action::Put { value, ttl: resource.behavior().ttl };
    let change = Change { key, expect: Expect::Absent, action };
    Ok(match core.storage.commit(change).await {
        Ok(record) => Ok(Payload::Stored(record)),
        Err(error) => Err(error.into_current()?),
    })
}

/// The resourceVersion of an object, if it is one.
fn version_of(object: &Value) -> Option<u64> {
    object::text(object, &["metadata", "resourceVersion"])?.parse().ok()
}

/// Makes up a name from `generateName`.
fn generate_name(core: &Core, object: &mut Value) {
    const LONGEST_PREFIX: usize = 63 - 5;
    let metadata = metadata_mut(object);
    let Some(prefix) = metadata.get("generateName").and_then(Value::as_str) else { return };
    if prefix.is_empty() {
        return;
    }
    let end = prefix.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= LONGEST_PREFIX);
    let name = format!("{}{}", &prefix[..end.last().unwrap_or(0)], object::random_suffix(&core.env));
    metadata.insert("name".into(), name.into());
}
