//! Writing a status that others write as well.

mod three_way;

use std::fmt::Debug;

use kube::api::{Api, Patch, PatchParams};
use kube::core::Request;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use setpoint_kinds::conform;

use crate::ensure::memory::{AsLastTime, Recall, Trace};
use crate::ensure::stored::Stored;
use crate::ensure::{send, to_json};
use crate::merge;

/// How often a status is tried that others write at the same time: as client-go's `RetryOnConflict`.
const TRIES: u32 = 5;

/// Writes the status of an object if it is not what the object has. Fields that `status` does not have are
/// removed. Says whether something was written.
///
/// `object` is as a lister or the server gave it. It is a patch of what differs, on the status alone, and an object
/// that is another one by now is left alone. Fields of which only others have changed something stay theirs.
///
/// A patch replaces lists as a whole. So a list is written at the version of `object` only, and if somebody else
/// was faster, what they wrote is looked at: of `conditions` those are set that this status changes, one by
/// one by their type; another list, if they changed it too, is a conflict (409) for the next reconcile. A
/// condition keeps its `lastTransitionTime` as long as its status is the same, whatever `status` says.
///
/// ```
/// use setpoint::k8s_openapi::api::core::v1::Pod;
/// use setpoint::kube::Api;
/// use setpoint::patch_status;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = setpoint_apiserver::ApiServer::builder().build().client();
/// let pods: Api<Pod> = Api::default_namespaced(client);
/// # let pod = serde_json::from_value(serde_json::json!({
/// #     "metadata": {"name": "web"}, "spec": {"containers": [{"name": "web", "image": "nginx"}]},
/// # }))?;
/// # pods.create(&Default::default(), &pod).await?;
/// let pod = pods.get("web").await?; // in a reconcile, from a lister
/// let mut status = pod.status.clone().unwrap_or_default();
/// status.message = Some("seen".to_owned());
/// assert!(patch_status(&pods, &pod, &status).await?);
///
/// let pod = pods.get("web").await?;
/// assert!(!patch_status(&pods, &pod, &status).await?, "nothing is left to write");
/// # Ok(())
/// # }
/// ```
pub async fn patch_status<K, S>(api: &Api<K>, object: &K, status: &S) -> Result<bool, kube::Error>
where
    K: Resource + Serialize + DeserializeOwned + Clone + Debug,
    S: Serialize,
{
    let stored = Stored::at(api.resource_url());
    let seen = to_json(object)?;
    let base = status_of(&stored, &seen);
    let mut wish = in_shape(&stored, to_json(status)?);
    three_way::keep_times(&base, &mut wish);
    let Some(difference) = merge::difference(&base, &wish) else { return Ok(false) };
    let write = Write { api, object, stored: &stored, wish: json!({"status": &wish}) };
    if !three_way::replaces_list(&base, &difference) {
        return write.send(Some(&seen), json!({"uid": object.meta().uid}), &difference).await;
    }
    write.send_at_version(&base, &wish, difference, &seen).await
}

/// The writes of one status.
struct Write<'a, K> {
    api: &'a Api<K>,
    object: &'a K,
    stored: &'a Stored,
    /// What is wanted, as the memory of writes knows it.
    wish: Value,
}

impl<K: Resource + Serialize + DeserializeOwned + Clone + Debug> Write<'_, K> {
    /// Writes at the version of the object; if somebody else was faster, on top of what they wrote.
    async fn send_at_version(
        &self,
        base: &Value,
        wish: &Value,
        mut difference: Value,
        seen: &Value,
    ) -> Result<bool, kube::Error> {
        let mut version = seen["metadata"]["resourceVersion"].clone();
        let mut seen = Some(seen);
        let mut tried = 0;
        loop {
            let metadata = json!({"uid": self.object.meta().uid, "resourceVersion": version});
            let conflict = match self.send(seen, metadata, &difference).await {
                Err(kube::Error::Api(status)) if status.code == 409 => kube::Error::Api(status),
                written => return written,
            };
            tried += 1;
            if tried == TRIES {
                return Err(conflict);
            }
            let live = self.look().await?;
            let theirs = status_of(self.stored, &live);
            let Some(merged) = three_way::merge(base, wish, &theirs) else { return Err(conflict) };
            // Somebody else has written the same.
            let Some(differs) = merge::difference(&theirs, &merged) else { return Ok(false) };
            difference = differs;
            version = live["metadata"]["resourceVersion"].clone();
            seen = None;
        }
    }

    /// Writes, unless the last write like this left the object as it was `seen`.
    async fn send(
        &self,
        seen: Option<&Value>,
        metadata: Value,
        difference: &Value,
    ) -> Result<bool, kube::Error> {
        let recall = seen.map_or_else(Recall::default, |seen| Recall::of(Trace::of(&self.wish, seen)));
        let patch = json!({"metadata": metadata, "status": difference});
        let answer: K = match self.patch(patch, &recall).await {
            Err(kube::Error::Service(error)) if error.is::<AsLastTime>() => return Ok(false),
            answer => answer?,
        };
        if recall.is_heard() {
            let answer = to_json(&answer)?;
            // What others have written meanwhile is no doing of the server's.
            if merge::missing(&status_of(self.stored, &answer), difference).is_some() {
                recall.keep(Trace::of(&self.wish, &answer));
            }
        }
        Ok(true)
    }

    /// The object as it is: what a patch of nothing gives. Whoever may write a status need not be allowed more.
    async fn look(&self) -> Result<Value, kube::Error> {
        let nothing = json!({"metadata": {"uid": self.object.meta().uid}});
        self.patch(nothing, &Recall::default()).await
    }

    async fn patch<T: DeserializeOwned>(&self, patch: Value, recall: &Recall) -> Result<T, kube::Error> {
        let (name, parameters) = (self.object.name_any(), PatchParams::default());
        let request = Request::new(self.api.resource_url()).patch_subresource(
            "status",
            &name,
            &parameters,
            &Patch::Merge(patch),
        );
        send(self.api, request.map_err(kube::Error::BuildRequest)?, recall).await
    }
}

fn status_of(stored: &Stored, object: &Value) -> Value {
    let status = object.get("status").filter(|status| status.is_object());
    in_shape(stored, status.cloned().unwrap_or_else(|| json!({})))
}

/// A status as the server would store it.
fn in_shape(stored: &Stored, status: Value) -> Value {
    let Some(ty) = stored.status_type() else { return status };
    let mut shaped = status.clone();
    // A value of the wrong type is for the server to refuse.
    if conform(ty, &mut shaped, &mut Vec::new()).is_ok() { shaped } else { status }
}
