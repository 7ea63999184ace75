//! A [`Resource`] of any type: objects as JSON.

use std::sync::Arc;

use futures::StreamExt;
use futures::future::BoxFuture;
use kube::Resource as KubeResource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Asked, Change, Failure, Resource};
use crate::object;
use crate::storage::{Event, Record, Revision, Telling, Told};

/// Where the records of a collection are, if they are not in the store.
pub(crate) trait Source: Send + Sync {
    /// Those of the namespace that is asked for, in no order, and the revision that they are at; 0 if there is none.
    fn list<'a>(&'a self, asked: &'a Asked) -> BoxFuture<'a, Result<(Vec<Record>, Revision), Failure>>;
    fn get<'a>(&'a self, asked: &'a Asked, name: &'a str) -> BoxFuture<'a, Result<Option<Record>, Failure>>;
    fn create<'a>(&'a self, asked: &'a Asked, object: Value) -> BoxFuture<'a, Result<Record, Failure>>;
    fn update<'a>(&'a self, asked: &'a Asked, object: Value) -> BoxFuture<'a, Result<Record, Failure>>;
    fn delete<'a>(&'a self, asked: &'a Asked, object: Value) -> BoxFuture<'a, Result<(), Failure>>;
    fn watch(&self, asked: &Asked, after: Revision) -> Telling;
}

pub(super) struct Made<R>(pub(super) R);

impl<R: Resource> Source for Made<R> {
    fn list<'a>(&'a self, asked: &'a Asked) -> BoxFuture<'a, Result<(Vec<Record>, Revision), Failure>> {
        Box::pin(async move {
            let listed = self.0.list(asked).await?;
            let records = listed.items.iter().map(record).collect::<Result<_, _>>()?;
            Ok((records, listed.version.unwrap_or(0)))
        })
    }

    fn get<'a>(&'a self, asked: &'a Asked, name: &'a str) -> BoxFuture<'a, Result<Option<Record>, Failure>> {
        Box::pin(async move { self.0.get(asked, name).await?.as_ref().map(record).transpose() })
    }

    fn create<'a>(&'a self, asked: &'a Asked, object: Value) -> BoxFuture<'a, Result<Record, Failure>> {
        Box::pin(async move { record(&self.0.create(asked, decode(object)?).await?) })
    }

    fn update<'a>(&'a self, asked: &'a Asked, object: Value) -> BoxFuture<'a, Result<Record, Failure>> {
        Box::pin(async move { record(&self.0.update(asked, decode(object)?).await?) })
    }

    fn delete<'a>(&'a self, asked: &'a Asked, object: Value) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move { self.0.delete(asked, decode(object)?).await })
    }

    fn watch(&self, asked: &Asked, after: Revision) -> Telling {
        self.0.watch(asked, after).map(|change| told(change?)).boxed()
    }
}

fn told<K: KubeResource<DynamicType = ()> + Serialize>(change: Change<K>) -> Result<Told, Failure> {
    let (record, previous, deleted) = match &change {
        Change::Bookmark(revision) => return Ok(Told { revision: *revision, event: None }),
        Change::Added(object) => (record(object)?, None, false),
        Change::Modified { old, new } => (record(new)?, Some(record(old)?), false),
        Change::Deleted(object) => (record(object)?, Some(record(object)?), true),
    };
    if record.revision == 0 {
        let path = &record.path;
        return Err(Failure::internal(format!(
            "the change of {path} has no resourceVersion, which is a number"
        )));
    }
    let event = Event::unheld(Arc::new(record), previous.map(Arc::new), deleted);
    Ok(Told { revision: event.revision(), event: Some(Arc::new(event)) })
}

/// What was sent fits the type: it was decoded when it was validated.
fn decode<K: DeserializeOwned>(object: Value) -> Result<K, Failure> {
    serde_json::from_value(object)
        .map_err(|error| Failure::internal(format!("the object cannot be read: {error}")))
}

/// An object as if it were kept.
fn record<K: KubeResource<DynamicType = ()> + Serialize>(object: &K) -> Result<Record, Failure> {
    let value = value(object)?;
    let metadata = object.meta();
    let name = metadata.name.as_deref().unwrap_or_default();
    let path = match metadata.namespace.as_deref().filter(|_| super::kind::is_namespaced::<K>()) {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    };
    let revision = metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0);
    Ok(Record::new(path.into(), revision, object::encode(&value)))
}

/// An object with its kind.
pub(super) fn value<K: KubeResource<DynamicType = ()> + Serialize>(object: &K) -> Result<Value, Failure> {
    let mut value = serde_json::to_value(object).map_err(Failure::internal)?;
    if !value["metadata"]["name"].is_string() {
        return Err(Failure::internal("an object that was made has no name"));
    }
    value["apiVersion"] = K::api_version(&()).into_owned().into();
    value["kind"] = K::kind(&()).into_owned().into();
    Ok(value)
}
