//! Who owns the fields that two writers change back and forth: the caches of most controllers leave managedFields out, and where
//! they have them, the last writer of an object need not be that of the field.

use std::time::Duration;

use futures::TryStreamExt;
use futures::future::join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{WatchEvent, WatchParams};
use serde_json::{Map, Value};
use setpoint::discovery::{self, ServedResource};
use setpoint::facts::Name;
use tokio::time::timeout;

use super::{ANSWER_TIME, Objects};
use crate::ping_pong::Object;
use crate::recorder::Recorder;

/// How many objects are watched at the same time.
const MOST: usize = 8;
/// How long an object is watched at a time.
const TIME: Duration = Duration::from_secs(10);
/// Before it is asked again for kinds, or for an object that does not change any more.
const PAUSE: Duration = Duration::from_secs(5);

impl Objects {
    /// Watches objects as long as somebody changes their fields back of whom nothing is known.
    pub(crate) async fn find_owners(&self, recorder: &Recorder) {
        loop {
            let unexplained = recorder.unexplained(MOST).await;
            let kinds = timeout(ANSWER_TIME, discovery::served(&self.client)).await;
            let kinds = kinds.ok().and_then(Result::ok).unwrap_or_default();
            let watched = unexplained.iter().filter_map(|object| {
                let kind = kinds.iter().find(|kind| kind.name() == *object.0)?;
                Some(timeout(TIME, self.find_owners_of(recorder, object, kind)))
            });
            join_all(watched).await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Watches one object until both writers of its fields are known. Each of its states counts, also one that is changed
    /// back at once: an informer would coalesce them.
    async fn find_owners_of(
        &self,
        recorder: &Recorder,
        object: &Object,
        kind: &ServedResource,
    ) -> Result<(), kube::Error> {
        let objects = kind.objects(&self.client, object.1.namespace());
        let params = WatchParams::default().fields(&format!("metadata.name={}", object.1.name()));
        let mut states = Box::pin(objects.watch_metadata(&params, "0").await?);
        while let Some(state) = states.try_next().await? {
            let (WatchEvent::Added(state) | WatchEvent::Modified(state)) = state else { continue };
            if recorder.owned(object, &owners(&state.metadata.managed_fields.unwrap_or_default())) {
                break;
            }
        }
        Ok(())
    }
}

/// The owners of fields, each with the paths that it owns.
fn owners(entries: &[ManagedFieldsEntry]) -> Vec<(Name, Vec<String>)> {
    let owner = |entry: &ManagedFieldsEntry| {
        let mut found = Vec::new();
        add_paths(entry.fields_v1.as_ref()?.0.as_object()?, "", &mut found);
        Some((entry.manager.as_deref()?.into(), found))
    };
    entries.iter().filter_map(owner).collect()
}

/// `{"f:spec": {"f:replicas": {}}}` is `spec.replicas`.
fn add_paths(fields: &Map<String, Value>, path: &str, found: &mut Vec<String>) {
    for (name, inner) in fields.iter().filter(|(name, _)| *name != ".") {
        let here = match name.split_once(':') {
            Some(("f", name)) if path.is_empty() => name.to_owned(),
            Some(("f", name)) => format!("{path}.{name}"),
            Some((_, item)) => format!("{path}[{item}]"),
            None => continue,
        };
        match inner.as_object().filter(|inner| !inner.is_empty()) {
            Some(inner) => add_paths(inner, &here, found),
            None => found.push(here),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn managed_fields_are_paths() {
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, "f:app.kubernetes.io/name": {}}},
            "f:spec": {"f:ports": {"k:{\"port\":80}": {".": {}, "f:port": {}}}},
        });
        let entries = json!([{"manager": "a", "fieldsV1": fields}, {"manager": "b"}]);
        let entries: Vec<ManagedFieldsEntry> = serde_json::from_value(entries).unwrap();
        let expected =
            ["metadata.labels.app.kubernetes.io/name", "spec.ports[{\"port\":80}].port"].map(str::to_owned);
        assert_eq!(owners(&entries), [("a".into(), expected.to_vec())]);
        assert_eq!(owners(&[]), []);
    }
}
