//! Versions of a custom resource whose definition names a webhook that converts.
//!
//! Objects are stored in one version. What is read is converted before anything looks at it, and what is
//! written before it is stored, as many objects at a time as there are.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::answer::Payload;
use crate::object;
use crate::resource::Resource;
use crate::server::Core;
use crate::status::{Result, Status};
use crate::storage::Record;
use crate::webhook;

/// How long a conversion may take.
const LIMIT: Duration = Duration::from_secs(30);
/// How many objects are sent at a time.
const BATCH: usize = 500;

/// Records in the version of `resource`.
pub(crate) async fn records(
    core: &Core,
    resource: &Resource,
    mut records: Vec<Arc<Record>>,
) -> Result<Vec<Arc<Record>>> {
    let Some(config) = config_of(resource) else { return Ok(records) };
    for batch in records.chunks_mut(BATCH) {
        let objects = batch.iter().map(|record| object::decode(&record.value, record.revision));
        let converted = convert(core, config, resource, resource.api_version(), objects.collect()).await?;
        for (record, object) in batch.iter_mut().zip(converted) {
            *record = Arc::new(Record::new(record.path.clone(), record.revision, object::encode(&object)));
        }
    }
    Ok(records)
}

/// One record in the version of `resource`.
pub(crate) async fn record(core: &Core, resource: &Resource, record: Arc<Record>) -> Result<Arc<Record>> {
    if config_of(resource).is_none() {
        return Ok(record);
    }
    Ok(records(core, resource, vec![record]).await?.remove(0))
}

/// What a handler answers, in the version of `resource`.
pub(crate) async fn payload(core: &Core, resource: &Resource, payload: Payload) -> Result<Payload> {
    match payload {
        Payload::Stored(stored) => Ok(Payload::Stored(record(core, resource, stored).await?)),
        other => Ok(other),
    }
}

/// An object of the version of `resource` in the version that is stored.
pub(crate) async fn to_stored(core: &Core, resource: &Resource, object: Value) -> Result<Value> {
    match config_of(resource) {
        None => Ok(super::to_stored(resource, object)),
        Some(config) => one(core, config, resource, resource.stored_as(), object).await,
    }
}

/// An object of the version that is stored in the version of `resource`.
pub(crate) async fn to_served(core: &Core, resource: &Resource, stored: Value) -> Result<Value> {
    match config_of(resource) {
        None => Ok(super::to_served(resource, stored)),
        Some(config) => {
            let object = one(core, config, resource, resource.api_version(), stored).await?;
            Ok(super::to_served(resource, object))
        }
    }
}

/// An object of the version of `from` in the version of `to`, another version of the same kind.
pub(crate) async fn between(core: &Core, from: &Resource, to: &Resource, object: Value) -> Result<Value> {
    match config_of(from).or_else(|| config_of(to)) {
        None => Ok(super::to_served(to, super::to_stored(from, object))),
        Some(config) => one(core, config, from, to.api_version(), object).await,
    }
}

/// Whether objects of this resource may have to be converted by a webhook.
pub(crate) fn is_needed(resource: &Resource) -> bool {
    config_of(resource).is_some()
}

/// Where the webhook is, if there is one and it may be needed.
fn config_of(resource: &Resource) -> Option<&Value> {
    resource.definition()?.conversion.as_ref()
}

async fn one(core: &Core, config: &Value, resource: &Resource, wanted: &str, object: Value) -> Result<Value> {
    Ok(convert(core, config, resource, wanted, vec![object]).await?.remove(0))
}

/// Sends those objects that are in another version than the wanted one.
async fn convert(
    core: &Core,
    config: &Value,
    resource: &Resource,
    wanted: &str,
    mut objects: Vec<Value>,
) -> Result<Vec<Value>> {
    let others: Vec<usize> = (0..objects.len()).filter(|at| objects[*at]["apiVersion"] != wanted).collect();
    if others.is_empty() {
        return Ok(objects);
    }
    let uid = core.env.uuid();
    let sent: Vec<&Value> = others.iter().map(|at| &objects[*at]).collect();
    let review = json!({
        "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
        "request": {"uid": uid, "desiredAPIVersion": wanted, "objects": sent}
    });
    let fail = |why: String| {
        Status::internal(format!(
            "conversion webhook for {}, Kind={} failed: {why}",
            resource.stored_as(),
            resource.kind()
        ))
    };
    let answer =
        webhook::call(core, config, &review, LIMIT).await.map_err(|error| fail(error.to_string()))?;
    let converted = read(answer, &uid, others.len()).map_err(fail)?;
    for (at, object) in others.into_iter().zip(converted) {
        let object = check(&objects[at], object, wanted).map_err(fail)?;
        objects[at] = object;
    }
    Ok(objects)
}

/// The objects of an answer; an error says why there are none.
fn read(mut answer: Value, uid: &str, expected: usize) -> Result<Vec<Value>, String> {
    let response = &mut answer["response"];
    if response["uid"] != uid {
        return Err(format!("expected response.uid={uid:?}, got {}", response["uid"]));
    }
    if response["result"]["status"] != "Success" {
        let message = response["result"]["message"].as_str().unwrap_or("the webhook did not say why");
        return Err(message.to_owned());
    }
    match response["convertedObjects"].take() {
        Value::Array(objects) if objects.len() == expected => Ok(objects),
        Value::Array(objects) => {
            Err(format!("the webhook returned {} objects, expected {expected}", objects.len()))
        }
        _ => Err(format!("the webhook returned no objects, expected {expected}")),
    }
}

/// A converted object is the same object: of its metadata, only labels and annotations may change.
fn check(original: &Value, mut converted: Value, wanted: &str) -> Result<Value, String> {
    let name = object::name(original);
    if converted["apiVersion"] != wanted {
        return Err(format!("invalid converted object {name:?}: its version is {}", converted["apiVersion"]));
    }
    if converted["kind"] != original["kind"] {
        return Err(format!("invalid converted object {name:?}: its kind is {}", converted["kind"]));
    }
    for field in ["name", "namespace", "uid"] {
        if converted["metadata"].get(field) != original["metadata"].get(field) {
            return Err(format!("invalid converted object {name:?}: metadata.{field} has changed"));
        }
    }
    let mut metadata = original["metadata"].clone();
    for field in ["labels", "annotations"] {
        let changed = converted["metadata"].get(field).filter(|value| value.is_object());
        match (changed, metadata.as_object_mut()) {
            (Some(value), Some(metadata)) => drop(metadata.insert(field.to_owned(), value.clone())),
            (None, Some(metadata)) => drop(metadata.remove(field)),
            _ => {}
        }
    }
    converted["metadata"] = metadata;
    Ok(converted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(version: &str, labels: Value) -> Value {
        json!({"apiVersion": version, "kind": "Foo", "metadata": {"name": "a", "uid": "1", "labels": labels}})
    }

    #[test]
    fn labels_may_change_and_the_rest_of_the_metadata_stays() {
        let mut original = object("g/v1", json!({"a": "b"}));
        original["metadata"]["generation"] = 3.into();
        let converted = check(&original, object("g/v2", json!({"c": "d"})), "g/v2").unwrap();
        assert_eq!(converted["metadata"]["labels"], json!({"c": "d"}));
        assert_eq!(converted["metadata"]["generation"], 3);
    }

    #[test]
    fn another_object_is_not_taken() {
        let original = object("g/v1", json!({}));
        for (field, value) in [("uid", "2"), ("name", "b"), ("namespace", "x")] {
            let mut other = object("g/v2", json!({}));
            other["metadata"][field] = value.into();
            let why = check(&original, other, "g/v2").unwrap_err();
            assert!(why.contains(&format!("metadata.{field} has changed")), "{why}");
        }
        assert!(check(&original, object("g/v1", json!({})), "g/v2").unwrap_err().contains("its version is"));
    }

    #[test]
    fn an_answer_says_why_it_has_no_objects() {
        let answer = |response: Value| read(json!({"response": response}), "7", 1);
        assert_eq!(answer(json!({"uid": "8"})).unwrap_err(), "expected response.uid=\"7\", got \"8\"");
        let failed = json!({"uid": "7", "result": {"status": "Failure", "message": "too old"}});
        assert_eq!(answer(failed).unwrap_err(), "too old");
        let few = json!({"uid": "7", "result": {"status": "Success"}, "convertedObjects": []});
        assert_eq!(answer(few).unwrap_err(), "the webhook returned 0 objects, expected 1");
    }
}
