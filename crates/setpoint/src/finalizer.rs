//! Finalizers: work that must be done before an object may go.

use std::fmt::Debug;
use std::sync::Arc;

use kube::api::{Api, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::mutants::{Promise, is_kept};
use crate::{Action, ReconcileError};

/// What is to be done with an object that has a finalizer.
#[derive(Clone, Debug)]
pub enum Finalize<K> {
    /// It lives: make the world match it. The finalizer is in place.
    Apply(Arc<K>),
    /// It is to go: undo what was done. When this has worked the finalizer is removed.
    Cleanup(Arc<K>),
}

/// Runs `step` under the protection of a finalizer.
///
/// The finalizer is written *before* anything is applied, and removed *after* everything is cleaned up. So
/// whatever happens in between, a crash included, nothing that was made outside is forgotten: `step` is called
/// again with the same request, and must find out what is done already.
///
/// When the finalizer has just been written, `step` is called with the object as the server answered: no event has to
/// come back for that, so no filter can keep it away. An object that is being deleted and does not have the finalizer
/// is none of our business.
///
/// `finalizer` is a qualified name: `networks.samplecrd.k8s.io/neutron`.
///
/// ```
/// use setpoint::k8s_openapi::api::core::v1::ConfigMap;
/// use setpoint::kube::Api;
/// use setpoint::{Action, Context, Finalize, ObjectKey, ReconcileError, finalize};
///
/// /// Each ConfigMap has a record in a DNS.
/// async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
///     let Some(map) = cx.lister::<ConfigMap>()?.get(&key) else { return Ok(Action::done()) };
///     let maps: Api<ConfigMap> = Api::namespaced(cx.client(), key.namespace().unwrap_or_default());
///     finalize(&maps, "example.com/dns", map, async |step| {
///         match step {
///             Finalize::Apply(map) => println!("the record of {:?} is made", map.metadata.name),
///             Finalize::Cleanup(map) => println!("the record of {:?} is removed", map.metadata.name),
///         }
///         Ok(Action::done())
///     })
///     .await
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = setpoint_apiserver::ApiServer::builder().build().client();
/// # let map: ConfigMap = serde_json::from_str(r#"{"metadata": {"name": "web", "namespace": "default"}}"#)?;
/// let test = Context::for_test(client).stored([map]).await?;
/// assert_eq!(reconcile("default/web".into(), test.context()).await.unwrap(), Action::done());
/// assert_eq!(test.requests()[0].body.to_string().matches("example.com/dns").count(), 1);
/// # Ok(())
/// # }
/// ```
pub async fn finalize<K, Fut>(
    api: &Api<K>,
    finalizer: &str,
    object: Arc<K>,
    step: impl FnOnce(Finalize<K>) -> Fut,
) -> Result<Action, ReconcileError>
where
    K: Resource + Clone + DeserializeOwned + Debug,
    Fut: Future<Output = Result<Action, ReconcileError>>,
{
    let has_finalizer = object.finalizers().iter().any(|found| found == finalizer);
    let is_deleted = object.meta().deletion_timestamp.is_some();
    match (is_deleted, has_finalizer) {
        (false, true) => step(Finalize::Apply(object)).await,
        (false, false) => {
            let mut finalizers = object.finalizers().to_vec();
            finalizers.push(finalizer.to_owned());
            match write(api, &*object, &finalizers).await? {
                Some(written) => step(Finalize::Apply(Arc::new(written))).await,
                None => Ok(Action::done()),
            }
        }
        (true, true) if !is_kept(Promise::Finalizer) => {
            let kept: Vec<String> =
                object.finalizers().iter().filter(|found| *found != finalizer).cloned().collect();
            write(api, &*object, &kept).await?;
            step(Finalize::Cleanup(object)).await
        }
        (true, true) => {
            let action = step(Finalize::Cleanup(object.clone())).await?;
            if action.delay().is_some() {
                // It is not done yet, and says when to look again.
                return Ok(action);
            }
            let mut finalizers = object.finalizers().to_vec();
            finalizers.retain(|found| found != finalizer);
            write(api, &*object, &finalizers).await?;
            Ok(Action::done())
        }
        (true, false) => Ok(Action::done()),
    }
}

/// Writes the list, unless the object has changed since it was read: then somebody else's finalizer could be
/// lost. Gives what was written. An object that is gone needs no finalizer.
async fn write<K>(api: &Api<K>, object: &K, finalizers: &[String]) -> Result<Option<K>, kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let patch = json!({"metadata": {
        "uid": object.meta().uid,
        "resourceVersion": object.meta().resource_version,
        "finalizers": finalizers,
    }});
    match api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await {
        Ok(written) => Ok(Some(written)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}
