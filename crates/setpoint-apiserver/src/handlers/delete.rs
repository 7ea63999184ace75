//! DELETE of one object or of a collection.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use setpoint_env::Later;

use super::get::{self, find};
use super::{list, update};
use crate::admission::{self, Attributes};
use crate::answer::{Answer, Payload, respond_list};
use crate::contention::Attempts;
use crate::convert;
use crate::definitions;
use crate::kinds;
use crate::object::{self, metadata_mut};
use crate::options::{DeleteOptions, ListOptions, Propagation, WriteOptions};
use crate::request::{Expected, Form, ResourceRequest};
use crate::resource::Resource;
use crate::response::Body;
use crate::selection::Selection;
use crate::server::Core;
use crate::status::{Result, Status};
use crate::storage::{Action, Change, CommitError, Expect, Key, Record};
use crate::strategy;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

pub(crate) async fn handle(core: &Core, request: &ResourceRequest) -> Result<Response<Body>> {
    let options = read_options(request)?;
    admission::may_delete(core, &request.resource, request.name())?;
    let record = find(core, request).await?;
    let (payload, gone) = delete(core, &request.resource, Some(request), record, &options).await?;
    let resource = &*request.resource;
    if gone && !returns_deleted(resource) {
        return Answer::ok(Payload::Other(success(resource, &payload))).respond(request);
    }
    let payload = convert::webhook::payload(core, resource, payload).await?;
    Answer::ok(payload).respond(request)
}

/// Whether a delete answers with the object instead of a Status, as kube-apiserver does for some kinds.
fn returns_deleted(resource: &Resource) -> bool {
    match resource.group() {
        "" => matches!(
            resource.plural(),
            "namespaces"
                | "persistentvolumeclaims"
                | "persistentvolumes"
                | "pods"
                | "podtemplates"
                | "resourcequotas"
                | "serviceaccounts"
                | "services"
        ),
        "resource.k8s.io" => true,
        "storage.k8s.io" => resource.plural() != "csistoragecapacities",
        _ => false,
    }
}

/// Deletes everything that is selected, or one page of it; the answer lists what was there.
pub(crate) async fn handle_collection(core: &Core, request: &ResourceRequest) -> Result<Response<Body>> {
    let options = read_options(request)?;
    let list_options = ListOptions::parse(&request.query, false)?;
    let resource = &request.resource;
    let selection = Selection::new(resource, request.namespace.as_deref(), None, &list_options)?;
    let listing = list::read(core, &list_options, &selection).await?;
    for listed in &listing.records {
        // There may be many: others get their turn, and the time limit of the request is heeded.
        tokio::task::coop::consume_budget().await;
        // As it is now: a page may be of the past.
        let Some(record) = get::read(core, &key_of(resource, listed)).await? else { continue };
        match delete(core, resource, Some(request), record, &options).await {
            Ok(_) => {}
            // Somebody else was faster.
            Err(status) if status.reason == "NotFound" => {}
            Err(status) => return Err(status),
        }
    }
    respond_list(request, listing.records, &listing.meta).await
}

fn read_options(request: &ResourceRequest) -> Result<DeleteOptions> {
    if request.body.is_empty() {
        return DeleteOptions::from_query(&request.query);
    }
    let ty = setpoint_kinds::table().type_named("meta.v1.DeleteOptions").expect("the table has it");
    let expected = Expected {
        api_version: request.resource.api_version(),
        kind: "DeleteOptions",
        form: Form::Typed(ty),
    };
    let write = WriteOptions::parse(&request.query, "DeleteOptions")?;
    DeleteOptions::from_body(&request.decode_options(expected, write.field_validation)?)
}

/// Deletes one object, or marks it as deleted if something holds it back; and whether it is gone. What no request
/// asks for is the server's own will, which webhooks have no say in.
pub(super) async fn delete(
    core: &Core,
    resource: &Resource,
    asked: Option<&ResourceRequest>,
    mut record: Arc<Record>,
    options: &DeleteOptions,
) -> Result<(Payload, bool)> {
    let write = WriteOptions { dry_run: options.dry_run, ..WriteOptions::default() };
    let key = key_of(resource, &record);
    let mut attempts = match asked {
        Some(request) => Attempts::of(core, key, request),
        None => Attempts::of_server(core, key),
    };
    loop {
        let stored = object::decode(&record.value, record.revision);
        let old = convert::webhook::to_served(core, resource, stored).await?;
        check_preconditions(resource, &old, options)?;
        if let Some(request) = asked {
            admission::delete(core, &Attributes::delete(request, &old, options.dry_run)).await?;
        }
        let marked = mark(core, resource, &old, options);
        let gone = strategy::may_vanish(&marked);
        let written = if !gone && marked == old {
            // It is marked already, with no longer to live than this delete gives it.
            Ok(Payload::Stored(record))
        } else if gone && options.dry_run {
            Ok(Payload::Object(old.clone()))
        } else if gone {
            match remove(core, resource, &record, &old, marked).await {
                Ok(payload) => {
                    kinds::release(core, resource, &old).await;
                    Ok(payload)
                }
                Err(error) => Err(error.into_current()?),
            }
        } else {
            update::store(core, resource, &record, key_of(resource, &record), marked, &write).await?
        };
        if let Ok(payload) = written {
            return Ok((payload, gone));
        }
        let newer = attempts.next().await?;
        record = newer.ok_or_else(|| Status::not_found(resource.group_resource(), object::name(&old)))?;
    }
}

/// Deletes an object that the server itself wants to be gone; whether it is.
pub(crate) async fn delete_by_server(core: &Core, resource: &Resource, record: Arc<Record>) -> Result<bool> {
    match delete(core, resource, None, record, &DeleteOptions::default()).await {
        Ok((_, gone)) => Ok(gone),
        Err(status) if status.reason == "NotFound" => Ok(true),
        Err(status) => Err(status),
    }
}

fn key_of(resource: &Resource, record: &Record) -> Key {
    Key { collection: Arc::clone(resource.collection()), path: record.path.clone() }
}

/// Removes the record if it is still what it was. Of a kind that ends gracefully the mark is seen
/// first, even when the end comes at once.
async fn remove(
    core: &Core,
    resource: &Resource,
    record: &Arc<Record>,
    old: &Value,
    marked: Value,
) -> Result<Payload, CommitError> {
    let commit = async |revision, action| {
        let change = Change { key: key_of(resource, record), expect: Expect::Revision(revision), action };
        core.storage.commit(change).await
    };
    let mut revision = record.revision;
    if resource.behavior().graceful_deletion && !object::is_being_deleted(old) {
        let value = object::encode(&convert::to_stored(resource, marked));
        revision = commit(revision, Action::Put { value, ttl: None }).await?.revision;
    }
    commit(revision, Action::Delete).await.map(Payload::Stored)
}

pub(super) fn check_preconditions(
    resource: &Resource,
    object: &Value,
    options: &DeleteOptions,
) -> Result<()> {
    let metadata = |field| object::text(object, &["metadata", field]).unwrap_or_default();
    for (what, field, wanted) in
        [("UID", "uid", &options.uid), ("ResourceVersion", "resourceVersion", &options.resource_version)]
    {
        let Some(wanted) = wanted else { continue };
        let found = metadata(field);
        if wanted != found {
            let why = format!(
                "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
            );
            return Err(Status::conflict(resource.group_resource(), object::name(object), &why));
        }
    }
    Ok(())
}

/// The object as it is while it waits for its end: the same as before if it waits already.
fn mark(core: &Core, resource: &Resource, old: &Value, options: &DeleteOptions) -> Value {
    let now = core.env.now();
    let mut object = old.clone();
    if object::is_being_deleted(old) {
        let waits = resource.behavior().graceful_deletion
            && !shorten(metadata_mut(&mut object), options.grace_period_seconds, now);
        if !waits {
            set_finalizers(resource, &mut object, options.propagation);
        }
        return object;
    }
    set_finalizers(resource, &mut object, options.propagation);
    if definitions::concerns(resource) {
        definitions::mark(&mut object, now);
        return object;
    }
    let grace = grace_period(resource, old, options);
    let end = now.later(Duration::from_secs(grace));
    let metadata = metadata_mut(&mut object);
    metadata.insert("deletionTimestamp".into(), strategy::timestamp(end));
    if (resource.group(), resource.plural()) == ("", "namespaces") {
        object["status"]["phase"] = "Terminating".into();
        return object;
    }
    metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
    strategy::bump_generation(&mut object);
    object
}

/// A second delete can only shorten the time that an object has to end, counted from the first delete. False if the
/// object goes on waiting as it does.
fn shorten(metadata: &mut Map<String, Value>, wanted: Option<u64>, now: Timestamp) -> bool {
    let given = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_u64).unwrap_or(0);
    if given == 0 {
        return true;
    }
    let Some(mut grace) = wanted.filter(|wanted| *wanted < given) else { return false };
    let end = metadata.get("deletionTimestamp").and_then(Value::as_str);
    let end = end.and_then(|end| end.parse::<Timestamp>().ok());
    let begun = end.and_then(|end| end.checked_sub(Duration::from_secs(given)).ok()).unwrap_or(now);
    let mut end = begun.later(Duration::from_secs(grace));
    if end < now {
        // Who ends it has to see that its time is over, unless it is to vanish at once.
        end = now;
        grace = grace.min(1);
    }
    metadata.insert("deletionTimestamp".into(), strategy::timestamp(end));
    metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
    true
}

/// How long the object may take to end. Only pods that run somewhere take any time.
fn grace_period(resource: &Resource, object: &Value, options: &DeleteOptions) -> u64 {
    if !resource.behavior().graceful_deletion {
        return 0;
    }
    let is_placed = object::text(object, &["spec", "nodeName"]).is_some_and(|node| !node.is_empty());
    let has_ended = matches!(object::text(object, &["status", "phase"]), Some("Succeeded" | "Failed"));
    if !is_placed || has_ended {
        return 0;
    }
    let default = object["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap_or(30);
    options.grace_period_seconds.unwrap_or(default)
}

/// The garbage collector's work is noted as finalizers: it removes them when the dependents are dealt with.
fn set_finalizers(resource: &Resource, object: &mut Value, propagation: Option<Propagation>) {
    let default = if resource.behavior().orphans_dependents && propagation.is_none() {
        Some(Propagation::Orphan)
    } else {
        propagation
    };
    let Some(policy) = default else { return };
    let metadata = metadata_mut(object);
    let list = metadata.get("finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut list: Vec<Value> = list.into_iter().filter(|f| *f != ORPHAN && *f != FOREGROUND).collect();
    match policy {
        Propagation::Background => {}
        Propagation::Foreground => list.push(FOREGROUND.into()),
        Propagation::Orphan => list.push(ORPHAN.into()),
    }
    if list.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), list.into());
    }
}

/// The Status that says what was deleted.
fn success(resource: &Resource, payload: &Payload) -> Value {
    let object = match payload {
        Payload::Stored(record) => object::decode(&record.value, record.revision),
        Payload::Object(object) | Payload::Other(object) => object.clone(),
    };
    let mut details = json!({
        "name": object::name(&object),
        "kind": resource.plural(),
        "uid": object["metadata"]["uid"],
    });
    if !resource.group().is_empty() {
        details["group"] = resource.group().into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
