//! Writes that happen only if they change something.

use std::fmt::Debug;

use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::merge;

/// What [`ensure`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ensured<K> {
    /// It was not there.
    Created(K),
    /// It lacked something.
    Updated(K),
    /// It was as wanted: nothing was written.
    Unchanged,
}

/// Makes sure that an object is there and has everything that `wanted` says. What `wanted` does not mention is
/// left alone: what the server filled in, and what others wrote.
///
/// `current` is the object as a lister shows it. Nothing is read from the server, and nothing is written if
/// nothing is missing, so calling it again and again costs nothing.
#[doc(alias = "CreateOrUpdate")]
#[doc(alias = "CreateOrPatch")]
pub async fn ensure<K>(api: &Api<K>, current: Option<&K>, wanted: &K) -> Result<Ensured<K>, kube::Error>
where
    K: Resource + Serialize + DeserializeOwned + Clone + Debug,
{
    let Some(current) = current else {
        return api.create(&PostParams::default(), wanted).await.map(Ensured::Created);
    };
    let (live, wanted) = (to_json(current)?, to_json(wanted)?);
    let Some(mut patch) = merge::missing(&live, &wanted) else { return Ok(Ensured::Unchanged) };
    // If it is another object by now, the caller has decided on the wrong one.
    patch["metadata"]["uid"] = json!(current.meta().uid);
    let updated = api.patch(&current.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Ok(Ensured::Updated(updated))
}

/// Writes the status of an object if it is not what the object has. Fields that `status` does not have are
/// removed. Says whether something was written.
///
/// It is a patch of what differs, on the status alone: it conflicts with nobody who writes other fields, and
/// an object that is another one by now is left alone.
pub async fn patch_status<K, S>(api: &Api<K>, object: &K, status: &S) -> Result<bool, kube::Error>
where
    K: Resource + Serialize + DeserializeOwned + Clone + Debug,
    S: Serialize,
{
    let empty = json!({});
    let object_json = to_json(object)?;
    let old = object_json.get("status").filter(|status| status.is_object()).unwrap_or(&empty);
    let Some(difference) = merge::difference(old, &to_json(status)?) else { return Ok(false) };
    let patch = json!({"metadata": {"uid": object.meta().uid}, "status": difference});
    api.patch_status(&object.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Ok(true)
}

/// Server-side apply: this manager wants exactly these fields. Conflicts are resolved in its favour, as a
/// controller's must be.
pub async fn apply<K>(api: &Api<K>, manager: &str, wanted: &K) -> Result<K, kube::Error>
where
    K: Resource + Serialize + DeserializeOwned + Clone + Debug,
{
    let parameters = PatchParams::apply(manager).force();
    api.patch(&wanted.name_any(), &parameters, &Patch::Apply(wanted)).await
}

fn to_json(value: &impl Serialize) -> Result<Value, kube::Error> {
    serde_json::to_value(value).map_err(kube::Error::SerdeError)
}
