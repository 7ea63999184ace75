//! What is done when a definition is deleted: its objects go first.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::acceptance::{condition, set_condition};
use super::custom::{self, has_condition};
use super::{Stored, read_all, resource, write};
use crate::handlers::delete;
use crate::object::{self, metadata_mut};
use crate::server::Core;
use crate::status::Result;
use crate::storage::{Action, Change, CommitError, Expect, Key, ListQuery};
use crate::strategy;

/// Holds a definition back until its objects are gone.
const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Marks a definition for deletion.
pub(crate) fn mark(object: &mut Value, now: Timestamp) {
    let metadata = metadata_mut(object);
    metadata.insert("deletionTimestamp".to_owned(), strategy::timestamp(now));
    let finalizers = metadata.entry("finalizers").or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(list) = finalizers
        && !list.iter().any(|found| found == FINALIZER)
    {
        list.push(FINALIZER.into());
    }
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set_condition(object, "Terminating", "True", "InstanceDeletionPending", message, now);
}

/// Goes on with the deletion of definitions; whether some of them still wait.
pub(super) async fn run(core: &Core) -> Result<bool> {
    let mut waiting = false;
    for stored in read_all(core).await? {
        let finalizers = stored.object["metadata"]["finalizers"].as_array();
        let is_ours = finalizers.into_iter().flatten().any(|finalizer| finalizer == FINALIZER);
        if object::is_being_deleted(&stored.object) && is_ours {
            waiting |= !clean(core, stored).await?;
        }
    }
    Ok(waiting)
}

/// Whether the definition waits for nothing any more.
async fn clean(core: &Core, Stored { mut record, mut object }: Stored) -> Result<bool> {
    let established = has_condition(&object, "Established");
    let reason = condition(&object, "Terminating").map(|found| &found["reason"]);
    if established && reason.is_none_or(|reason| reason != "InstanceDeletionInProgress") {
        set_terminating(core, &mut object, "True", "InstanceDeletionInProgress");
        record = match write(core, &record, &object).await {
            Ok(record) => record,
            Err(error) => return error.into_current().map(|_| false).map_err(Into::into),
        };
        object = object::decode(&record.value, record.revision);
        super::sync(core).await?;
    }
    if established && delete_objects(core, &object).await? > 0 {
        return Ok(false);
    }
    match established {
        true => set_terminating(core, &mut object, "False", "InstanceDeletionCompleted"),
        false => set_terminating(core, &mut object, "False", "NeverEstablished"),
    }
    if let Some(Value::Array(finalizers)) = metadata_mut(&mut object).get_mut("finalizers") {
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        if finalizers.is_empty() {
            metadata_mut(&mut object).remove("finalizers");
        }
    }
    let action = match strategy::may_vanish(&object) {
        true => Action::Delete,
        false => Action::Put { value: object::encode(&object), ttl: None },
    };
    let key = Key { collection: Arc::clone(resource().collection()), path: record.path.clone() };
    let change = Change { key, expect: Expect::Revision(record.revision), action };
    match core.storage.commit(change).await {
        Ok(_) => {
            super::sync(core).await?;
            Ok(true)
        }
        Err(CommitError::Conflict { .. }) => Ok(false),
        Err(CommitError::NotStored(error)) => Err(error.into()),
    }
}

fn set_terminating(core: &Core, object: &mut Value, status: &str, reason: &str) {
    let message = match reason {
        "InstanceDeletionInProgress" => "CustomResource deletion is in progress",
        "InstanceDeletionCompleted" => "removed all instances",
        _ => "resource was never established",
    };
    set_condition(object, "Terminating", status, reason, message, core.env.now());
}

/// Deletes the objects of a definition; how many are held back by finalizers.
async fn delete_objects(core: &Core, definition: &Value) -> Result<usize> {
    let Some(resource) = custom::stored(definition) else { return Ok(0) };
    let query = ListQuery::all(resource.collection());
    let mut left = 0;
    for record in core.storage.list(&query).await?.records {
        if !delete::delete_by_server(core, &resource, record).await? {
            left += 1;
        }
    }
    Ok(left)
}
