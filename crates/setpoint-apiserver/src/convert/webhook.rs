//! Versions of a custom resource whose definition names a webhook that converts.
//!
//! Objects are stored in one version. What is read is converted before anything looks at it, and what is
//! written before it is stored, as many objects at a time as there are.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::answer::Payload;
use crate::bounds::Bounded;
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
        let list = Some((resource.api_version(), format!("{}List", resource.kind())));
        let converted = convert(core, config, resource.api_version(), objects.collect(), list);
        let converted = converted.await.map_err(Status::unknown)?;
        for (record, object) in batch.iter_mut().zip(converted) {
            *record = Arc::new(Record::new(record.path.clone(), record.revision, object::encode(&object)));
        }
    }
    Ok(records)
}

/// One record in the version of `resource`.
pub(crate) async fn record(core: &Core, resource: &Resource, record: Arc<Record>) -> Result<Arc<Record>> {
    let Some(config) = config_of(resource) else { return Ok(record) };
    let stored = object::decode(&record.value, record.revision);
    let object = one(core, config, resource.api_version(), stored).await.map_err(Status::unknown)?;
    Ok(Arc::new(Record::new(record.path.clone(), record.revision, object::encode(&object))))
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
        None => {
            let mut object = super::to_stored(resource, object);
            if let Some(custom) = resource.definition() {
                custom.drop_nulls(&mut object);
            }
            Ok(object)
        }
        Some(config) => one(core, config, resource.stored_as(), object).await.map_err(Status::unknown),
    }
}

/// An object of the version that is stored in the version of `resource`.
pub(crate) async fn to_served(core: &Core, resource: &Resource, stored: Value) -> Result<Value> {
    match config_of(resource) {
        None => Ok(super::to_served(resource, stored)),
        Some(config) => {
            let object = one(core, config, resource.api_version(), stored).await.map_err(Status::unknown)?;
            Ok(super::to_served(resource, object))
        }
    }
}

/// An object of the version of `from` in the version of `to`, another version of the same kind, for admission.
pub(crate) async fn between(core: &Core, from: &Resource, to: &Resource, object: Value) -> Result<Value> {
    match config_of(from).or_else(|| config_of(to)) {
        None => Ok(super::to_served(to, super::to_stored(from, object))),
        // kube-apiserver says twice that it is an internal error: once who converts, once who asks for it.
        Some(config) => one(core, config, to.api_version(), object)
            .await
            .map_err(|why| Status::internal(Status::internal(why))),
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

async fn one(core: &Core, config: &Value, wanted: &str, object: Value) -> Result<Value, String> {
    Ok(convert(core, config, wanted, vec![object], None).await?.remove(0))
}

/// Sends those objects that are in another version than the wanted one. Errors name the version and kind of what is
/// converted: of the object, or of the `list` that the objects are in.
async fn convert(
    core: &Core,
    config: &Value,
    wanted: &str,
    mut objects: Vec<Value>,
    list: Option<(&str, String)>,
) -> Result<Vec<Value>, String> {
    let others: Vec<usize> = (0..objects.len()).filter(|at| objects[*at]["apiVersion"] != wanted).collect();
    let Some(first) = others.first() else { return Ok(objects) };
    let is_list = list.is_some();
    let (version, kind) = list.unwrap_or_else(|| {
        let kind = objects[*first]["kind"].as_str().unwrap_or_default();
        (objects[*first]["apiVersion"].as_str().unwrap_or_default(), kind.to_owned())
    });
    let name = format!("conversion webhook for {version}, Kind={kind}");
    let uid = core.env.uuid();
    let sent: Vec<&Value> = others.iter().map(|at| &objects[*at]).collect();
    let review = json!({
        "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
        "request": {"uid": uid, "desiredAPIVersion": wanted, "objects": sent}
    });
    let failed = |why: &dyn std::fmt::Display| format!("{name} failed: {why}");
    let answer = webhook::call(core, config, &review, LIMIT).await.map_err(|error| failed(&error))?;
    let converted = read(answer, &uid).map_err(|why| failed(&why))?;
    if converted.len() != others.len() {
        return Err(format!("{name} returned {} objects, expected {}", converted.len(), others.len()));
    }
    for (index, (at, object)) in others.into_iter().zip(converted).enumerate() {
        let object = check(&objects[at], object, wanted);
        let object = object.map_err(|wrong| wrong.told(&name, is_list.then_some(index)))?;
        let bounded = Bounded::change(object, &objects[at]).map_err(|exceeded| failed(&exceeded))?;
        objects[at] = bounded.into_value();
    }
    Ok(objects)
}

/// The objects of an answer; an error says why there are none.
fn read(mut answer: Value, uid: &str) -> Result<Vec<Value>, String> {
    let (version, kind) = (&answer["apiVersion"], &answer["kind"]);
    if version != "apiextensions.k8s.io/v1" || kind != "ConversionReview" {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        return Err(format!(
            "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got {}, Kind={}",
            text(version),
            text(kind)
        ));
    }
    let response = &mut answer["response"];
    if response.is_null() {
        return Err("no response provided".to_owned());
    }
    let answered = response["uid"].as_str().unwrap_or_default();
    if answered != uid {
        return Err(format!("expected response.uid={uid:?}, got {answered:?}"));
    }
    let result = &response["result"];
    let status = result["status"].as_str().unwrap_or_default();
    if status != "Success" {
        let message = result["message"].as_str().filter(|message| !message.is_empty());
        let unsaid = || format!("response.result.status was '{status}', not 'Success'");
        return Err(message.map_or_else(unsaid, str::to_owned));
    }
    match response["convertedObjects"].take() {
        Value::Array(objects) => Ok(objects),
        _ => Ok(Vec::new()),
    }
}

/// What is wrong with a converted object.
#[derive(Debug)]
enum Wrong {
    /// It is of another kind or version than it should be.
    Type(String),
    /// It is another object.
    Object(String),
    Metadata(String),
}

impl Wrong {
    fn told(&self, name: &str, index: Option<usize>) -> String {
        match (self, index) {
            (Wrong::Type(why) | Wrong::Object(why), Some(index)) => {
                format!("{name} returned invalid converted object at index {index}: {why}")
            }
            (Wrong::Type(why), None) => format!("{name} returned invalid object at index 0: {why}"),
            (Wrong::Object(why), None) => format!("{name} returned invalid object: {why}"),
            (Wrong::Metadata(why), Some(index)) => {
                format!("{name} returned invalid metadata in object at index {index}: {why}")
            }
            (Wrong::Metadata(why), None) => format!("{name} returned invalid metadata: {why}"),
        }
    }
}

/// A converted object, if it is the same object as before in the wanted version; or what is wrong with it.
pub(crate) fn same_object(original: &Value, converted: Value, wanted: &str) -> Result<Value, String> {
    check(original, converted, wanted).map_err(|wrong| match wrong {
        Wrong::Type(why) | Wrong::Object(why) | Wrong::Metadata(why) => why,
    })
}

/// A converted object is the same object: of its metadata, only labels and annotations may change.
fn check(original: &Value, mut converted: Value, wanted: &str) -> Result<Value, Wrong> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for (field, word, expected) in
        [("apiVersion", "groupVersion", wanted.to_owned()), ("kind", "kind", text(&original["kind"]))]
    {
        let received = text(&converted[field]);
        if received != expected {
            let why = format!("invalid {word} (expected {expected}, received {received})");
            return Err(Wrong::Type(why));
        }
    }
    for (field, word) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (before, after) = (text(&original["metadata"][field]), text(&converted["metadata"][field]));
        if before != after {
            return Err(Wrong::Object(format!("must have the same {word}: {before} != {after}")));
        }
    }
    if !converted["metadata"].is_object() {
        return Err(Wrong::Metadata("missing metadata in converted object".to_owned()));
    }
    let mut metadata = original["metadata"].clone();
    for field in ["labels", "annotations"] {
        let changed = converted["metadata"].get(field).filter(|value| !value.is_null());
        if let Some(entries) = changed {
            let problem = match entries.as_object() {
                None => Some(format!("invalid metadata.{field} in converted object")),
                Some(entries) => entries
                    .iter()
                    .find(|(_, value)| !value.is_string())
                    .map(|(key, _)| format!("metadata.{field}[{key}] must be a string in converted object")),
            };
            if let Some(problem) = problem {
                return Err(Wrong::Metadata(problem));
            }
        }
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
        for (field, word, value) in
            [("uid", "UID", "2"), ("name", "name", "b"), ("namespace", "namespace", "x")]
        {
            let mut other = object("g/v2", json!({}));
            other["metadata"][field] = value.into();
            let why = check(&original, other, "g/v2").unwrap_err().told("w", None);
            assert!(
                why.starts_with(&format!("w returned invalid object: must have the same {word}: ")),
                "{why}"
            );
        }
        let told =
            |converted: Value, index| check(&original, converted, "g/v2").unwrap_err().told("w", index);
        assert_eq!(
            told(object("g/v1", json!({})), None),
            "w returned invalid object at index 0: invalid groupVersion (expected g/v2, received g/v1)"
        );
        assert_eq!(
            told(object("g/v1", json!({})), Some(3)),
            "w returned invalid converted object at index 3: invalid groupVersion (expected g/v2, received g/v1)"
        );
        assert_eq!(
            told(object("g/v2", json!({"a": 1})), None),
            "w returned invalid metadata: metadata.labels[a] must be a string in converted object"
        );
    }

    #[test]
    fn an_answer_says_why_it_has_no_objects() {
        let answer = |response: Value| {
            let (version, kind) = ("apiextensions.k8s.io/v1", "ConversionReview");
            read(json!({"apiVersion": version, "kind": kind, "response": response}), "7")
        };
        assert_eq!(answer(Value::Null).unwrap_err(), "no response provided");
        assert_eq!(answer(json!({"uid": "8"})).unwrap_err(), "expected response.uid=\"7\", got \"8\"");
        let failed = json!({"uid": "7", "result": {"status": "Failure", "message": "too old"}});
        assert_eq!(answer(failed).unwrap_err(), "too old");
        let silent = json!({"uid": "7", "result": {"status": "Failure"}});
        assert_eq!(answer(silent).unwrap_err(), "response.result.status was 'Failure', not 'Success'");
        let few = json!({"uid": "7", "result": {"status": "Success"}, "convertedObjects": []});
        assert_eq!(answer(few).unwrap(), [Value::Null; 0]);
        assert!(read(json!({"kind": "Odd"}), "7").unwrap_err().starts_with("expected webhook response of"));
    }
}
