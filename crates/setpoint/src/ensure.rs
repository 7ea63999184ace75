//! Writes that happen only if they change something.
//!
//! A server does not store what it is sent: it drops zeros, spells quantities and times in its own way, and fills in
//! defaults. [`stored`] does to what is wanted what a server would. What only the server knows (defaults, what a
//! schema prunes, what a webhook changes) is found out by writing once: [`memory`] keeps what came of it.

pub(crate) mod memory;
pub(crate) mod stored;

use std::fmt::Debug;

use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::memory::{AsLastTime, Recall, Trace};
use self::stored::Stored;

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
/// left alone: what the server filled in, and what others wrote. A list is wanted as a whole.
///
/// `current` is the object as a lister shows it. Nothing is read from the server, and nothing is written if
/// nothing is missing, so calling it again and again costs nothing. What the server decides (uid, times,
/// generation, and the status of built-in kinds, which has a path of its own) is not compared.
///
/// Objects of built-in kinds are compared as the server stores them: `1000m` is `1`, a `false` that the server
/// drops is not missing, and `stringData` is `data`. Some things only the server knows: a default in the place of
/// a zero, a field that the schema of a custom resource prunes. With the [`client`](crate::Context::client) of a
/// reconcile that is found out by writing once, and remembered: as long as `wanted` is the same, and nobody
/// changes the object, it is not written again. With another client it is.
///
/// ```
/// use setpoint::k8s_openapi::api::core::v1::ConfigMap;
/// use setpoint::kube::Api;
/// use setpoint::{Ensured, ensure};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = setpoint_apiserver::ApiServer::builder().build().client();
/// let maps: Api<ConfigMap> = Api::default_namespaced(client);
/// let wanted: ConfigMap = serde_json::from_value(serde_json::json!({
///     "metadata": {"name": "settings"}, "data": {"color": "red"},
/// }))?;
/// let Ensured::Created(map) = ensure(&maps, None, &wanted).await? else { panic!("it was not there") };
///
/// // In a reconcile what is there comes from a lister. What it has beside is left alone.
/// let outcome = ensure(&maps, Some(&map), &wanted).await?;
/// assert!(matches!(outcome, Ensured::Unchanged), "nothing is written");
/// # Ok(())
/// # }
/// ```
#[doc(alias = "CreateOrUpdate")]
#[doc(alias = "CreateOrPatch")]
pub async fn ensure<K>(api: &Api<K>, current: Option<&K>, wanted: &K) -> Result<Ensured<K>, kube::Error>
where
    K: Resource + Serialize + DeserializeOwned + Clone + Debug,
{
    let stored = Stored::at(api.resource_url());
    let wish = stored.wish(to_json(wanted)?);
    let Some(current) = current else {
        let body = serde_json::to_vec(wanted).map_err(kube::Error::SerdeError)?;
        let request = Request::new(api.resource_url()).create(&PostParams::default(), body);
        let recall = Recall::default();
        let created: K = send(api, request.map_err(kube::Error::BuildRequest)?, &recall).await?;
        remember(&recall, &stored, &wish, &created)?;
        return Ok(Ensured::Created(created));
    };
    let live = to_json(current)?;
    let Some(mut patch) = stored.missing(&live, &wish) else { return Ok(Ensured::Unchanged) };
    // If it is another object by now, the caller has decided on the wrong one.
    patch["metadata"]["uid"] = json!(current.meta().uid);
    let recall = Recall::of(Trace::of(&wish, &live));
    let patch = Patch::Merge(&patch);
    let request =
        Request::new(api.resource_url()).patch(&current.name_any(), &PatchParams::default(), &patch);
    let updated: K = match send(api, request.map_err(kube::Error::BuildRequest)?, &recall).await {
        Err(kube::Error::Service(error)) if error.is::<AsLastTime>() => return Ok(Ensured::Unchanged),
        answer => answer?,
    };
    remember(&recall, &stored, &wish, &updated)?;
    Ok(Ensured::Updated(updated))
}

/// Sends a request with what a memory on the way needs to know.
pub(crate) async fn send<K, T>(
    api: &Api<K>,
    mut request: http::Request<Vec<u8>>,
    recall: &Recall,
) -> Result<T, kube::Error>
where
    K: Resource + Clone,
    T: DeserializeOwned,
{
    request.extensions_mut().insert(recall.clone());
    api.clone().into_client().request(request).await
}

/// Keeps what the server made of a wish, if it is not what was wished.
fn remember<K: Serialize>(
    recall: &Recall,
    stored: &Stored,
    wish: &Value,
    answer: &K,
) -> Result<(), kube::Error> {
    if recall.is_heard() {
        let answer = to_json(answer)?;
        if stored.missing(&answer, wish).is_some() {
            recall.keep(Trace::of(wish, &answer));
        }
    }
    Ok(())
}

pub(crate) fn to_json(value: &impl Serialize) -> Result<Value, kube::Error> {
    serde_json::to_value(value).map_err(kube::Error::SerdeError)
}
